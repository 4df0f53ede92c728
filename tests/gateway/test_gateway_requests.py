"""The gateway holds to OpenDSR 2.0: the specification's own examples, what it refuses, and who may ask."""

import base64
import json
import re
import socket
import subprocess
import sys

import pytest

from streamtopic.cli import main
from streamtopic.client import Receipts
from streamtopic.documents.corpus import Document
from streamtopic.errors import UsageError
from streamtopic.gateway.opendsr_messages import parse_erasure
from streamtopic.local import LocalRedis
from streamtopic.service.app import Service
from streamtopic.settings import Settings
from streamtopic.state.deletion_requests import RequestState

ID = "a7551968-d5d6-44b2-9831-815ac9017798"
# The request of section 7.2, whose extensions end in a comma there.
EXAMPLE = {
    "subject_request_id": ID,
    "subject_request_type": "erasure",
    "submitted_time": "2018-10-02T15:00:00Z",
    "subject_identities": [
        {"identity_type": "email", "identity_value": "johndoe@example.com", "identity_format": "raw"}
    ],
    "api_version": "2.0",
    "status_callback_urls": ["https://examplecontroller.com/opendsr/callbacks"],
    "extensions": {
        "example-processor.com": {"foo-processor-custom-id": 123456, "property_id": "123456"},
        "example-other-processor.com": {"foo-other-processor-custom-id": 654321},
    },
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def without(name):
    """The example without a field."""
    return {key: value for key, value in EXAMPLE.items() if key != name}


def test_discovery_says_what_is_supported(served, verified):
    """Section 6.4, for everybody: who verifies a callback has no token."""
    gateway = served()
    gateway.token = None
    said = gateway.ask("GET", "/discovery")
    assert said.status == 200
    assert said.fields == {
        "api_version": "2.0",
        "supported_identities": [
            {"identity_type": "controller_customer_id", "identity_format": "raw"},
            {"identity_type": "email", "identity_format": "raw"},
            {"identity_type": "person", "identity_format": "raw"},
        ],
        "supported_subject_request_types": ["erasure"],
        "processor_certificate": "https://example-processor.com/cert.pem",
    }
    certificate = gateway.ask("GET", "/cert.pem").body
    assert b"PRIVATE" not in certificate
    assert verified(certificate, said.headers, said.body)
    assert not verified(certificate, said.headers, said.body + b" ")


@pytest.mark.parametrize("path", ["/requests", "/v2/requests", "/opengdpr_requests", "/v1/opengdpr_requests"])
def test_the_examples_of_the_specification(served, verified, path):
    """A request is taken in, asked for and cancelled, with all fields and a signature; also under the former names."""
    gateway = served(hold_seconds=3600.0, max_forget_lag=600.0)
    certificate = gateway.ask("GET", "/cert.pem").body
    made = gateway.ask("POST", path, EXAMPLE)
    assert made.status == 201
    assert made.headers["content-type"] == "application/json"
    assert made.fields.keys() == {
        "controller_id", "expected_completion_time", "received_time", "encoded_request", "subject_request_id",
    }  # fmt: skip
    assert made.fields["controller_id"] == "example_controller_id"
    assert made.fields["subject_request_id"] == ID
    assert json.loads(base64.b64decode(made.fields["encoded_request"])) == EXAMPLE
    assert TIME.fullmatch(made.fields["received_time"])
    stored = gateway.door.requests.get(ID)
    assert stored.expected_ms - stored.received_ms == 4_200_000
    assert gateway.door.requests.wanted(ID).documents == ("johndoe@example.com",)
    status = gateway.ask("GET", f"{path}/{ID}")
    assert status.status == 200
    assert status.fields == {
        "controller_id": "example_controller_id",
        "expected_completion_time": made.fields["expected_completion_time"],
        "subject_request_id": ID,
        "request_status": "pending",
        "api_version": "2.0",
    }
    gone = gateway.ask("DELETE", f"{path}/{ID}")
    assert gone.status == 202
    assert gone.fields.keys() == {"controller_id", "subject_request_id", "received_time", "api_version"}
    assert gateway.ask("GET", f"{path}/{ID}").fields["request_status"] == "cancelled"
    for said in (made, status, gone):
        assert verified(certificate, said.headers, said.body)


def test_the_same_request_again_is_answered_as_before(served):
    """A requester that has not heard the answer asks again; other identities under the same id are refused."""
    gateway = served(hold_seconds=3600.0)
    first = gateway.ask("POST", "/requests", EXAMPLE)
    gateway.now[0] += 60
    again = gateway.ask("POST", "/requests", EXAMPLE)
    assert (again.status, again.body) == (201, first.body)
    other = EXAMPLE["subject_identities"][0] | {"identity_value": "jane@example.com"}
    refused = gateway.ask("POST", "/requests", EXAMPLE | {"subject_identities": [other]})
    assert refused.status == 400
    assert "another id" in refused.fields["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (without("subject_request_id"), "subject_request_id field is required"),
        (without("submitted_time"), "submitted_time field is required"),
        (without("subject_identities"), "subject_identities field is required"),
        (EXAMPLE | {"subject_request_id": ID.upper()}, "lowercase"),
        (EXAMPLE | {"subject_request_id": ID.replace("-44", "-14")}, "version 4"),
        (EXAMPLE | {"subject_request_type": "access"}, "access is not supported"),
        (EXAMPLE | {"subject_request_type": "portability"}, "portability is not supported"),
        (EXAMPLE | {"subject_request_type": "oblivion"}, "erasure, access or portability"),
        (EXAMPLE | {"submitted_time": "yesterday"}, "RFC 3339"),
        (EXAMPLE | {"submitted_time": "2018-10-02T15:00:00"}, "RFC 3339"),
        (EXAMPLE | {"regulation": "hipaa"}, "gdpr or ccpa"),
        (EXAMPLE | {"api_version": "3.0"}, "api_version"),
        (EXAMPLE | {"status_callback_urls": ["https://a.example/"] * 6}, "at most 5"),
        (EXAMPLE | {"status_callback_urls": ["http://examplecontroller.com/"]}, "https"),
        (EXAMPLE | {"status_callback_urls": ["https://10.0.0.1/"]}, "private"),
        (EXAMPLE | {"subject_identities": ["johndoe@example.com"]}, "must be an object"),
        (EXAMPLE | {"subject_identities": [{"identity_type": "email"}]}, "identity_value field is required"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
    ],
)
def test_what_the_specification_refuses_is_told_as_it_says(served, body, said):
    """Status 400 with the error object of section 7.6; nothing is stored, and no identity is repeated."""
    gateway = served(private=False)
    answer = gateway.ask("POST", "/requests", body)
    assert answer.status == 400
    error = answer.fields["error"]
    assert (error["code"], set(error["errors"][0])) == (400, {"domain", "reason", "message"})
    assert said in error["message"]
    assert b"johndoe" not in answer.body
    assert gateway.door.requests.open() == []


@pytest.mark.parametrize("change", [{"identity_type": "ios_vendor_id"}, {"identity_format": "sha256"}])
def test_identities_for_other_processors_are_passed_over(served, change):
    """One that is known is enough, and none is too few."""
    gateway = served()
    foreign = EXAMPLE["subject_identities"][0] | change
    alone = gateway.ask("POST", "/requests", EXAMPLE | {"subject_identities": [foreign]})
    assert (alone.status, "supported type" in alone.fields["error"]["message"]) == (400, True)
    both = EXAMPLE | {"subject_identities": [foreign, *EXAMPLE["subject_identities"]]}
    assert gateway.ask("POST", "/requests", both).status == 201
    assert gateway.door.requests.get(ID).documents == 1


def test_an_identity_that_cannot_be_an_id_is_not_repeated(served):
    """An error must not tell the identity to logs that keep errors."""
    identity = EXAMPLE["subject_identities"][0] | {"identity_value": "x" * 5000}
    said = served().ask("POST", "/requests", EXAMPLE | {"subject_identities": [identity]})
    assert (said.status, b"xxxx" in said.body) == (400, False)


@pytest.mark.parametrize("value", ["st:heartbeat", "st:suppress:00", "st:subject:1"])
def test_an_id_of_the_service_s_own_is_refused(served, value):
    """No receipt would ever answer its delete, and the request would be in progress for ever."""
    identity = EXAMPLE["subject_identities"][0] | {"identity_value": value}
    said = served().ask("POST", "/requests", EXAMPLE | {"subject_identities": [identity]})
    assert (said.status, said.fields["error"]["code"]) == (400, 400)


@pytest.mark.parametrize("path", ["/requests/", "/discovery/", f"/v2/requests/{ID}/"])
def test_an_address_that_does_not_exist_leads_nowhere(served, path):
    """Not even to itself without the slash: that answer would name whatever host the request names."""
    said = served().ask("GET", path, Host="elsewhere.example")
    assert (said.status, said.headers.get("location")) == (404, None)
    assert said.fields["error"]["code"] == 404


def test_what_is_on_its_way_cannot_be_cancelled(served):
    """Section 9: only while it is pending."""
    gateway = served()
    gateway.ask("POST", "/requests", EXAMPLE)
    before = gateway.door.requests.get(ID)
    gateway.door.requests.move(before, before.moved(RequestState.SENDING, 1))
    assert gateway.ask("GET", f"/requests/{ID}").fields["request_status"] == "in_progress"
    assert gateway.ask("DELETE", f"/requests/{ID}").status == 400


def test_only_requests_of_the_gateway_are_shown(served):
    """An operator's requests are not the requester's business, whatever their id."""
    gateway = served(hold_seconds=60.0)
    gateway.door.receive(["doc"], name=ID)
    gateway.door.receive(["doc"], name="plain")
    for name in (ID, "plain", "nothing", "..%2f..%2fdiscovery"):
        assert gateway.ask("GET", f"/requests/{name}").status == 404
        assert gateway.ask("DELETE", f"/requests/{name}").status == 404
    assert gateway.ask("GET", "/nowhere").status == 404


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong token here", "Basic YTpi", "Bearer", "a token of the tests alone"]
)
def test_nobody_asks_without_the_token(served, given):
    """Each act is refused, and nothing is stored."""
    gateway = served()
    gateway.token = None
    for method, path in (("POST", "/requests"), ("GET", f"/requests/{ID}"), ("DELETE", f"/requests/{ID}")):
        said = gateway.ask(method, path, EXAMPLE if method == "POST" else None, Authorization=given)
        assert (said.status, said.headers["www-authenticate"]) == (401, "Bearer")
    assert gateway.door.requests.open() == []


def test_a_page_in_a_browser_cannot_ask(served):
    """Not under another server's name, not as a form, and not with a body without end."""
    gateway = served(token=None)
    assert gateway.ask("POST", "/requests", EXAMPLE, Host="rebound.example").status == 421
    assert gateway.ask("POST", "/requests", EXAMPLE, Content_Type="text/plain").status == 400
    assert gateway.ask("POST", "/requests", b"x" * (1 << 20 | 1)).status == 413
    assert gateway.ask("POST", "/requests", EXAMPLE, Host="127.0.0.1").status == 201


def test_a_request_reaches_its_receipts(served, tmp_path, redis_server):
    """From the POST to `completed`, with the service beside it; the request id finds the receipt."""
    gateway = served(hold_seconds=0.0)
    model = gateway.door._settings.model
    settings = Settings(
        dir=tmp_path / "instance", redis_url=redis_server.url, model=model, topics=2, min_df=1, max_df=1.0,
        max_forget_lag=0, capacity="fixed", capacity_fixed=50,
    )  # fmt: skip
    words = [["apple", "banana", "cherry", "damson", "elder"], ["iron", "copper", "silver", "gold", "tin"]]
    texts = [" ".join([words[n % 2][(n // 2 + k) % 5] for k in range(4)]) for n in range(60)]
    with Service(settings) as service:
        service.add([Document(f"d{n}", text, {}) for n, text in enumerate(texts)])
        service.settle()
        identity = {"identity_type": "controller_customer_id", "identity_value": "d7", "identity_format": "raw"}
        assert gateway.ask("POST", "/v2/requests", EXAMPLE | {"subject_identities": [identity]}).status == 201
        service.settle()
        assert gateway.ask("GET", f"/requests/{ID}").fields["request_status"] == "completed"
        assert service.status()["documents"] == 59
        assert [receipt.model for receipt in service.receipts()] == [model]
    again = gateway.ask("POST", "/v2/requests", EXAMPLE | {"subject_identities": [identity]})
    assert (again.status, "has ended" in again.fields["error"]["message"]) == (400, True)


def test_a_person_is_forgotten_from_the_post_to_the_covering_receipt(served, tmp_path, redis_server):
    """Two identities of one person are two subjects of one request, and each has a covering receipt."""
    gateway = served(hold_seconds=0.0)
    settings = Settings(
        dir=tmp_path / "instance", redis_url=redis_server.url, model=gateway.door._settings.model, topics=2, min_df=1,
        max_df=1.0, max_forget_lag=0, capacity="fixed", capacity_fixed=50,
    )  # fmt: skip
    words = [["apple", "banana", "cherry", "damson", "elder"], ["iron", "copper", "silver", "gold", "tin"]]
    texts = [" ".join([words[n % 2][(n // 2 + k) % 5] for k in range(4)]) for n in range(60)]
    people = {7: ("ann@example.com",), 8: ("ann@example.com", "customer 5"), 9: ("customer 5",), 10: ("bob",)}
    identities = [
        {"identity_type": "person", "identity_value": name, "identity_format": "raw"}
        for name in ("ann@example.com", "customer 5")
    ]
    with Service(settings) as service:
        service.add([Document(f"d{n}", text, subjects=people.get(n, ())) for n, text in enumerate(texts)])
        service.settle()
        assert gateway.ask("POST", "/requests", EXAMPLE | {"subject_identities": identities}).status == 201
        salt = gateway.door.requests.wanted(ID).salt
        service.settle()
        assert gateway.ask("GET", f"/requests/{ID}").fields["request_status"] == "completed"
        assert service.status()["documents"] == 57
        receipts = Receipts(service.log, model=settings.model, public_key=service.keys)
        # The document of both subjects may be asked for twice.
        assert sum(receipt.found for receipt in receipts.find(ID, salt=salt)) == 3
        assert receipts.covering(ID, salt=salt).documents >= 3
    mixed = [{"identity_type": "email", "identity_value": "d1", "identity_format": "raw"}, *identities]
    refused = gateway.ask("POST", "/requests", EXAMPLE | {"subject_identities": mixed})
    assert (refused.status, "send a request for each" in refused.fields["error"]["message"]) == (400, True)


def test_a_redis_that_is_away_is_told_as_that(served):
    """The requester tries again later; the address of Redis stays inside."""
    gateway = served()
    with LocalRedis() as other:
        url = other.url
    from streamtopic.state import Connection
    from streamtopic.state.deletion_requests import DeletionRequests

    with Connection(url) as away:
        gateway.door.requests = DeletionRequests(away, "gone")
        said = gateway.ask("POST", "/requests", EXAMPLE)
    assert said.status == 503
    assert b"redis" not in said.body.lower()


def test_a_body_is_never_a_foreign_exception():
    """Whatever a body is, it is a request or it is refused."""
    # The example has no regulation, and the specification's text has.
    whole = EXAMPLE | {"regulation": "gdpr"}
    (identity,) = EXAMPLE["subject_identities"]
    for value in (None, 1, "x", [], {}, [1], ["gdpr"], {"a": 1}, True, 1e400):
        bodies = {name: whole | {name: value} for name in whole}
        bodies |= {name: whole | {"subject_identities": [identity | {name: value}]} for name in identity}
        for name, fields in bodies.items():
            try:
                parse_erasure(json.dumps(fields).encode(), {"email": "document"})
            except UsageError:
                continue
            assert name in {"status_callback_urls", "extensions"} or isinstance(value, str) or value == whole[name]


@pytest.mark.parametrize("time", ["2018-10-02t15:00:00z", "2018-10-02T15:00:00.123456789+01:00"])
def test_each_form_of_a_time_in_rfc_3339_is_taken(time):
    """Its section 5.6 allows small letters and any number of digits."""
    body = json.dumps(EXAMPLE | {"submitted_time": time}).encode()
    assert parse_erasure(body, {"email": "document"}).id == ID


def test_the_command_says_what_is_missing(capsys):
    """Settings that belong together are named together."""
    assert main(["gateway"]) == 2
    assert "gateway_domain" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_the_command_serves_until_it_is_told_to_stop(capsys, host, certified, redis_server, tmp_path):
    """On this machine without a token, elsewhere not at all; SIGTERM ends it with status 0."""
    certificate, key = certified("cli.example")
    config = tmp_path / "streamtopic.toml"
    config.write_text(
        f'model = "cli"\nredis_url = "{redis_server.url}"\ngateway_domain = "cli.example"\n'
        f'gateway_certificate = "{certificate}"\ngateway_key = "{key}"\n'
    )
    arguments = ["gateway", "--config", str(config), "--host", host, "--port", "0", "--json"]
    if host != "127.0.0.1":
        assert main(arguments) == 2
        assert "gateway_token" in capsys.readouterr().err
        return
    running = subprocess.Popen([sys.executable, "-m", "streamtopic", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert json.loads(running.stdout.readline())["event"] == "gateway"
    finally:
        running.terminate()
    assert running.wait(40) == 0
    running.stdout.close()


def test_a_redis_that_refuses_the_gateway_is_no_fault_of_the_request(served, redis_server, connection):
    """The requester is told to try again later, and nothing about Redis; once it has its rights, it is taken in."""
    limited = ["ACL", "SETUSER", "gateless", "on", ">word", "~*"]
    connection.call(*limited, "+@all", "-@write", "-@scripting")
    gateway = served(url=redis_server.url.replace("unix://", "unix://gateless:word@"))
    said = gateway.ask("POST", "/requests", EXAMPLE)
    assert (said.status, b"Redis" in said.body) == (503, False)
    connection.call(*limited, "+@all")
    assert gateway.ask("POST", "/requests", EXAMPLE).status == 201


def test_a_requester_that_leaves_in_the_middle_is_no_error(served, caplog):
    """Half a body and a broken connection leave nothing in the log, and the next request is answered."""
    gateway = served()
    head = f"POST /requests HTTP/1.1\r\nHost: example-processor.com\r\nAuthorization: Bearer {gateway.token}\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port)) as left:
        left.sendall(f"{head}Content-Length: 99\r\n\r\nhalf".encode())
    for _ in range(3):
        assert gateway.ask("GET", "/discovery").status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
