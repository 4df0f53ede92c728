"""What the documentation says about messages is what the program does, with anyone's client."""

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from streamtopic.documents import events, suppression
from streamtopic.documents.events import MAX_VALUES, Delete, Document, decode_record
from streamtopic.local.local_kafka import broker_jars, find_java
from streamtopic.signed import (
    Alive,
    End,
    Envelope,
    Erased,
    Head,
    KeyRing,
    Keys,
    Ledger,
    LedgerProof,
    Payload,
    Receipt,
    RequestReceipt,
    SigningKey,
    line_of,
    open_keys,
    parse_line,
    request_digest,
)
from streamtopic.signed.releases_topic import CHUNK_BYTES, PROOF_BYTES
from streamtopic.streams import KafkaOptions, TopicNames
from streamtopic.streams.kafka_log import KafkaLog
from streamtopic.words.text import MAX_MARKS, MAX_PAIRS, MAX_PASSAGE, MAX_TEXT_WORDS, MAX_WORD, MAX_WORDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "messages.md").read_text("utf-8")
DESCRIPTION = yaml.safe_load((DOCS / "asyncapi.yaml").read_text("utf-8"))
CHANNELS, MESSAGES = DESCRIPTION["channels"], DESCRIPTION["components"]["messages"]
SCHEMAS = DESCRIPTION["components"]["schemas"]


def blocks(language):
    """Code of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def log(kafka_server):
    """A log with the topics of `news`, as empty as the broker lets them be."""
    names = TopicNames("news")
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        for topic, settings in names.settings().items():
            log.create(topic, 1, settings)
        yield log


def sent(log, act):
    """Events that an action brings to the documents topic."""
    start = log.end("news.documents", 0)
    act()
    found = [(record.key, decode_record(record)) for record in log.read("news.documents", 0, start)]
    assert log.end("news.documents", 0) == start + len(found)
    return found


def test_the_console_tools_add_and_delete(log, kafka_server, tmp_path):
    """The command lines of the page, run with Kafka's own console producer, arrive as an add and a delete."""
    tool = tmp_path / "kafka-console-producer.sh"
    main = "org.apache.kafka.tools.ConsoleProducer"
    tool.write_text(f'#!/bin/sh\nexec "{find_java()}" -Xmx256m -cp "{broker_jars()}/*" {main} "$@"\n')
    tool.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run():
        for block in blocks("sh"):
            command = block.replace("localhost:9092", kafka_server.servers)
            subprocess.run(["/bin/sh", "-ec", command], env=environment, check=True)

    assert sent(log, run) == [(b"doc-1", Document("doc-1", "the quick brown fox")), (b"doc-1", Delete("doc-1", "r-1"))]


def test_our_client_s_examples_run(log, kafka_server, tmp_path, capsys):
    """The other examples of the page run as they stand, from a folder with the public key."""
    key = tmp_path / "signing.pub"
    key.write_text(str(SigningKey.generate("news").public))
    for block in blocks("python"):
        if "streamtopic" in block:
            code = block.replace("localhost:9092", kafka_server.servers).replace("signing.pub", str(key))
            exec(code.replace("seen.json", str(tmp_path / "seen.json")), {})  # noqa: S102 - our own page
    assert "not yet" in capsys.readouterr().out


def test_topics_are_those_of_the_program():
    """Names and settings of topics are said as `streamtopic init` makes them, on the page and in the description."""
    names = TopicNames("MODEL")
    settings = names.settings()
    assert {channel["address"].format(model="MODEL") for channel in CHANNELS.values()} == settings.keys()
    for channel in CHANNELS.values():
        topic = channel["address"].format(model="MODEL")
        said = channel["bindings"]["kafka"]["topicConfiguration"]
        said = {name: value[0] if isinstance(value, list) else str(value) for name, value in said.items()}
        assert said == settings[topic]
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{topic}`"))
        assert dict(re.findall(r"`([a-z.]+)=(-?\w+)`", row)) == settings[topic]


def test_limits_are_those_of_the_program():
    """Numbers in the description and on the page are the constants that records are checked against."""
    key, add = SCHEMAS["documentId"], MESSAGES["add"]["payload"]["properties"]
    assert key["maxLength"] == events.MAX_KEY
    assert add["text"]["maxLength"] == events.MAX_TEXT
    counts, labels = add["counts"], add["labels"]
    assert counts["maxProperties"] == MAX_WORDS
    assert counts["propertyNames"]["maxLength"] == MAX_WORD
    assert counts["additionalProperties"]["maximum"] == events.MAX_COUNT
    assert (labels["maxProperties"], labels["propertyNames"]["maxLength"]) == (events.MAX_LABELS, events.MAX_LABEL)
    assert labels["additionalProperties"]["maxLength"] == events.MAX_LABEL
    named = add["subjects"]
    assert (named["maxItems"], named["items"]["maxLength"]) == (events.MAX_SUBJECTS, events.MAX_SUBJECT)
    for request in (MESSAGES["tombstone"]["headers"], MESSAGES["delete"]["payload"]):
        assert request["properties"]["request"]["maxLength"] == events.MAX_REQUEST
    assert MESSAGES["chunk"]["payload"]["x-max-bytes"] == CHUNK_BYTES
    assert SCHEMAS["tlogProof"]["maxLength"] == PROOF_BYTES
    assert f"{MAX_PASSAGE:,} tokens" in counts["description"]
    for number in (events.MAX_TEXT, events.MAX_COUNT, events.MAX_VALUE, CHUNK_BYTES):
        assert f"{number:,}" in PAGE
    for number in (MAX_PASSAGE, MAX_WORDS, MAX_TEXT_WORDS, MAX_PAIRS, MAX_VALUES):
        assert f"{number:,}" in PAGE
    for number in (events.MAX_KEY, MAX_MARKS, MAX_WORD, events.MAX_LABELS, events.MAX_LABEL, events.MAX_REQUEST):
        assert re.search(rf"\b{number}\b", PAGE)


def test_reasons_are_those_of_the_program():
    """Every reason in the code is described, and none besides."""
    source = "".join(Path(module.__file__).read_text("utf-8") for module in (events, suppression))
    # A bad request id is only our own producer's fault; whether there is room is known to ingest alone.
    used = set(re.findall(r'InvalidEvent\(\s*"([a-z-]+)"', source)) - {"request"}
    assert set(MESSAGES["rejected"]["payload"]["properties"]["reason"]["enum"]) == used
    assert used <= set(re.findall(r"`([a-z-]+)`", PAGE))


ENTRIES = {
    "version": Envelope,
    "receipt": Receipt,
    "request": RequestReceipt,
    "erased": Erased,
    "alive": Alive,
    "keys": Keys,
    "end": End,
}


@pytest.mark.parametrize(("schema", "kind"), [("payload", Payload), ("head", Head)])
def test_fields_are_those_of_the_program(schema, kind):
    """A release has the fields that the description names."""
    assert SCHEMAS[schema]["properties"].keys() == {field.name for field in dataclasses.fields(kind)}


def _lines():
    """The examples of entries on the page."""
    return [line for block in blocks("json") for line in block.splitlines() if "kind" in json.loads(line)]


def test_each_kind_of_entry_has_an_example():
    """The page shows one of each kind, as the program writes it, with the fields that the description names."""
    shown = {}
    for line in _lines():
        entry = parse_line(line)
        assert line_of(entry) == line
        shown[json.loads(line)["kind"]] = entry
        schema = SCHEMAS[json.loads(line)["kind"]]["properties"]
        assert schema.keys() == json.loads(line).keys()
    assert {name: type(entry) for name, entry in shown.items()} == ENTRIES
    named = {one["$ref"].rpartition("/")[2] for one in SCHEMAS["entry"]["oneOf"]}
    assert named == ENTRIES.keys()


def test_the_records_and_the_proof_on_the_page_verify():
    """The ledger that the page shows is one: draft, checkpoint and proof, under the key that its list names."""
    root = SigningKey.from_seed(bytes([1]) * 32, "example.org/news/root").public
    (note,) = (json.loads(line)["note"] for line in _lines() if json.loads(line)["kind"] == "keys")
    key = open_keys(note, root).current
    ledger = Ledger(KeyRing.load(key, "news"), tail=True)
    records = [block.strip().encode() for block in blocks("json") if block.startswith(('{"draft"', '{"checkpoint"'))]
    assert [json.loads(record).keys() for record in records] == [
        MESSAGES[name]["payload"]["properties"].keys() for name in ("draft", "checkpoint")
    ]
    taken = [logged for record in records for logged in ledger.take(record)]
    (proof,) = (block for block in blocks("text") if block.startswith("c2sp.org/tlog-proof"))
    logged = LedgerProof.parse(proof).verify(ledger.keys)
    assert taken == [logged]
    assert logged.line in _lines()
    salt = re.findall(r'salt="(\w+)"', PAGE)[0]
    assert logged.entry.request == request_digest("r-1", salt)
    assert logged.entry.is_about("doc-1", salt)
    assert str(key).startswith(re.findall(r"`([^`]+)\.\.\.`", PAGE)[0])


def test_plain_kafka_python_adds_and_deletes(log, kafka_server):
    """The page's example without our client arrives as adds and a delete."""

    def run():
        namespace = {}
        (block,) = (block for block in blocks("python") if "KafkaProducer" in block)
        exec(block.replace("localhost:9092", kafka_server.servers), namespace)  # noqa: S102 - our own page
        namespace["producer"].close()

    found = [event for _, event in sent(log, run)]
    assert found == [
        Document("doc-1", "the quick brown fox"),
        Document("doc-2", {"fox": 2, "dog": 1}),
        Delete("doc-1", "r-1"),
    ]
