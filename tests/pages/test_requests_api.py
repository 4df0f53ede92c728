"""Requests for deletions over HTTP: who may send one, what is taken, and where it stands."""

import json
import re
import uuid
from pathlib import Path

import pytest
import yaml
from pages_client import TOKEN, served

from embedded_service import Service, embedded, two_topics
from streamtopic.client import verify_receipt
from streamtopic.pages.gate import Access


@pytest.fixture(scope="module")
def instance(tmp_path_factory, redis_server):
    """An instance with 60 documents of two topics."""
    options = {"topics": 2, "min_df": 1, "model": "asked-over-http", "redis_url": redis_server.url}
    with embedded(tmp_path_factory.mktemp("asked") / "instance", **options) as service:
        service.add(two_topics(0, 60))
        service.settle()
    return service.settings


@pytest.fixture(scope="module")
def ask(instance):
    """Ask its server."""
    with served(instance) as asking:
        yield asking


def send(ask, token=TOKEN, **fields):
    """Send a request; (status, what is said)."""
    reply = ask("/requests", json.dumps(fields), token=token)
    return reply.status, json.loads(reply.text)


def test_a_request_becomes_a_receipt_with_its_proof(ask, instance):
    """It is taken in, counted, released, and its answer then holds a proof that anybody can check."""
    status, said = send(ask, id="of-a-portal", documents=["d1"])
    assert (status, said["id"], said["received_ms"] > 0) == (202, "of-a-portal", True)
    before = json.loads(ask("/requests/of-a-portal").text)
    assert (before["state"], before["proof"], before["receipts"], before["proofs"]) == ("waiting", None, 0, [])
    with Service(instance) as service:
        for _ in range(3):
            service.leader.move_requests()
            service.settle()
        keys = service.keys
    after = json.loads(ask("/requests/of-a-portal").text)
    (proof,) = after["proofs"]
    assert verify_receipt(proof, keys, document="d1", salt=said["salt"]).version == 2
    assert verify_receipt(after["proof"], keys).documents == 1
    assert '"d1"' not in json.dumps(after)


def test_a_request_that_is_sent_again_is_one(ask):
    """The same id with the same documents or people is answered as before; with others it is refused."""
    first, again = send(ask, id="twice", documents=["d2", "d3"]), send(ask, id="twice", documents=["d3", "d2"])
    assert [(status, said["id"], said["state"], said["salt"]) for status, said in (first, again)] == [
        (202, "twice", "waiting", first[1]["salt"])
    ] * 2
    status, said = send(ask, id="twice", documents=["d4"])
    assert (status, "twice" in said["error"]) == (409, True)
    people = [send(ask, id="person", subjects=[name])[0] for name in ("one", "one", "another")]
    assert people == [202, 202, 409]


@pytest.mark.parametrize("token", [None, "", "guessed-token", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
def test_nobody_sends_a_request_without_the_token(ask, token):
    """Also from this machine, where pages need none: nothing is taken in."""
    reply = ask("/requests", json.dumps({"id": "stolen", "documents": ["d5"]}), token=token)
    assert (reply.status, reply.headers["www-authenticate"].startswith("Bearer")) == (401, True)
    assert ask("/requests/stolen").status == 404


def test_a_browser_cannot_be_made_to_send_one(ask):
    """A page of another site uses what the browser adds by itself: the password of the pages is none here."""
    import base64

    basic = base64.b64encode(f"reader:{TOKEN}".encode()).decode()
    body = json.dumps({"id": "forged", "documents": ["d5"]})
    assert ask("/requests", body, Authorization=f"Basic {basic}").status == 401
    assert ask("/requests/forged").status == 404


def test_without_a_token_nobody_sends_one(instance):
    """The answer says which setting is missing."""
    with served(instance, Access(None, reading=False)) as ask:
        for token in ("anything at all", ""):
            reply = ask("/requests", "{}", token=token)
            assert (reply.status, "serve_token" in reply.text) == (403, True)


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "[]", "null", "3", "{}", '{"documents": []}', '{"documents": "d1"}', '{"documents": [1]}',
        '{"documents": ["d1"], "subjects": ["s"]}', '{"documents": ["d1"], "more": 1}',
        '{"id": 3, "documents": ["d1"]}', "[" * 5000, json.dumps({"documents": [""]}),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_the_form(ask, body):
    """Status 400, one line that says what to send, and nothing is taken in."""
    reply = ask("/requests", body.encode(errors="replace").decode(), token=TOKEN)
    assert (reply.status, set(json.loads(reply.text))) == (400, {"error"})


@pytest.mark.parametrize("length", [str(3 << 20), None])
def test_a_body_of_any_length_is_not_read(ask, length):
    """What is larger than a request may be, or does not say its length, is refused before it is read."""
    reply = ask("/requests", "" if length is None else "{}", token=TOKEN, Content_Length=length)
    assert (reply.status, "send several requests" in reply.text) == (413, True)


FIDES = Path(__file__).parents[2] / "deploy" / "fides" / "streamtopic_config.yml"


def filled(text, **values):
    """Return a text with its placeholders filled in, as the documentation of fides describes; each must be known."""
    return re.sub(r"<([a-z0-9_]+)>", lambda found: values[found[1]], text)


def test_a_person_is_forgotten_as_the_connector_for_fides_asks(ask, instance):
    """The test request, the erasure and the poll are answered, and the poll ends when the receipt is there."""
    config = yaml.safe_load(FIDES.read_text("utf-8"))["saas_config"]
    erase = config["endpoints"][0]["requests"]["delete"]
    poll = erase["async_config"]["configuration"]["status_request"]
    name = str(uuid.uuid4())
    body = filled(erase["body"], uuid=name, email="ada@example.com")
    assert ask(config["test_request"]["path"], method=config["test_request"]["method"]).status == 200
    headers = {one["name"].replace("-", "_"): one["value"] for one in erase["headers"]}
    assert ask(erase["path"], body, method=erase["method"], **headers).status == 401
    taken = ask(erase["path"], body, method=erase["method"], token=TOKEN, **headers)
    assert taken.status == 202, taken.text
    path = filled(poll["path"], correlation_id=json.loads(taken.text)[erase["correlation_id_path"]])
    assert path == f"/requests/{name}"

    def state():
        return json.loads(ask(path, method=poll["method"], token=TOKEN).text)[poll["status_path"]]

    assert state() != poll["status_completed_value"]
    with Service(instance) as service:
        service.settle()
    assert state() == poll["status_completed_value"]
