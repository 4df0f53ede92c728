"""The connector template for fides: what it sends is taken by the gateway, and what it reads is in the answers.

fides itself is not run here; placeholders are filled in as its documentation describes.
"""

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from streamtopic.state.deletion_requests import RequestState

FOLDER = Path(__file__).parents[2] / "deploy" / "fides"
PERSON = "ada@example.com"
# Placeholders that fides knows by itself; others are identities or parameters of the connector.
STANDARD = {
    "uuid": lambda: str(uuid.uuid4()),
    "iso_8601_datetime": lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
}


@pytest.fixture(scope="module")
def config():
    """The connector, with its key filled in as fides does."""
    text = (FOLDER / "streamtopic_config.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("<instance_fides_key>", "streamtopic_1"))["saas_config"]


def filled(text, **values):
    """Return a text with its placeholders filled in; each must be known."""
    known = {name: make() for name, make in STANDARD.items()} | values
    return re.sub(r"<([a-z0-9_]+)>", lambda found: known[found[1]], text)


def test_the_dataset_is_that_of_the_connector(config):
    """Each endpoint has its collection, whose fields the requests use, and one of them is the primary key."""
    text = (FOLDER / "streamtopic_dataset.yml").read_text(encoding="utf-8")
    (dataset,) = yaml.safe_load(text.replace("<instance_fides_key>", config["fides_key"]))["dataset"]
    assert dataset["fides_key"] == config["fides_key"]
    (endpoint,), (collection,) = config["endpoints"], dataset["collections"]
    assert collection["name"] == endpoint["name"]
    fields = {field["name"]: field["fidesops_meta"] for field in collection["fields"]}
    named = {value["name"] for request in endpoint["requests"].values() for value in request["param_values"]}
    assert named == set(fields) == set(json.loads(filled(endpoint["requests"]["read"]["output"], email=PERSON)))
    assert [name for name, meta in fields.items() if meta.get("primary_key")] == ["email"]


def test_parameters_are_declared(config):
    """Host and token come from parameters that an operator of fides fills in; the token is kept as a secret."""
    declared = {one["name"]: one for one in config["connector_params"]}
    used = re.findall(r"<(\w+)>", json.dumps(config["client_config"]))
    assert set(used) == set(declared)
    assert declared["gateway_token"]["sensitive"] is True
    assert config["client_config"]["authentication"]["strategy"] == "bearer"
    assert config["client_config"]["protocol"] == "https"


def test_the_gateway_does_what_the_connector_asks(config, served):
    """The test request, the erasure and the poll: each is answered, and the poll ends when the request does."""
    gateway = served(hold_seconds=3600.0)
    test = config["test_request"]
    assert gateway.ask(test["method"], test["path"]).status == 200
    erase = config["endpoints"][0]["requests"]["delete"]
    headers = {one["name"].replace("-", "_"): one["value"] for one in erase["headers"]}
    body = json.loads(filled(erase["body"], email=PERSON).replace('"email",', '"person",'))
    asked = gateway.ask(erase["method"], erase["path"], body, **headers)
    assert asked.status == 201, asked.body
    name = asked.fields[erase["correlation_id_path"]]
    assert gateway.door.requests.wanted(name).subjects == (PERSON,)
    poll = erase["async_config"]["configuration"]["status_request"]

    def status():
        path = filled(poll["path"], correlation_id=name)
        return gateway.ask(poll["method"], path).fields[poll["status_path"]]

    assert status() == "pending"
    for state in (RequestState.SENDING, RequestState.SENT, RequestState.COMPLETED):
        assert status() != poll["status_completed_value"]
        before = gateway.door.requests.get(name)
        gateway.door.requests.move(before, before.moved(state, before.changed_ms + 1))
    assert status() == poll["status_completed_value"]


def test_the_token_of_the_connector_is_asked_for(config, served):
    """Without the bearer token an erasure is refused, so the template must send it."""
    gateway = served()
    gateway.token = None
    erase = config["endpoints"][0]["requests"]["delete"]
    body = json.loads(filled(erase["body"], email=PERSON))
    assert gateway.ask(erase["method"], erase["path"], body).status == 401
