"""The scripts in docs/examples run as a reader runs them, and print what they promise."""

import hashlib
import hmac
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamtopic.documents.events import Delete, Document, decode_record
from streamtopic.streams import KafkaOptions, TopicNames
from streamtopic.streams.kafka_log import KafkaLog

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SUBJECTS = [{"rose", "tulip", "soil", "seed", "garden"}, {"oven", "flour", "butter", "dough", "bread"}]
SUBJECTS.append({"mast", "tide", "crew", "rope", "harbour"})


def printed(name, *arguments):
    """Lines that an example prints; it must end well."""
    command = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_library_forgets_docstrings():
    """The model that forgot is within the proven bound of one that never saw the forgotten docstrings."""
    lines = printed("library.py")
    documents, topics = map(int, re.fullmatch(r"(\d+) docstrings, (\d+) topics", lines[0]).groups())
    assert len(lines[1 : topics + 1]) == topics == 8
    assert all(len(line.split()) == 6 for line in lines[1 : topics + 1])
    gone, rest = map(int, re.fullmatch(r"(\d+) docstrings of \S+ forgotten, (\d+) remain", lines[-3]).groups())
    assert gone >= 10
    assert gone + rest == documents
    difference, bound = (float(line.rpartition(": ")[2]) for line in lines[-2:])
    assert difference <= bound < 1e-9


def test_guided_topics_hold_their_seeds(tmp_path):
    """The topics that the reader names are the last ones, hold their seeds, and forget like all others."""
    rng = random.Random(4)
    path = tmp_path / "texts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(240):
            words = sorted(SUBJECTS[number % 3])
            text = " ".join(rng.choices(words, k=12))
            file.write(json.dumps({"text": f"{text} w{number % 30}"}) + "\n")
    lines = printed("guided.py", str(path), "3", "garden=rose,tulip")
    (garden,) = [line for line in lines[:3] if line.startswith("garden: ")]
    assert {*garden.split()[1:]} >= {"rose", "tulip"}
    assert {*garden.split()[1:6]} == SUBJECTS[0]
    assert lines[3] == "10 documents forgotten; cold start: None"
    difference, bound = (float(line.rpartition(": ")[2]) for line in lines[-2:])
    assert difference <= bound < 1e-9


def test_a_person_is_forgotten():
    """Ten letters and the late one leave in one version, and one receipt covers them."""
    lines = printed("forget_person.py")
    assert lines[0] == "version 2: 290 documents"
    assert lines[1] == "receipt: 11 documents, none is in version 2"
    assert lines[2] == "checked: 11 documents have a receipt of their own"
    assert re.fullmatch(r"the first of them is about letter-(7\d|late)", lines[3])


def test_plain_kafka_python_is_enough(kafka_server):
    """The producer sends three adds and a delete, and prints the digest that its receipt will show."""
    names = TopicNames("plain-example")
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        log.create(names.documents, 2, names.settings()[names.documents])
        lines = printed("plain_producer.py", kafka_server.servers, "plain-example")
        records = [record for p in (0, 1) for record in log.read(names.documents, p, log.begin(names.documents, p))]
    assert "import streamtopic" not in (EXAMPLES / "plain_producer.py").read_text("utf-8")
    events = [decode_record(record) for record in records]
    assert {event.id for event in events if isinstance(event, Document)} == {"garden/1", "kitchen/1", "harbour/1"}
    (deleted,) = [event for event in events if isinstance(event, Delete)]
    request, salt = re.fullmatch(r"request (\S+), salt (\S+)", lines[4]).groups()
    assert (deleted.document, deleted.request) == ("garden/1", request)
    for record, event in zip(records, events, strict=True):
        act = "add" if isinstance(event, Document) else "delete"
        assert f"{act} {record.key.decode()}: partition {record.partition}, offset {record.offset}" in lines
    digest = hmac.new(salt.encode(), b"streamtopic request\0" + request.encode(), hashlib.sha256).hexdigest()
    assert lines[5].endswith(digest)


@pytest.mark.slow
def test_a_stream_in_kafka_learns_and_forgets(kafka_server):
    """A broker, the service and its clients: two versions, three subjects kept apart, and a receipt."""
    assert kafka_server.servers  # where no broker can be had, this test is skipped with the others
    lines = printed("kafka_stream.py")
    start = lines.index("90 documents added")
    assert lines[start + 1] == "a version of 90 documents:"
    topics = [set(line.split()) for line in lines[start + 2 : start + 5]]
    assert all(any(topic <= subject for subject in SUBJECTS) for topic in topics)
    assert re.fullmatch(r"a version of 89 documents \((unlearn|retrain)\)", lines[start + 5])
    assert lines[start + 6] == "receipt: found True, about doc-0 True"


@pytest.mark.slow
def test_an_auditor_checks_offline():
    """A receipt, its document and a version are accepted with the public key alone."""
    lines = printed("auditor.py")
    assert not [line for line in lines if line.startswith("FAIL")]
    assert "ok    version 3 is the first without document doc-89" in lines
    assert lines[-2:] == ["signed: receipt of version 3", "signed: version of version 3"]
