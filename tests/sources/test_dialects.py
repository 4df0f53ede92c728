"""Twelve clients and their formats, over a real Redis and a real log: no delete is refused, nothing hostile is lost."""

import sys
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path.append(str(Path(__file__).parent.parent / "service"))
sys.path.append(str(Path(__file__).parent))

from source_pairs import (
    BODY,
    KEY,
    KEY_SCHEMA,
    NEW_KEY,
    NEW_KEY_SCHEMA,
    PAIRS,
    ROW,
    VALUE,
    VALUE_SCHEMA,
    avro,
    framed,
    written,
)  # fmt: skip
from test_ingest import World, recount

from streamtopic.documents.events import LIMITS, Add, Delete, encode_delete
from streamtopic.errors import ComponentUnreachable, InvalidEvent, SettingsError, StateMismatch
from streamtopic.service import assembly
from streamtopic.service.ingest.missed_deletes import remove_missed
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.rejections import rejections, retry
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.settings import Settings, load, write
from streamtopic.sources import Dialect, InputMapping, SchemaRegistry
from streamtopic.state import ForgetKind, ModelSettings
from streamtopic.state.removal import remove_partition
from streamtopic.streams import Message, Record

EVENTS = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
FORMS = {
    "bare": b"5",
    "quoted": b'"5"',
    "number": b'{"id": 5}',
    "text": b'{"id":"5"}',
    "connect": written({"schema": {"type": "struct"}, "payload": {"id": 5}}),
    "avro": avro(KEY, KEY_SCHEMA, {"id": 5}),
    "avro, new schema": avro(NEW_KEY, NEW_KEY_SCHEMA, {"id": "5"}),
}


@pytest.fixture
def schemas(registry):
    """A registry that has the schemas of the pairs."""
    registry.register(VALUE, VALUE_SCHEMA)
    registry.register(KEY, KEY_SCHEMA)
    registry.register(NEW_KEY, NEW_KEY_SCHEMA)
    return registry


def settings_of(given, url):
    """Settings with this input."""
    return Settings(input=given, registry_url=url, registry_username="reader", registry_password="secret")


def dialect_of(given, url):
    """The dialect of settings."""
    found = settings_of(given, url)
    return Dialect(assembly.input_mapping(found), assembly.schema_registry(found))


class Mapped(World):
    """A model with one partition whose records are foreign."""

    def __init__(self, connection, folder, dialect):
        self.dialect = dialect
        super().__init__(connection, folder)

    def ingest(self, partition=0):
        self.settings = ModelSettings(1, 256, limits=LIMITS + self.dialect.mapping.rules)
        return Ingest.open(
            self.connection, self.log, self.topics, partition,
            settings=self.settings, clock=lambda: 1_700_000_001.0, dialect=self.dialect,
        )  # fmt: skip

    def live(self):
        """Ids of the live documents."""
        return sorted(document for ids in self.ingests[0].state.live_ids() for document in ids)

    def in_log(self):
        """Ids of the documents that a count of the log finds."""
        end = self.log.end(self.topics.documents, 0)
        found = documents_in_log(self.log, self.topics.documents, {0: end}, lambda *_: None, dialect=self.dialect)
        return sorted(document.encode() for _, document in found.alive)


def record(key, value, headers=()):
    """A record of the documents topic."""
    return Record("documents", 0, 0, key, value, headers, 0)


@EVENTS
def test_an_add_a_replacement_and_each_delete_count(connection, tmp_path, schemas, pair):
    """The document comes, changes and goes, by its id; no form of a delete is refused, and a recount agrees."""
    world = Mapped(connection, tmp_path, dialect_of(pair.input, schemas.url))
    first, second = (Message(pair.key, pair.add(text), pair.headers) for text in ("one two two", "three four"))
    for value, headers in pair.deletes:
        world.send(first)
        assert world.drain()["added"] == 1
        assert world.live() == world.in_log() == [b"5"]
        assert world.digest() == recount([[(3, {"one": 1, "two": 2})]])
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
        assert world.live() == world.in_log() == []


@EVENTS
def test_hostile_input_is_refused_with_a_reason_and_loses_nothing(connection, tmp_path, schemas, pair):
    """Each is pointed at, ends what its own id held, as everywhere, and other documents stay."""
    world = Mapped(connection, tmp_path, dialect_of(pair.input, schemas.url))
    other = msgpack.packb({"op": "add", "text": "some other words"})
    for value, headers, reason in pair.damaged:
        world.send(Message(b"other", other), Message(pair.key, pair.add("one two"), pair.headers))
        world.drain()
        world.send(Message(pair.key, value, headers))
        assert world.drain() == {"rejected": 1, "deleted_by_refusal": 1}
        pointer = list(rejections(world.log, world.topics))[-1]
        assert (pointer.reason, pointer.document) == (reason, pair.key)
        assert world.live() == world.in_log() == [b"other"]
    outcomes = retry(world.log, world.topics, dialect=world.dialect)
    assert outcomes["retried"] == 0


@pytest.mark.parametrize("later", [b'{"id":"5"}', b"5"])
def test_a_retry_brings_nothing_back_that_was_deleted_under_another_form(connection, tmp_path, later):
    """A refused add is out of date once a later record names its id, by whatever key; other refused adds are sent."""
    world = Mapped(connection, tmp_path, Dialect(InputMapping(format="json", key="id", text=("missing",))))
    keys = [b'{"id": 5}', b'{"id": 6}']
    world.send(*(Message(key, b'{"text": "one two"}') for key in keys))
    assert world.drain() == {"rejected": 2}
    world.send(Message(later, None))
    world.drain()
    end = world.log.end(world.topics.documents, 0)
    corrected = Dialect(InputMapping(format="json", key="id", text=("text",)))
    outcomes = retry(world.log, world.topics, dialect=corrected)
    assert (outcomes["retried"], outcomes["superseded"]) == (1, 1)
    (again,) = world.log.read(world.topics.documents, 0, end)
    assert again.key == keys[1]


def outcome(dialect, one):
    """The event in a record, or its refusal."""
    try:
        return dialect.event(one)
    except InvalidEvent as error:
        return error


@EVENTS
def test_every_prefix_of_a_value_is_an_event_or_refused(schemas, pair):
    """Truncated anywhere, a record is an event or has a reason; no other exception leaves the decoder."""
    dialect = dialect_of(pair.input, schemas.url)
    values = [pair.add("some words and more"), *(value or b"" for value, _ in pair.deletes)]
    for value in values:
        for end in range(len(value) + 1):
            for cut in (value[:end], value[:end] + b"\xff\0"):
                assert isinstance(outcome(dialect, record(pair.key, cut, pair.headers)), Add | Delete | InvalidEvent)


KEYS = {
    b"": "key-missing",
    None: "key-missing",
    b"x" * 513: "key-size",
    b'{"id": "' + b"x" * 513 + b'"}': "key-size",
    b'{"id": "x"' + b" " * 4096 + b"}": "key-size",
    b'{"id": 5': "key-format",
    b"\0\0\0": "key-format",
    framed(99, b"\2"): "key-format",
    framed(KEY, b"\x80"): "key-format",
    b'{"no": 5}': "key-path",
    b'{"id": null}': "key-path",
    b'{"id": 5.5}': "key-type",
    b'{"id": true}': "key-type",
    b'{"id": {"x": 1}}': "key-type",
    b'{"id": "\\ud800"}': "key-encoding",
    b'{"id": "st:heartbeat"}': "key-reserved",
    b'{"id": ""}': "key-size",
    b"\xff": "key-encoding",
}


@pytest.mark.parametrize(("key", "reason"), KEYS.items(), ids=lambda value: repr(value)[:30])
def test_a_key_without_an_id_is_refused_for_it(schemas, key, reason):
    """The reason names what is wrong with the key; such a record names no document."""
    dialect = dialect_of({"format": "confluent-avro", "key": "id"}, schemas.url)
    with pytest.raises(InvalidEvent) as caught:
        dialect.event(record(key, None))
    assert caught.value.reason == reason
    assert dialect.document_of(key) is None


def test_a_key_of_several_fields_needs_a_path(schemas):
    """`*` takes the only field, and says what to set where there are more."""
    dialect = dialect_of({"format": "json", "key": "*"}, schemas.url)
    assert dialect.document(b'{"id": 7}') == b"7"
    with pytest.raises(InvalidEvent, match=r"2 fields, not one: set `input.key`"):
        dialect.document(b'{"id": 7, "shard": 1}')


def row(text="one two"):
    """A value of the forms' own dialect."""
    return avro(VALUE, VALUE_SCHEMA, ROW | {"body": text})


@pytest.fixture
def forms(connection, tmp_path, schemas):
    """A model whose keys have many forms."""
    return Mapped(connection, tmp_path, dialect_of({"format": "confluent-avro", "key": "id", **BODY}, schemas.url))


@pytest.mark.parametrize("name", FORMS)
def test_two_keys_of_one_id_are_one_document(forms, name):
    """An add under one key takes the place of that under another, a delete by either deletes, and a rebuild agrees."""
    others = [key for key in FORMS.values() if key != FORMS[name]]
    for other in others:
        forms.send(Message(other, row("one two")), Message(FORMS[name], row("three four")))
        forms.drain()
        assert forms.live() == forms.in_log() == [b"5"]
        assert forms.digest() == recount([[(2, {"three": 1, "four": 1})]])
        forms.send(Message(other, None, (("request", b"r-1"),)))
        forms.drain()
        assert forms.live() == forms.in_log() == []
    assert all(forget.request == "r-1" for forget in forms.ingests[0].state.forgets.read() if forget.wants_receipt)


def test_a_rebuild_after_a_change_of_the_key_s_schema_finds_no_deleted_document(forms):
    """Once tombstones have left the log as well, no older form of a deleted id is left to be counted."""
    old, new = FORMS["avro"], FORMS["avro, new schema"]
    forms.send(Message(old, row("first words")), Message(new, None), Message(b"9", row("kept words")))
    forms.drain()
    forms.send(Message(b"10", row("last words")))
    assert forms.drain() == {"unchanged": 1, "added": 1}
    records = forms.log.read(forms.topics.documents, 0, 0)
    assert [(one.key, one.value) for one in records[3:4]] == [(old, None)]
    forms.log.compact(forms.topics.documents, tombstones_ms=-10_000)
    left = forms.log.read(forms.topics.documents, 0, forms.log.begin(forms.topics.documents, 0))
    assert old not in {one.key for one in left}
    remove_partition(forms.connection, forms.topics.model, 0)
    forms.ingests = [forms.ingest()]
    forms.drain()
    assert forms.live() == [b"10", b"9"]


def test_a_document_added_again_under_another_key_stays(forms):
    """The service's tombstone for the older key comes behind the new add, and does not take it."""
    old, new = FORMS["avro"], FORMS["avro, new schema"]
    forms.send(Message(old, row("first words")), Message(new, None), Message(new, row("second words")))
    assert forms.drain() == {"added": 2, "deleted": 1}
    assert forms.drain() == {"unchanged": 1}
    assert forms.live() == forms.in_log() == [b"5"]
    forms.log.compact(forms.topics.documents)
    assert forms.in_log() == [b"5"]
    assert remove_missed(forms.ingests[0], forms.log, 1).removed == 0


def test_a_document_added_again_under_the_old_key_keeps_its_record(forms):
    """Where the old key is used again before its tombstone was sent, the tombstone is not sent."""
    old, new = FORMS["number"], FORMS["text"]
    forms.send(Message(old, row("first words")), Message(new, None), Message(old, row("second words")))
    forms.drain()
    assert forms.live() == forms.in_log() == [b"5"]
    assert forms.log.end(forms.topics.documents, 0) == 3


def test_a_crash_before_the_tombstone_sends_it_later_and_no_receipt_before(forms):
    """The note is committed with the deletion, so the next process sends it; until then receipts wait."""
    old, new = FORMS["avro"], FORMS["avro, new schema"]
    forms.send(Message(old, row("first words")), Message(new, None))
    while forms.ingests[0].step().records:
        pass
    assert forms.ingests[0].state.forgets.waits_for_other_forms() == 1
    forms.ingests = [forms.ingest()]
    forms.drain()
    assert forms.ingests[0].state.forgets.waits_for_other_forms() is None
    assert forms.log.read(forms.topics.documents, 0, 2)[0].key == old


def test_a_forged_mark_deletes_its_own_key_and_nothing_else(forms):
    """Whoever writes the service's header deletes as by any tombstone, and counts follow the compacted log."""
    mark = (("st-form", b"1"),)
    forms.send(Message(FORMS["text"], row("first words")), Message(FORMS["number"], None, mark))
    forms.drain()
    assert forms.live() == forms.in_log() == [b"5"]
    forms.send(Message(FORMS["text"], None, mark))
    forms.drain()
    assert forms.live() == forms.in_log() == []
    forms.log.compact(forms.topics.documents)
    assert forms.in_log() == []


KEY_FORMS = [b"%d", b'{"id": %d}', b'{"id": "%d"}']
STEPS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.sampled_from(["add", "other", "delete", "refused", "drain"])),
    min_size=5,
    max_size=16,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_last_event_of_an_id_decides_under_whatever_key(connection, tmp_path_factory, steps):
    """In any history of three keys for each of two ids; and counts follow from what compaction leaves of the log."""
    dialect = Dialect(InputMapping("json", key="id"))
    world = Mapped(connection, tmp_path_factory.mktemp("history"), dialect)
    values = {
        "add": written({"text": "one two"}),
        "other": written({"text": "three four"}),
        "refused": b"{",
        "delete": None,
    }
    live = set()
    for number, form, what in steps:
        if what == "drain":
            world.drain()
            continue
        world.send(Message(KEY_FORMS[form] % number, values[what]))
        document = b"%d" % number
        live = live - {document} | ({document} if what in {"add", "other"} else set())
    # The first round sends tombstones for other keys, the second counts them.
    world.drain()
    world.drain()
    assert world.ingests[0].lag == 0
    assert set(world.live()) == set(world.in_log()) == live
    # Behind the last tombstone, which a compaction leaves where it ends the log.
    world.send(Message(b"last", written({"text": "some words"})))
    world.drain()
    world.log.compact(world.topics.documents, tombstones_ms=-10_000)
    assert set(world.in_log()) == live | {b"last"}
    digest = world.digest()
    remove_partition(connection, world.topics.model, 0)
    world.ingests = [world.ingest()]
    world.drain()
    assert world.digest() == digest


def test_a_plain_delete_of_this_service_works_beside_any_connector(forms):
    """`streamtopic delete` sends the bare id, and means the document of the structured key."""
    forms.send(Message(FORMS["connect"], row()), encode_delete("5", "r-1"))
    assert forms.drain()["deleted"] == 1
    assert forms.live() == []


def test_a_registry_that_is_away_refuses_nothing(connection, tmp_path, schemas):
    """Adds wait for it, deletes before them go through without it, and all is counted once it is back."""
    schemas.away = True
    world = Mapped(connection, tmp_path, dialect_of({"format": "confluent-avro", **BODY}, schemas.url))
    own = msgpack.packb({"op": "add", "text": "some words"})
    world.send(Message(b"1", own), Message(b"1", None), Message(b"2", row()), Message(b"2", None))
    with pytest.raises(ComponentUnreachable, match=r"schema registry at .*it answered 503"):
        world.drain()
    assert world.ingests[0].state.meta.next_offset == 2
    assert world.live() == []
    schemas.away = False
    assert world.drain() == {"added": 1, "deleted": 1}
    assert not list(rejections(world.log, world.topics))
    assert schemas.asked == 3


def test_a_registry_without_the_right_password_refuses_nothing(schemas):
    """A wrong login is the operator's to mend, and no record's fault."""
    schemas.login = "reader:other"
    dialect = dialect_of({"format": "confluent-avro", **BODY}, schemas.url)
    with pytest.raises(ComponentUnreachable, match=r"it answered 401.*user and password"):
        dialect.event(record(b"5", row()))
    schemas.login = "reader:secret"
    assert isinstance(dialect.event(record(b"5", row())), Add)


def test_unknown_numbers_are_asked_for_once_in_a_while(schemas):
    """A flood of records with one unknown number is no flood of requests, and a schema that comes later is found."""
    now = [0.0]
    registry = SchemaRegistry(schemas.url, ticks=lambda: now[0])
    for _ in range(5):
        with pytest.raises(InvalidEvent, match="has no schema 55"):
            registry.value(55, b"\2a")
    assert schemas.asked == 1
    schemas.register(55, "string")
    now[0] = 31.0
    assert registry.value(55, b"\2a") == "a"


TREE = {"type": "record", "name": "Tree", "fields": [{"name": "inner", "type": ["null", "Tree"]}]}
SCHEMAS = {
    "items of no byte": ({"type": "array", "items": "null"}, {}),
    "empty records": ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, {}),
    "a type that holds itself": (TREE, {}),
    "not Avro": ({"type": "object"}, {"schemaType": "JSON"}),
    "references": ("string", {"references": [{"name": "a"}]}),
    "wrong": ({"type": "nothing"}, {}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_without_bounds_is_not_used(schemas, name):
    """By some schemas a few bytes make values without end; their records are refused, and the process lives."""
    schema, others = SCHEMAS[name]
    schemas.register(70, schema, **others)
    with pytest.raises(InvalidEvent) as caught:
        SchemaRegistry(schemas.url).value(70, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")
    assert caught.value.reason == "schema"


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


@pytest.mark.parametrize("value", [-1, 10**400, True, "yesterday", [1], 1e300])
def test_wrong_times_are_refused(value):
    """A time that is none has a reason."""
    dialect = Dialect(InputMapping("json", time="at"))
    with pytest.raises(InvalidEvent) as caught:
        dialect.event(record(b"5", written({"text": "a b", "at": value})))
    assert caught.value.reason == "ts"


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
        dialect = dialect_of(pair.input, "http://127.0.0.1:1")
        event = dialect.event(record(pair.key, pair.add("a b"), pair.headers))
        assert event.timestamp_ms == 1_700_000_000_000, name


def test_counts_of_another_mapping_are_refused(connection, tmp_path):
    """The mapping decides what a record holds, so counts are bound to it; the error names both and the remedy."""
    world = Mapped(connection, tmp_path, Dialect(InputMapping("json")))
    world.dialect = Dialect(InputMapping("json", text=("body",)))
    with pytest.raises(StateMismatch, match=r"input\.text text and not body.*streamtopic rebuild"):
        world.ingest()
    world.dialect = Dialect(InputMapping())
    with pytest.raises(StateMismatch, match=r"input\.format json and not none"):
        world.ingest()


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


CONFLICTS = [
    ({"input": {"text": "body"}}, r"`format` is streamtopic, whose fields are fixed"),
    ({"input": {"format": "json", "key": "id"}, "partitions": 2}, r"partitions = 1; or let the connector"),
    ({"input": {"format": "confluent-avro"}}, r"`registry_url` is not set"),
    ({"registry_password": "secret"}, r"without `registry_username`"),
    ({"input": {"format": "xml"}}, r"`input.format`"),
    ({"input": {"format": "json", "text": "a, b"}}, r"`input.text.0`"),
    ({"input": '{"format": '}, r"not JSON such as"),
    ({"registry_url": "ftp://host"}, r"`registry_url`"),
    ({"registry_url": "http://user:secret@host"}, r"`registry_url`"),
]


@pytest.mark.parametrize(("given", "message"), CONFLICTS)
def test_settings_that_cannot_be_kept_are_refused(given, message):
    """Each error names the setting and the remedy, and no secret."""
    with pytest.raises(SettingsError, match=message) as caught:
        load(given)
    assert "secret@" not in str(caught.value)


def test_an_input_is_written_and_read_again(tmp_path):
    """The table of a file, JSON of a variable, and a file that the program wrote give the same setting."""
    table = '[input]\nformat = "debezium"\nkey = "*"\ntext = "body"\n[input.labels]\n"a b" = "x.y"\n'
    (tmp_path / "one.toml").write_text(table, "utf-8")
    first = load(config=tmp_path / "one.toml")
    write(first, tmp_path / "two.toml")
    as_json = '{"format": "debezium", "key": "*", "text": ["body"], "labels": {"a b": "x.y"}}'
    assert first == load(config=tmp_path / "two.toml") == load({"input": as_json})


def test_own_records_are_not_touched():
    """In the service's own format a record is the same object, and a header of this room means nothing."""
    one = replace(record(b"5", b"x"), headers=(("st-form", b"1"),))
    assert Dialect(InputMapping()).translate(one) is one
