"""Ten clients and their formats, over a real Redis and a real log: no delete is refused, nothing hostile is lost."""

import msgpack
import pytest
from source_pairs import PAIRS, written
from test_ingest import opened, recount

from streamtopic.documents.dialects import Dialect, InputMapping
from streamtopic.documents.events import LIMITS
from streamtopic.errors import InvalidEvent, StateMismatch
from streamtopic.service import assembly
from streamtopic.service.ingest.rejections import rejections
from streamtopic.settings import Settings, load, write
from streamtopic.state import ForgetKind, ModelSettings
from streamtopic.streams import Message, Record

EVENTS = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def dialect_of(given):
    """The dialect of this input."""
    return Dialect(assembly.input_mapping(Settings(input=given)))


def mapped(connection, folder, dialect):
    """Return a model with one partition whose records are foreign."""
    return opened(connection, folder, dialect=dialect, limits=LIMITS + dialect.mapping.rules)


def record(key, value, headers=()):
    """A record of the documents topic."""
    return Record("documents", 0, 0, key, value, headers, 0)


@EVENTS
def test_an_add_a_replacement_and_each_delete_count(connection, tmp_path, pair):
    """The document comes, changes and goes, by its id; no form of a delete is refused, and a recount agrees."""
    world = mapped(connection, tmp_path, dialect_of(pair.input))
    first, second = (Message(pair.key, pair.add(text), pair.headers) for text in ("one two two", "three four"))
    for value, headers in pair.deletes:
        world.send(first)
        assert world.drain()["added"] == 1
        assert world.live() == {"5"}
        assert world.counted() == world.recounted() == recount([[(3, {"one": 1, "two": 2})]])
        world.send(second)
        assert world.drain()["replaced"] == 1
        labels = {} if pair is PAIRS["strings"] else {"section": "sport"}
        assert world.ingests[0].state.documents([b"5"])[b"5"].labels == labels
        asked = (("request", b"r-1"), ("salt", b"s" * 20))
        world.send(Message(pair.key, value, headers + asked))
        assert world.drain() == {"deleted": 1}
        forget = world.ingests[0].state.forgets.read()[-1]
        assert (forget.document, forget.kind, forget.request, forget.salt) == (
            b"5", ForgetKind.DELETED, "r-1", b"s" * 20,
        )  # fmt: skip
        assert world.live() == set()


@EVENTS
def test_hostile_input_is_refused_with_a_reason_and_loses_nothing(connection, tmp_path, pair):
    """Each is pointed at, ends what its own id held, as everywhere, and other documents stay."""
    world = mapped(connection, tmp_path, dialect_of(pair.input))
    other = msgpack.packb({"op": "add", "text": "some other words"})
    for value, headers, reason in pair.damaged:
        world.send(Message(b"other", other), Message(pair.key, pair.add("one two"), pair.headers))
        world.drain()
        world.send(Message(pair.key, value, headers))
        assert world.drain() == {"rejected": 1, "deleted_by_refusal": 1}
        pointer = list(rejections(world.log, world.topics))[-1]
        assert (pointer.reason, pointer.document) == (reason, pair.key)
        assert world.live() == {"other"}


TIMES = [
    (1_700_000_000, "s", 1_700_000_000_000),
    (1_700_000_000_123, "ms", 1_700_000_000_123),
    (1_700_000_000_123_456, "us", 1_700_000_000_123),
    ("2023-11-14T22:13:20Z", "ms", 1_700_000_000_000),
    ("2023-11-14T22:13:20", "ms", 1_700_000_000_000),
]


@pytest.mark.parametrize(("value", "unit", "expected"), TIMES)
def test_times_are_milliseconds(value, unit, expected):
    """Numbers of three units, and ISO 8601 with and without a zone."""
    dialect = Dialect(InputMapping("json", time="at", time_unit=unit))
    assert dialect.event(record(b"5", written({"text": "a b", "at": value}))).timestamp_ms == expected


def test_several_paths_make_one_text():
    """Title and body are one document; one of them may be missing, and names may have dots of their own."""
    dialect = Dialect(InputMapping("json", text=("meta.title", "a.b")))
    event = dialect.event(record(b"5", written({"meta": {"title": "big news"}, "a.b": "of today"})))
    assert event.passages[0][1] == {"big": 1, "news": 1, "of": 1, "today": 1}
    assert dialect.event(record(b"5", written({"a": {"b": "of today"}}))).length == 2


def test_a_captured_change_without_a_time_path_has_the_time_of_the_capture():
    """Debezium's ts_ms and a CloudEvent's time are the document's time, unless a path names another."""
    for name in ("Debezium, with schemas", "CloudEvents, binary", "CloudEvents, structured"):
        pair = PAIRS[name]
        dialect = dialect_of(pair.input)
        event = dialect.event(record(pair.key, pair.add("a b"), pair.headers))
        assert event.timestamp_ms == 1_700_000_000_000, name


def test_counts_of_another_mapping_are_refused(connection, tmp_path):
    """The mapping decides what a record holds, so counts are bound to it; the error names both and the remedy."""
    world = mapped(connection, tmp_path, Dialect(InputMapping("json")))
    body = InputMapping("json", text=("body",))
    for mapping, why in (
        (body, r"input\.text text and not body.*streamtopic rebuild"),
        (InputMapping(), "json and not none"),
    ):
        settings = ModelSettings(1, 256, limits=LIMITS + mapping.rules)
        with pytest.raises(StateMismatch, match=why):
            world.ingest(dialect=Dialect(mapping), settings=settings)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"some words", {"some": 1, "words": 1}),
        (b'"some words"', {"some": 1, "words": 1}),
        (b'{"schema": {"type": "string"}, "payload": "some words"}', {"some": 1, "words": 1}),
        (b'"Quoted" words', {"quoted": 1, "words": 1}),
        (b"{some words} in braces", {"some": 1, "words": 1, "in": 1, "braces": 1}),
        (b"{" + b"[" * 100_000 + b" words", {"words": 1}),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_whole_value_is_a_text(value, words):
    """As a string serializer and a JSON serializer write it, and where it only looks like JSON."""
    assert dict(Dialect(InputMapping("json", text=("",))).event(record(b"5", value)).passages[0][1]) == words


def test_labels_and_subjects_are_plain_values():
    """Numbers and truth values are written as JSON has them, null is none, and lists are refused with their path."""
    mapping = InputMapping("json", labels=(("big", "size"), ("new", "is.new"), ("none", "none")), subject="people")
    dialect = Dialect(mapping)
    fields = {"text": "a b", "size": 7, "is": {"new": True}, "none": None, "people": ["ann", 7]}
    assert dialect.event(record(b"5", written(fields))).labels == {"big": "7", "new": "true"}
    assert msgpack.unpackb(dialect.translate(record(b"5", written(fields))).value)["subjects"] == ["ann", "7"]
    for name, reason in (("size", "labels"), ("people", "subjects")):
        with pytest.raises(InvalidEvent) as caught:
            dialect.event(record(b"5", written(fields | {name: {"a": 1}})))
        assert caught.value.reason == reason


def test_an_input_is_written_and_read_again(tmp_path):
    """The table of a file, JSON of a variable, and a file that the program wrote give the same setting."""
    table = '[input]\nformat = "debezium"\ntext = "body"\n[input.labels]\n"a b" = "x.y"\n'
    (tmp_path / "one.toml").write_text(table, "utf-8")
    first = load(config=tmp_path / "one.toml")
    write(first, tmp_path / "two.toml")
    as_json = '{"format": "debezium", "text": ["body"], "labels": {"a b": "x.y"}}'
    assert first == load(config=tmp_path / "two.toml") == load({"input": as_json})


@pytest.mark.parametrize("value", [-1, 10**400, True, "yesterday", [1], 1e300])
def test_wrong_times_are_refused(value):
    """A time that is none has a reason."""
    dialect = Dialect(InputMapping("json", time="at"))
    with pytest.raises(InvalidEvent) as caught:
        dialect.event(record(b"5", written({"text": "a b", "at": value})))
    assert caught.value.reason == "ts"
