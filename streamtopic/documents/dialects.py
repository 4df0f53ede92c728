"""Records of other programs to the service's own dialect, so that one decoder knows all limits (docs/records.md).

The key is the document id, in every format. The mapping says where a value has its text, its classes, its time and its
people. A delete is found before everything else, and nothing but its key can refuse it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgpack

from streamtopic.documents.corpus import time_ms
from streamtopic.documents.deletes import damaged_delete, fields_ask, headers_ask, holds_nothing, map_asks, unframed
from streamtopic.documents.events import (
    HEARTBEAT_KEY,
    MAX_TIMESTAMP,
    decode_record,
    map_in,
    refuses_alone,
    request_of,
    salt_of,
)
from streamtopic.errors import InvalidEvent
from streamtopic.streams import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.documents.events import Event
    from streamtopic.streams.event_log import Headers

__all__ = ["OWN", "OWN_FORMAT", "Dialect", "InputMapping"]

OWN_FORMAT = "streamtopic"

_WHOLE = ("",)
# The first bytes of the service's own maps in msgpack. No text in UTF-8 and no JSON begins with them.
_OWN_MAPS = range(0x81, 0x90)
_RESERVED = HEARTBEAT_KEY[:3]
# What an operation's field says of a record that deletes, in lower case.
_WORDS = frozenset({"d", "delete", "deleted", "remove", "removed", "tombstone", "erase", "erased", "purge", "purged"})
# Databases without truth values write these.
_DELETES = _WORDS | {"true", "t", "1", "y", "yes"}
# Debezium has this in place of a long value that a change did not touch and the database did not send.
_NOT_SENT = "__debezium_unavailable_value"
_ENVELOPE = {"op", "after"}
# Milliseconds of one unit.
_UNITS = {"s": 1000.0, "ms": 1.0, "us": 0.001}

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InputMapping:
    """How a foreign record makes a document. A path is the names of fields within each other, with dots between.

    format: a value of the setting `input.format`.
    text: paths of the text; several make one text of several lines; "" is the whole value.
    labels: (task, path of its class) pairs.
    time: path of the producer's time; None for the time that the format itself has, if any.
    time_unit: unit of a time that is a number: `s`, `ms` or `us`.
    operation: path of the field that says whether the record deletes; None for the format's own rules.
    subject: path of the person that a document is about; None without one.
    """

    format: str = OWN_FORMAT
    text: tuple[str, ...] = ("text",)
    labels: tuple[tuple[str, str], ...] = ()
    time: str | None = None
    time_unit: str = "ms"
    operation: str | None = None
    subject: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether records are in the service's own dialect, so that nothing is translated."""
        return self.format == OWN_FORMAT

    @property
    def rules(self) -> str:
        """The mapping as the state in Redis keeps it with the limits of records; "" for the own dialect.

        Counts that were made under another mapping are other counts, so a state is bound to its mapping.
        """
        if self.is_own:
            return ""
        named = {
            "format": self.format,
            "text": " ".join(self.text),
            "time": self.time,
            "time_unit": self.time_unit,
            "operation": self.operation,
            "subject": self.subject,
        }
        labels = {f"labels.{task}": path for task, path in self.labels}
        return "".join(f",input.{name}={value or ''}" for name, value in (named | labels).items())


@dataclass(frozen=True, slots=True)
class _Row:
    """What a record says of its document.

    fields: of the document; a text if the value is nothing else.
    time: the format's own time, in milliseconds or as text; None without one.
    """

    fields: object
    time: object = None


class _Deletes(Exception):
    """A record is a delete. fields: of its map, where a request may be."""

    def __init__(self, fields: Fields | None = None) -> None:
        super().__init__()
        self.fields = fields or {}


class Dialect:
    """Reads records as the mapping of a model says."""

    def __init__(self, mapping: InputMapping) -> None:
        self.mapping = mapping

    def event(self, record: Record) -> Event:
        """Return the event in a record. Raises InvalidEvent, and no other exception."""
        return decode_record(self.translate(record))

    @refuses_alone
    def translate(self, record: Record) -> Record:
        """Return the same record in the service's own dialect. Raises InvalidEvent, and no other exception."""
        value = record.value
        if self.mapping.is_own or value is None or (record.key or b"").startswith(_RESERVED):
            return record
        if value and value[0] in _OWN_MAPS:
            return record
        try:
            row = self._row(value, record)
        except _Deletes as asked:
            headers = (*record.headers, *_receipt_headers(asked.fields))
            return replace(record, value=None, headers=headers)
        return replace(record, value=msgpack.packb(self._add(row)))

    def read(self, records: Sequence[Record]) -> tuple[Sequence[Record], Mapping[int, InvalidEvent]]:
        """Return the same records in the service's own dialect, and by their numbers why some are refused.

        A refused record has no value any more.
        """
        if self.mapping.is_own:
            return records, {}
        found = list[Record]()
        refused = dict[int, InvalidEvent]()
        for number, record in enumerate(records):
            try:
                found.append(self.translate(record))
            except InvalidEvent as error:
                refused[number] = error
                found.append(replace(record, value=None))
        return found, refused

    def _row(self, value: bytes, record: Record) -> _Row:
        """Return what the value of a record says of its document.

        Raises _Deletes for a delete, InvalidEvent for a value that says nothing.
        """
        content = unframed(value)
        if holds_nothing(content) or headers_ask(record.headers):
            raise _Deletes
        if self.mapping.text == _WHOLE:
            text = _whole_text(content)
            if text is not None:
                return _Row(text, _time_of_event(record))
        fields = _fields(content)
        if fields.keys() == {"schema", "payload"} or self._is_lone_change(fields):
            fields = _payload(fields)
        if self._asks(fields):
            raise _Deletes(fields)
        if self.mapping.format == "cloudevents":
            return _of_event(fields, record)
        if self.mapping.format == "debezium" and fields.keys() >= _ENVELOPE:
            return _of_change(fields)
        return _Row(fields)

    def _is_lone_change(self, fields: Fields) -> bool:
        """Return whether a map is a change of Debezium in `payload`, without its schema."""
        if self.mapping.format == "json" or fields.keys() != {"payload"}:
            return False
        payload = fields["payload"]
        return payload is None or (isinstance(payload, dict) and "op" in payload)

    def _asks(self, fields: Fields) -> bool:
        """Return whether a map is a delete: by the field that `operation` names, else by the rules of the format."""
        path = self.mapping.operation
        said = None
        if path is not None:
            said = _at_path(fields, path)
            if said is None:
                said = _at_path(fields.get("after"), path)
        if said is not None:
            return _names_a_delete(said)
        return map_asks(fields) if self.mapping.format == "cloudevents" else fields_ask(fields)

    def _add(self, row: _Row) -> Fields:
        """Return the add that a row makes. Raises InvalidEvent for a row without a usable text, class or time."""
        mapping = self.mapping
        fields: dict[str, Any] = {"op": "add", "text": self._text(row.fields)}
        if labels := self._labels(row.fields):
            fields["labels"] = labels
        if mapping.time is None:
            written_ms = _milliseconds(row.time, "ms")
        else:
            written_ms = _milliseconds(_at_path(row.fields, mapping.time), mapping.time_unit)
        if written_ms is not None:
            fields["ts"] = written_ms
        if subjects := self._subjects(row.fields):
            fields["subjects"] = subjects
        return fields

    def _text(self, row: object) -> str:
        """Return the text of a row. Raises InvalidEvent if there is none."""
        paths = self.mapping.text
        if paths == _WHOLE:
            found = [row.get("", row) if isinstance(row, dict) else row]
        else:
            found = [_at_path(row, path) for path in paths]
        parts = [part for part in found if part is not None]
        if not parts:
            named = "`, `".join(paths)
            raise InvalidEvent("path", f"the record has no text at `{named}`: set `input.text` to the path of the text")
        for part in parts:
            if not isinstance(part, str):
                raise InvalidEvent("text-type", f"the text is a {type(part).__name__}, not a string")
            if part == _NOT_SENT:
                raise InvalidEvent(
                    "path", "Debezium did not get the text from the database: set REPLICA IDENTITY FULL for its table"
                )
        return _encodable("\n".join(map(str, parts)))

    def _labels(self, row: object) -> dict[str, str]:
        """Return the classes that a row has, by task; a task whose field is missing or null has none.

        Raises InvalidEvent for a class that is not plain.
        """
        found = {}
        for task, path in self.mapping.labels:
            value = _at_path(row, path)
            if value is None:
                continue
            name = _plain_text(value)
            if name is None:
                kind = type(value).__name__
                raise InvalidEvent("labels", f"the class at path `{path}` is a {kind}, not text or a number")
            found[task] = name
        return found

    def _subjects(self, row: object) -> list[str]:
        """Return the people that a document is about, [] if the mapping names no field of them.

        Raises InvalidEvent for other values than texts and numbers.
        """
        path = self.mapping.subject
        found = None if path is None else _at_path(row, path)
        if found is None:
            return []
        named = found if isinstance(found, list) else [found]
        # Null is nobody, alone and in a list.
        people = [_plain_text(one) for one in named if one is not None]
        if None in people:
            raise InvalidEvent("subjects", f"a subject at path `{path}` is neither text nor a number")
        return [name for name in people if name is not None]


OWN = Dialect(InputMapping())
"""The service's own dialect: records are as `events` reads them."""


def _fields(content: bytes) -> Fields:
    """Return the map in a value. Raises _Deletes for a damaged delete, InvalidEvent for other bytes."""
    try:
        return map_in(content)
    except InvalidEvent:
        fields = damaged_delete(content)
        if fields is None:
            raise
        raise _Deletes(fields) from None


def _names_a_delete(said: object) -> bool:
    """Return whether the value of an operation's field says that the record deletes."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.strip().lower() in _DELETES


def _whole_text(content: bytes) -> str | None:
    """Return the text that a whole value is; None for a map in JSON, which may be an envelope or a delete.

    Raises InvalidEvent for bytes that are not UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if _is_map(content):
            return None
        raise InvalidEvent("format", "the value is not UTF-8, and `input.text` says that it is the text") from None
    if text.lstrip()[:1] == "{":
        return None if _is_map(content) else text
    # Serializers of JSON put a text in quotes, and plain ones do not.
    if text[:1] != '"':
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, str) else text


def _is_map(content: bytes) -> bool:
    """Return whether a value is a map in JSON, or a delete that was one before it was damaged."""
    try:
        map_in(content)
    except InvalidEvent:
        return damaged_delete(content) is not None
    return True


def _payload(fields: Fields) -> Fields:
    """Return the payload, without the schema that Kafka Connect writes. Raises _Deletes for null."""
    payload = fields["payload"]
    if payload is None or payload == {}:
        raise _Deletes(fields)
    return payload if isinstance(payload, dict) else _wrapped(payload)


def _wrapped(value: object) -> Fields:
    """Return a value that is not a map as one field, which `input.text` names by "" alone."""
    return {"": value}


def _of_event(fields: Fields, record: Record) -> _Row:
    """Return the row of a CloudEvent, structured or binary. Raises InvalidEvent for one without data."""
    if "specversion" not in fields:
        return _Row(fields, _time_of_event(record))
    return _Row(_data_of(fields), fields.get("time"))


def _time_of_event(record: Record) -> str | None:
    """Return the time of a CloudEvent in binary mode, None for another record."""
    found = record.header("ce_time")
    return None if found is None else found.decode(errors="replace")


def _of_change(fields: Fields) -> _Row:
    """Return the row of a change that Debezium captured. Raises _Deletes, and InvalidEvent for other events."""
    row = fields["after"]
    if row is None:
        raise _Deletes(fields)
    # The connector for MongoDB writes the row as a text of JSON.
    if isinstance(row, str):
        row = map_in(row.encode(errors="replace"))
    if not isinstance(row, dict):
        raise InvalidEvent("path", f"`after` is a {type(row).__name__}, not the row")
    return _Row(row, fields.get("ts_ms"))


def _data_of(fields: Fields) -> object:
    """Return the data of a structured CloudEvent. Raises InvalidEvent if it has none."""
    if "data" in fields:
        return fields["data"]
    packed = fields.get("data_base64")
    if not isinstance(packed, str):
        raise InvalidEvent("path", "the CloudEvent has no `data`")
    try:
        content = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidEvent("format", "`data_base64` of the CloudEvent is not base64") from None
    text = _whole_text(content)
    return map_in(content) if text is None else text


def _receipt_headers(fields: Fields) -> Headers:
    """Return the request and salt in the map of a delete as headers, if they can be used."""
    found = list[tuple[str, bytes]]()
    for name, usable in (("request", request_of), ("salt", salt_of)):
        value = fields.get(name)
        content = value.encode(errors="replace") if isinstance(value, str) else value
        if isinstance(content, bytes) and usable(((name, content),)):
            found.append((name, content))
    return tuple(found)


def _at_path(fields: object, path: str) -> object:
    """Return the value at a path, None if there is none.

    fields: a value as JSON has it.
    path: names of fields with dots between. A field whose own name has the dots is found as well.
    """
    if not isinstance(fields, dict):
        return None
    if path in fields:
        return fields[path]
    # A name before the last may have dots as well. Each step goes into a field that is there, so the record's own size
    # bounds the search.
    for dot in re.finditer(r"\.", path):
        found = _at_path(fields.get(path[: dot.start()]), path[dot.end() :])
        if found is not None:
            return found
    return None


def _milliseconds(value: object, unit: str) -> int | None:
    """Return a producer's time as whole milliseconds since 1970; None for None.

    value: a number in `unit`, or a text of ISO 8601. A time without a zone is in UTC.
    Raises InvalidEvent for other values, and for times that the service does not take.
    """
    # Not True, which is 1, and no whole number that is too large for a double.
    if isinstance(value, float) or (type(value) is int and abs(value) <= 1000 * MAX_TIMESTAMP):
        value *= _UNITS[unit]
    try:
        return time_ms(value)
    except ValueError:
        raise InvalidEvent(
            "ts", f"the time is neither a number of {unit} from 1970 on nor ISO 8601: check `input.time_unit`"
        ) from None


def _plain_text(value: object) -> str | None:
    """Return a text, a number or a truth value as text, None for other values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _encodable(str(value)) if isinstance(value, str | int | float) else None


def _encodable(text: str) -> str:
    """Return a text whose halves of surrogate pairs, which JSON can write and UTF-8 cannot, are question marks."""
    return text.encode(errors="replace").decode()
