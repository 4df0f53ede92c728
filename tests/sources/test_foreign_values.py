"""Values of other programs as they really are: encodings, types of Avro, flags of databases, answers of registries."""

import json
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path.append(str(Path(__file__).parent))

from source_pairs import ROW, VALUE, VALUE_SCHEMA, avro, change, written

from streamtopic.documents.events import Add, Delete
from streamtopic.errors import ComponentUnreachable, InvalidEvent
from streamtopic.sources import Dialect, InputMapping, SchemaRegistry
from streamtopic.streams import Record


def record(key, value):
    """A record of the documents topic."""
    return Record("documents", 0, 3, key, value, (), 1)


def avro_dialect(registry, **mapping):
    """The dialect of rows in Avro whose schemas are in the registry."""
    return Dialect(InputMapping("confluent-avro", **({"text": ("body",)} | mapping)), SchemaRegistry(registry.url))


@pytest.fixture
def schemas(registry):
    """A registry that has the schema of rows."""
    registry.register(VALUE, VALUE_SCHEMA)
    return registry


def row():
    """A row in Avro."""
    return avro(VALUE, VALUE_SCHEMA, ROW | {"body": "one two"})


@pytest.mark.parametrize("body", [b"<html>no such page</html>", b'{"error_code": 404}', b"", b"[" * 100_000])
def test_a_404_that_is_not_the_registry_s_own_word_refuses_nothing(schemas, body):
    """A proxy, or a server under a wrong address, answers 404 for every schema, and each refusal removes a document."""
    schemas.other = 404, body
    dialect = avro_dialect(schemas)
    with pytest.raises(ComponentUnreachable, match=r"it answered 404.*check `registry_url`"):
        dialect.event(record(b"5", row()))
    schemas.other = None
    assert isinstance(dialect.event(record(b"5", row())), Add)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"<html>", b"\xff", b""], ids=lambda body: repr(body)[:10])
def test_an_answer_that_is_not_json_refuses_nothing(schemas, body):
    """Rubbish of whatever form is a registry that is away, and not a fault of the record."""
    schemas.other = 200, body
    dialect = avro_dialect(schemas)
    with pytest.raises(ComponentUnreachable, match="schema registry at"):
        dialect.event(record(b"5", row()))


def logical(plain, name, **others):
    """A type of Avro with a meaning beside its form."""
    return {"type": plain, "logicalType": name, **others}


def avro_row(schemas, kind, value, name="other"):
    """A row in Avro with a text, and one more field of this type."""
    fields = [{"name": "body", "type": "string"}, {"name": name, "type": kind}, {"name": "__deleted", "type": "string"}]
    schema = {"type": "record", "name": "Wide", "fields": fields}
    schemas.register(80, schema)
    return lambda deleted: avro(80, schema, {"body": "one two", name: value, "__deleted": deleted})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (logical("long", "timestamp-millis"), 2**60),
        (logical("long", "timestamp-micros"), -(2**62)),
        (logical("long", "local-timestamp-millis"), 2**60),
        (logical("int", "date"), 2**31 - 1),
        (logical("string", "uuid"), "not one"),
        (["null", {"type": "array", "items": logical("int", "time-millis")}], [2**31 - 1]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_field_without_a_value_in_python_refuses_no_record(schemas, kind, value):
    """Infinite times of a database stand beside the text, and neither an add nor a delete is lost by them."""
    write = avro_row(schemas, kind, value)
    dialect = avro_dialect(schemas)
    assert isinstance(dialect.event(record(b"5", write("true"))), Delete)
    assert dialect.event(record(b"5", write("false"))).length == 2


UUID_TEXT = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (logical("string", "uuid"), UUID_TEXT, UUID_TEXT),
        (logical("bytes", "decimal", precision=20, scale=0), Decimal(77), "77"),
        (logical("int", "date"), date(2020, 1, 2), "2020-01-02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "A"),
        (["null", "long"], 2**62, str(2**62)),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_values_with_a_meaning_name_people_and_classes(schemas, kind, value, text):
    """A person's number may be a UUID or a decimal of the database, and is the same text in every record."""
    value_of = avro_row(schemas, kind, value, "who")
    event = avro_dialect(schemas, subject="who", labels=(("task", "who"),)).event(record(b"5", value_of("false")))
    assert (event.subjects, event.labels) == ((text,), {"task": text})


def test_a_date_and_a_decimal_are_times(schemas):
    """A day begins at midnight in UTC; a decimal is a number of the unit."""
    dialect = avro_dialect(schemas, time="at")
    day = avro_row(schemas, logical("int", "date"), date(2020, 1, 2), "at")("false")
    assert dialect.event(record(b"5", day)).timestamp_ms == 1_577_923_200_000
    other = avro_dialect(schemas, time="at")
    number = avro_row(schemas, logical("bytes", "decimal", precision=20, scale=0), Decimal(7), "at")("false")
    assert other.event(record(b"5", number)).timestamp_ms == 7


def test_a_decimal_key_without_a_fraction_is_a_whole_number(schemas):
    """A table may number its rows by decimals; the id is the one of the same number elsewhere."""
    schema = {
        "type": "record",
        "name": "K",
        "fields": [{"name": "id", "type": logical("bytes", "decimal", precision=9)}],
    }
    schemas.register(81, schema)
    dialect = avro_dialect(schemas, key="*")
    assert dialect.document(avro(81, schema, {"id": Decimal(5)})) == b"5"
    schema["fields"][0]["type"]["scale"] = 1
    schemas.register(82, schema)
    with pytest.raises(InvalidEvent, match="Decimal, not text or a whole number"):
        dialect.document(avro(82, schema, {"id": Decimal("5.5")}))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("text", ["text", ""])
def test_json_in_each_encoding_is_read(encoding, text):
    """Programs on Windows put a mark in front of JSON, and a delete behind it is a delete in every format."""
    dialect = Dialect(InputMapping("json", text=(text,)))
    assert isinstance(dialect.event(record(b"5", '{"op": "delete"}'.encode(encoding))), Delete)
    assert dialect.event(record(b"5", '{"text": "one two", "": "one two"}'.encode(encoding))).length == 2


@pytest.mark.parametrize("front", [b" ", b"\r\n\t", b"\xef\xbb\xbf\n"])
def test_blanks_in_front_of_json_do_not_matter(front):
    """JSON may begin with blanks: a row behind them is a row, and a list says that it is a list."""
    dialect = Dialect(InputMapping("json"))
    assert dialect.event(record(b"5", front + written({"text": "one two"}))).length == 2
    with pytest.raises(InvalidEvent, match="a list, not a map"):
        dialect.event(record(b"5", front + written([{"text": "one two"}])))


@pytest.mark.parametrize(
    "fields",
    [{"a": {"b": {"c": "x y"}}}, {"a.b.c": "x y"}, {"a": {"b.c": "x y"}}, {"a.b": {"c": "x y"}, "a": {"b": None}}],
    ids=str,
)
def test_any_name_of_a_path_may_have_dots(fields):
    """A name of its own with dots is found at the end of a path, and before it."""
    dialect = Dialect(InputMapping("json", text=("a.b.c",)))
    assert dialect.event(record(b"5", written(fields))).length == 0
    assert dialect.event(record(b"5", written(fields).replace(b"x y", b"ab cd"))).length == 2


@pytest.mark.parametrize("said", ["DELETE", " d ", True, 1, "1", "Y", "erase", "Purged", "t"])
def test_flags_of_databases_are_deletes(said):
    """A row that its table calls deleted is deleted, also where the database has no truth values."""
    dialect = Dialect(InputMapping("json", operation="gone"))
    assert isinstance(dialect.event(record(b"5", written({"text": "one two", "gone": said}))), Delete)


@pytest.mark.parametrize("said", [False, 0, "0", "n", "upsert", "", None])
def test_other_flags_are_not_deletes(said):
    """A row that is there stays."""
    dialect = Dialect(InputMapping("json", operation="gone"))
    assert isinstance(dialect.event(record(b"5", written({"text": "one two", "gone": said}))), Add)


def test_a_text_that_the_database_did_not_send_is_refused():
    """PostgreSQL leaves a long text out of a change that did not touch it, and Debezium's mark of it is no text."""
    dialect = Dialect(InputMapping("debezium", text=("body",)))
    value = written(change("u", "__debezium_unavailable_value"))
    with pytest.raises(InvalidEvent, match="REPLICA IDENTITY FULL") as caught:
        dialect.event(record(b"5", value))
    assert caught.value.reason == "path"


def test_a_row_of_mongodb_is_a_text_of_json():
    """Debezium writes documents of MongoDB as text within its envelope."""
    dialect = Dialect(InputMapping("debezium", text=("body",)))
    value = change("c", "one two")
    assert dialect.event(record(b"5", written(value | {"after": json.dumps(value["after"])}))).length == 2
    with pytest.raises(InvalidEvent):
        dialect.event(record(b"5", written(value | {"after": '{"body": '})))


@pytest.mark.parametrize("name", ["debezium", "confluent-json"])
def test_an_envelope_alone_in_a_payload_is_read(name):
    """Some converters leave out the schema and keep the field that stands beside it."""
    dialect = Dialect(InputMapping(name, text=("body",)))
    assert isinstance(dialect.event(record(b"5", written({"payload": change("d", None)}))), Delete)
    assert dialect.event(record(b"5", written({"payload": change("u", "one two")}))).length == 2
    with_column = Dialect(InputMapping(name, text=("payload.body",)))
    assert with_column.event(record(b"5", written({"payload": {"body": "one two"}}))).length == 2


def test_null_in_a_list_of_people_is_nobody():
    """As a null alone: the other people are kept."""
    dialect = Dialect(InputMapping("json", subject="people"))
    event = dialect.event(record(b"5", written({"text": "one two", "people": ["ann", None, "bob"]})))
    assert event.subjects == ("ann", "bob")
