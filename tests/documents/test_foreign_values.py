"""Values of other programs as they really are: encodings, dotted names, flags of databases."""

import pytest
from source_pairs import change, written

from streamtopic.documents.dialects import Dialect, InputMapping
from streamtopic.documents.events import Delete
from streamtopic.errors import InvalidEvent
from streamtopic.streams import Record


def record(key, value):
    """A record of the documents topic."""
    return Record("documents", 0, 3, key, value, (), 1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("text", ["text", ""])
def test_json_in_each_encoding_is_read(encoding, text):
    """Programs on Windows put a mark in front of JSON, and a delete behind it is a delete in every format."""
    dialect = Dialect(InputMapping("json", text=(text,)))
    assert isinstance(dialect.event(record(b"5", '{"op": "delete"}'.encode(encoding))), Delete)
    assert dialect.event(record(b"5", '{"text": "one two", "": "one two"}'.encode(encoding))).length == 2


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


def test_a_text_that_the_database_did_not_send_is_refused():
    """PostgreSQL leaves a long text out of a change that did not touch it, and Debezium's mark of it is no text."""
    dialect = Dialect(InputMapping("debezium", text=("body",)))
    value = written(change("u", "__debezium_unavailable_value"))
    with pytest.raises(InvalidEvent, match="REPLICA IDENTITY FULL") as caught:
        dialect.event(record(b"5", value))
    assert caught.value.reason == "path"


def test_an_envelope_alone_in_a_payload_is_read():
    """Some converters leave out the schema and keep the field that stands beside it."""
    dialect = Dialect(InputMapping("debezium", text=("body",)))
    assert isinstance(dialect.event(record(b"5", written({"payload": change("d", None)}))), Delete)
    assert dialect.event(record(b"5", written({"payload": change("u", "one two")}))).length == 2
    with_column = Dialect(InputMapping("debezium", text=("payload.body",)))
    assert with_column.event(record(b"5", written({"payload": {"body": "one two"}}))).length == 2
