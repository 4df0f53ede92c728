"""The connector for fides: the server takes what it sends, and answers with what it reads.

fides itself is not run here; placeholders are filled in as its documentation describes.
"""

import json
import re
import uuid
from pathlib import Path

import pytest
import yaml
from pages_client import TOKEN, documents, served

from streamtopic.service.app import Service
from streamtopic.settings import Settings

FOLDER = Path(__file__).parents[2] / "deploy" / "fides"
PERSON = "ada@example.com"


def read(name):
    """Return a file of the connector, with its key filled in as fides does."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("<instance_fides_key>", "streamtopic_1"))


@pytest.fixture(scope="module")
def config():
    """The connector."""
    return read("streamtopic_config.yml")["saas_config"]


def filled(text, **values):
    """Return a text with its placeholders filled in; each must be known."""
    return re.sub(r"<([a-z0-9_]+)>", lambda found: values[found[1]], text)


def test_a_person_is_forgotten_as_the_connector_asks(config, redis_server, tmp_path):
    """The test request, the erasure and the poll are answered, and the poll ends when the receipt is there."""
    erase = config["endpoints"][0]["requests"]["delete"]
    poll = erase["async_config"]["configuration"]["status_request"]
    name = str(uuid.uuid4())
    body = filled(erase["body"], uuid=name, email=PERSON)
    options = {"topics": 2, "min_df": 1, "max_df": 1.0, "max_forget_lag": 0.0}
    settings = Settings(dir=tmp_path / "instance", model="fides", redis_url=redis_server.url, **options)
    with Service(settings) as service:
        service.add(documents())
        service.settle()
    with served(settings) as ask:
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
        with Service(settings) as service:
            service.settle()
        assert state() == poll["status_completed_value"]
