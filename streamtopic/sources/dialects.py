"""A foreign record to the same record in the service's own dialect, so that one decoder knows all limits.

key     the document id (record_keys.py)
value   an add as a producer of this service writes it, or nothing for a delete

A delete is found before everything else, and nothing but its key can refuse it. A record that is refused here is
refused for itself alone, except for a schema that nobody has registered yet.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgpack

from streamtopic.documents.deletes import fields_ask, headers_ask, holds_nothing, map_asks, salvaged, unframed
from streamtopic.documents.events import HEARTBEAT_KEY, decode_record, document_of, map_in, request_of, salt_of
from streamtopic.documents.suppression import SuppressionKey, is_suppression_key
from streamtopic.errors import ComponentUnreachable, InvalidEvent
from streamtopic.sources.input_mapping import InputMapping, at_path, labels_of, milliseconds, plain_text
from streamtopic.sources.record_keys import FRAME, frame_of, id_in
from streamtopic.streams import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.documents.events import Event
    from streamtopic.sources.record_keys import Decoder
    from streamtopic.streams.event_log import Headers

__all__ = ["OWN", "Dialect", "Translated"]

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

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Translated:
    """Records of one partition in the service's own dialect.

    records: (k,), the first ones of those that were read. The key of each is its document id, b"" without one.
    refused: number of a record to the reason why it is refused.
    forms: (k,), the key of each record as it stood in the log; () where a key has one form only.
    """

    records: Sequence[Record]
    refused: Mapping[int, InvalidEvent] = field(default_factory=dict)
    forms: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """What a record says of its document.

    fields: of the document; a text where the value is nothing else.
    time: the format's own time, in milliseconds or as text; None without one.
    """

    fields: object
    time: object = None


class _Deletes(Exception):
    """A record is a delete. fields: of its map, where a request may stand."""

    def __init__(self, fields: Fields | None = None) -> None:
        super().__init__()
        self.fields = fields or {}


class Dialect:
    """Reads records as the mapping says.

    mapping: of the model.
    decoder: reads values whose schema is in a registry; None for formats without one.
    suppression: key of the model's suppressions; None for a model without any.
    """

    def __init__(
        self, mapping: InputMapping, decoder: Decoder | None = None, suppression: SuppressionKey | None = None
    ) -> None:
        self.mapping = mapping
        self.suppression = suppression
        self._decoder = decoder
        self._is_own = mapping.is_own

    @property
    def many_forms(self) -> bool:
        """Whether several keys may name one document."""
        return bool(self.mapping.key)

    def is_suppression(self, key: bytes | None) -> bool:
        """Return whether a record's key belongs to suppressions."""
        return self.suppression is not None and is_suppression_key(key)

    def document(self, key: bytes | None) -> bytes:
        """Return the document id in a key. Raises InvalidEvent for a key without one, ComponentUnreachable."""
        if not self.many_forms or (key or b"").startswith(_RESERVED):
            return key or b""
        return id_in(key, self.mapping.key, self._decoder)

    def document_of(self, key: bytes | None) -> str | None:
        """Return the document id in a key; None for the service's own keys, and for a key that is not an id.

        Raises ComponentUnreachable.
        """
        if self.is_suppression(key):
            return None
        try:
            return document_of(self.document(key))
        except InvalidEvent:
            return None

    def event(self, record: Record, *, subjects: bool = True) -> Event:
        """Return the event in a record. Raises InvalidEvent, and ComponentUnreachable where a schema is needed.

        subjects: as of `events.decode`.
        """
        return decode_record(self.translate(record), subjects=subjects, suppression=self.suppression)

    def translate(self, record: Record) -> Record:
        """Return the same record in the service's own dialect. Raises as `event`."""
        if self._is_own:
            return record
        document = self.document(record.key)
        value = record.value
        own = value is not None and value[:1] != b"" and value[0] in _OWN_MAPS
        if value is None or own or document.startswith(_RESERVED):
            return replace(record, key=document)
        try:
            row = self._row(value, record.headers)
            content = msgpack.packb(self._add(row))
        except _Deletes as asked:
            headers = (*record.headers, *_receipt_headers(asked.fields))
            return replace(record, key=document, value=None, headers=headers)
        return replace(record, key=document, value=content)

    def read(self, records: Sequence[Record]) -> Translated:
        """Translate records of one partition, in order.

        Where a registry does not answer, the records before the first that needs it are returned. Raises
        ComponentUnreachable where that is the very first.
        """
        if self._is_own:
            return Translated(records)
        found = list[Record]()
        refused = dict[int, InvalidEvent]()
        for record in records:
            try:
                found.append(self.translate(record))
            except InvalidEvent as error:
                refused[len(found)] = error
                found.append(replace(record, key=self._known(record.key), value=None))
            except ComponentUnreachable:
                if not found:
                    raise
                break
        forms = [record.key or b"" for record in records[: len(found)]] if self.many_forms else ()
        return Translated(found, refused, forms)

    def _known(self, key: bytes | None) -> bytes:
        """Return the document id of a refused record, b"" where its key has none."""
        name = self.document_of(key)
        return b"" if name is None else name.encode()

    def _row(self, value: bytes, headers: Headers) -> _Row:
        """Return what a value says of its document.

        Raises _Deletes for a delete, InvalidEvent for a value that says nothing, ComponentUnreachable.
        """
        content = unframed(value)
        binary = self._is_avro(value)
        # A row in Avro may have the bytes of blanks, so only its schema says what it holds.
        nothing = not binary and holds_nothing(content)
        if nothing or headers_ask(headers):
            raise _Deletes
        if self.mapping.text == _WHOLE and not binary:
            text = _whole_text(content)
            if text is not None:
                return _Row(text, _header(headers, "ce_time"))
        fields = self._fields(value, content)
        if fields.keys() == {"schema", "payload"} or self._is_lone_change(fields):
            fields = _payload(fields)
        if self._asks(fields):
            raise _Deletes(fields)
        if self.mapping.format == "cloudevents":
            return _of_event(fields, headers)
        if self.mapping.format != "json" and fields.keys() >= _ENVELOPE:
            return _of_change(fields)
        return _Row(fields)

    def _is_lone_change(self, fields: Fields) -> bool:
        """Return whether a map is a change of Debezium in `payload`, without the schema beside it."""
        if self.mapping.format == "json" or fields.keys() != {"payload"}:
            return False
        payload = fields["payload"]
        return payload is None or (isinstance(payload, dict) and "op" in payload)

    def _is_avro(self, value: bytes) -> bool:
        """Return whether a value is Avro behind a frame. No registry gives out the number 0."""
        framed = len(value) > FRAME and value[0] == 0 and any(value[:FRAME])
        return framed and self._decoder is not None

    def _fields(self, value: bytes, content: bytes) -> Fields:
        """Return the map in a value. Raises as `_row`; content: the value without its frame."""
        number = frame_of(value)
        if number is not None and self._decoder is not None and self._is_avro(value):
            found = self._decoder.value(number, value[FRAME:])
            if found is None:
                raise _Deletes
            return found if isinstance(found, dict) else _wrapped(found)
        try:
            return map_in(content)
        except InvalidEvent:
            # A damaged delete is a delete; other damaged records are refused for their damage.
            rest = salvaged(content)
            if rest and map_asks(rest):
                raise _Deletes(rest) from None
            raise

    def _asks(self, fields: Fields) -> bool:
        """Return whether a map is a delete: by the field that `operation` names, else by the rules of the format."""
        path = self.mapping.operation
        said = None
        if path is not None:
            said = at_path(fields, path)
            if said is None:
                said = at_path(fields.get("after"), path)
        if said is not None:
            return _names_a_delete(said)
        return map_asks(fields) if self.mapping.format == "cloudevents" else fields_ask(fields)

    def _add(self, row: _Row) -> Fields:
        """Return the add that a row makes. Raises InvalidEvent for a row without a usable text, class or time."""
        mapping = self.mapping
        fields: dict[str, Any] = {"op": "add", "text": self._text(row.fields)}
        labels = labels_of(row.fields, mapping)
        if labels:
            fields["labels"] = labels
        if mapping.time is None:
            time_ms = milliseconds(row.time, "ms")
        else:
            time_ms = milliseconds(at_path(row.fields, mapping.time), mapping.time_unit)
        if time_ms is not None:
            fields["ts"] = time_ms
        subjects = self._subjects(row.fields)
        if subjects:
            fields["subjects"] = subjects
        return fields

    def _subjects(self, row: object) -> list[str]:
        """Return the people that a document is about, [] where the mapping names no field of them.

        Raises InvalidEvent for other values than texts and numbers.
        """
        path = self.mapping.subject
        found = None if path is None else at_path(row, path)
        if found is None:
            return []
        named = found if isinstance(found, list) else [found]
        # Null is nobody, alone and in a list.
        people = [plain_text(one) for one in named if one is not None]
        if None in people:
            raise InvalidEvent("subjects", f"a subject at path `{path}` is neither text nor a number")
        return [name for name in people if name is not None]

    def _text(self, row: object) -> str:
        """Return the text of a row. Raises InvalidEvent where there is none."""
        paths = self.mapping.text
        if paths == _WHOLE:
            found = [row.get("", row) if isinstance(row, dict) else row]
        else:
            found = [at_path(row, path) for path in paths]
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
        return "\n".join(map(str, parts)).encode(errors="replace").decode()


OWN = Dialect(InputMapping())
"""The service's own dialect: records are as `events` reads them."""


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
        rest = salvaged(content)
        return bool(rest) and map_asks(rest)
    return True


def _payload(fields: Fields) -> Fields:
    """Return the payload beside the schema that Kafka Connect writes. Raises _Deletes for null."""
    payload = fields["payload"]
    if payload is None or payload == {}:
        raise _Deletes(fields)
    return payload if isinstance(payload, dict) else _wrapped(payload)


def _wrapped(value: object) -> Fields:
    """Return a value that is not a map as one field, which `input.text` names by "" alone."""
    return {"": value}


def _of_event(fields: Fields, headers: Headers) -> _Row:
    """Return the row of a CloudEvent, structured or binary. Raises InvalidEvent for one without data."""
    if "specversion" not in fields:
        return _Row(fields, _header(headers, "ce_time"))
    return _Row(_data_of(fields), fields.get("time"))


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
    """Return the data of a structured CloudEvent. Raises InvalidEvent where it has none."""
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


def _header(headers: Headers, wanted: str) -> str | None:
    """Return a header as text, None without one."""
    found = next((value for name, value in reversed(headers) if name == wanted), None)
    return None if found is None else found.decode(errors="replace")


def _receipt_headers(fields: Fields) -> Headers:
    """Return the request and salt in the map of a delete as headers, where they can be used."""
    found = list[tuple[str, bytes]]()
    for name, usable in (("request", request_of), ("salt", salt_of)):
        value = fields.get(name)
        content = value.encode(errors="replace") if isinstance(value, str) else value
        if isinstance(content, bytes) and usable(((name, content),)):
            found.append((name, content))
    return tuple(found)
