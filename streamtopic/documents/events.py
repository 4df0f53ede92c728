"""Records of producers: adds, deletes and heartbeats, their codec and their limits (docs/messages.md).

Decoding takes bytes from anyone. The answer to any bytes is an event or InvalidEvent with a reason code. Encoding
checks the same limits, so that a producer learns of a bad add at once.

A refusal depends on the record alone, and a refused record removes the earlier document of its id. Compaction keeps
only the newest record of an id, so a recount cannot know more. So no record that its sender means as a delete leaves
its document there, whatever its form is. For the same reason LIMITS are fixed when a model is created.

An empty list takes one byte in a record and 64 in this process, and a list may claim to be longer than it is. So
`parse` first examines a record that may hold many values or a long list, without making any of them.

A subject is a text that a producer chooses for a person whom a document is about, such as the number of a customer.
The state holds no subject: it holds a digest under a secret of the partition. The documents topic holds subjects as
long as it holds the documents.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgpack

from streamtopic.documents.suppression import SUPPRESSED
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.tracing import HEADER
from streamtopic.streams.event_log import MAX_HEADERS, Headers, Message, Record, last_header
from streamtopic.words.text import MAX_PAIRS, MAX_PASSAGE, MAX_WORD, MAX_WORDS, passages

__all__ = [
    "DIGEST_BYTES",
    "HEARTBEAT_KEY",
    "LIMITS",
    "MAX_COUNT",
    "MAX_KEY",
    "MAX_SUBJECT",
    "MAX_SUBJECTS",
    "MAX_TEXT",
    "MAX_VALUE",
    "MAX_VALUES",
    "STRUCTURED",
    "Delete",
    "Document",
    "Event",
    "Heartbeat",
    "Passages",
    "check_add",
    "check_labels",
    "check_subjects",
    "decode",
    "decode_record",
    "document_of",
    "encode_add",
    "encode_delete",
    "encode_heartbeat",
    "encode_rejected",
    "is_subject",
    "parse",
    "refuses_alone",
    "request_of",
    "salt_of",
    "subject_digest",
    "subject_digests",
]

T = TypeVar("T")

MAX_VALUES = 1 << 16
"""The most values of a record, nested values and keys of maps included."""

MAX_SUBJECTS = 8
"""The most subjects of one document."""

MAX_SUBJECT = 256
"""Characters of a subject, at most."""

DIGEST_BYTES = 16
"""Bytes of the digest of a subject: two subjects of one partition never share one."""

_DIGEST = b"st subject"

# msgpack makes room for a list when it reads the length, so a record with a longer list is examined first.
_SHORT_LIST = 15
# First bytes of lists and maps in msgpack.
_LISTS = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_MAPS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
# JSON may have blanks in front, or a byte order mark, which begins with one of the last three; "n" begins null. In
# msgpack each of these is a number, so no map begins with it.
_JSON_STARTS = frozenset(b'{["n \t\r\n\xef\xff\xfe')
# A string without an end is one too: otherwise each quote in it would be tried as the beginning of another.
# Every value but the first has one of the characters in the group in front of it. Empty lists and maps hold no value.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\[\s*+\]|\{\s*+\}|([\[{,:])', re.DOTALL)


def parse(value: bytes) -> object:
    """Return the value in a record.

    Raises InvalidEvent for a record with more than MAX_VALUES; ValueError, RecursionError or msgpack.UnpackException
    for other bytes that are not a value.
    """
    if value[0] in _JSON_STARTS:
        return _parse_json(value)
    # A value takes one byte or more, so a short record without long lists is within the limit.
    if len(value) <= MAX_VALUES:
        try:
            return msgpack.unpackb(value, max_array_len=_SHORT_LIST)
        except ValueError:
            # A longer list, or bytes that are not a value.
            pass
    _check_msgpack(value)
    return msgpack.unpackb(value)


def _parse_json(value: bytes) -> object:
    """Return the value in JSON text of any Unicode encoding."""
    text = value.decode(json.detect_encoding(value), "surrogatepass")
    # A cheap count first, in which commas within strings count too; only if it is large is the text examined.
    if len(text) > MAX_VALUES:
        marks = sum(map(text.count, "[{,:"))
        if marks >= MAX_VALUES:
            _check_json(text)
    return json.loads(text, parse_constant=_refuse)


def _check_json(text: str) -> None:
    """Raise InvalidEvent for a text with more than MAX_VALUES."""
    marks = (token for token in _TOKEN.finditer(text) if token[1])
    if any(islice(marks, MAX_VALUES - 1, None)):
        raise _too_many()


def _too_many() -> InvalidEvent:
    return InvalidEvent("value-count", f"the record holds more than {MAX_VALUES:,} values")


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{constant} is not JSON")


def _check_msgpack(value: bytes) -> None:
    """Raise InvalidEvent, or msgpack.OutOfData if a list claims to be longer than the record."""
    _reader_of(value).skip()
    if len(value) > MAX_VALUES:
        first = islice(_values_in(value), MAX_VALUES + 1)
        if sum(1 for _ in first) > MAX_VALUES:
            raise _too_many()


def _reader_of(value: bytes) -> msgpack.Unpacker:
    """Return a reader of msgpack that can pass parts over."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(value))
    unpacker.feed(value)
    return unpacker


def _values_in(value: bytes) -> Iterator[None]:
    """Pass a value of msgpack over, one step for it and for each value within it.

    Nesting of any depth costs no stack, and a list that claims to be longer than the data no memory.
    """
    unpacker = _reader_of(value)
    left = 1
    while left:
        yield
        left -= 1
        kind = value[unpacker.tell()]
        if kind in _LISTS:
            left += unpacker.read_array_header()
        elif kind in _MAPS:
            left += 2 * unpacker.read_map_header()
        else:
            unpacker.skip()


HEARTBEAT_KEY = b"st:heartbeat"
MAX_KEY = 512
STRUCTURED = (b"{", b'"', b"\0")
"""As structured keys begin: maps and texts of JSON, and frames of a schema registry. Which of them a connector writes
changes with its settings and schemas, so a delete could come under another key than its add. All are refused."""

MAX_TEXT = 1_000_000
MAX_COUNT = 8_192
MAX_LABELS = 64
MAX_LABEL = 256
MAX_REQUEST = 512
MIN_SALT, MAX_SALT = 16, 64
MAX_VALUE = 4 << 20
MAX_DEPTH = 64
# Version of the rules below: counts that were made by other rules are made again.
RULES = 4

_LIMITS = {
    "rules": RULES,
    "key": MAX_KEY,
    "headers": MAX_HEADERS,
    "value": MAX_VALUE,
    "depth": MAX_DEPTH,
    "text": MAX_TEXT,
    "values": MAX_VALUES,
    "words": MAX_WORDS,
    "pairs": MAX_PAIRS,
    "word": MAX_WORD,
    "count": MAX_COUNT,
    "tokens": MAX_PASSAGE,
    "labels": MAX_LABELS,
    "label": MAX_LABEL,
    "subjects": MAX_SUBJECTS,
    "subject": MAX_SUBJECT,
}
LIMITS = ",".join(f"{name}={number}" for name, number in _LIMITS.items())
"""All limits that refuse a record, as the state in Redis keeps them: counts made under other limits are made again."""


# The checks of these fields refuse nested values, so their depth need not be measured.
_CHECKED = frozenset({"text", "counts", "labels", "subjects"})
_NESTED = frozenset({dict, list})

# Bytes of a key that is too long: together with its digest they are enough to find the record.
_KEY_START = 64

Passages = tuple[tuple[int, Mapping[str, int]], ...]


_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Document(NamedTuple):
    """A document to count, in place of the earlier document of its id. A tuple, as `Record` is.

    text: the text, or the counts of its words.
    labels: class of the document by task.
    subjects: the people that the document is about, each once.
    """

    id: str
    text: str | Mapping[str, int]
    labels: Mapping[str, str] = _NO_LABELS
    subjects: tuple[str, ...] = ()

    @property
    def passages(self) -> Passages:
        """(L, word counts) of each passage; L counts all tokens, so it can exceed the sum of the counts."""
        return tuple(passages(self.text))


@dataclass(frozen=True, slots=True)
class Delete:
    """A document to forget.

    document: its id.
    request: id that names the deletion in its receipt; None without one.
    salt: secret by which the requester can check the receipt; b"" without one.
    """

    document: str
    request: str | None = None
    salt: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A record that only makes the partition move, so that Kafka compacts it."""


Event = Document | Delete | Heartbeat


def refuses_alone(read: Callable[[Record], T]) -> Callable[[Record], T]:
    """Return a reader of one record that raises InvalidEvent and no other exception.

    Bytes of anyone may meet a defect of this program or of a package. The defect may cost that one record, and never
    the process that counts all records.
    """

    @wraps(read)
    def guarded(record: Record) -> T:
        try:
            return read(record)
        except InvalidEvent:
            raise
        except Exception as error:
            raise InvalidEvent("reader", f"the record cannot be read: {type(error).__name__}") from error

    return guarded


@refuses_alone
def decode_record(record: Record) -> Event:
    """Return the event in a record of the documents topic; see `decode`."""
    return decode(record.key, record.value, record.headers)


def decode(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Event:
    """Return the event in a record. Raises InvalidEvent, with a reason code, and no other exception.

    key: the document id in UTF-8.
    value: None for a tombstone; else msgpack or JSON. One without content, such as null, is a tombstone of a client
        that cannot send one.
    headers: of the record.
    """
    document = _document(key)
    if key == HEARTBEAT_KEY:
        return _heartbeat(value)
    fields = _map_in(value) if value else {}
    act = fields.get("op")
    if not fields or act == "delete":
        request = _request(fields.get("request")) or request_of(headers)
        salt = _salt(fields.get("salt")) or salt_of(headers)
        return Delete(document, request, salt)
    if len(headers) > MAX_HEADERS:
        raise InvalidEvent("headers", f"the record has more than {MAX_HEADERS} headers")
    if act != "add":
        raise InvalidEvent("op", "field `op` must be `add` or `delete`")
    return _add(document, fields)


def document_of(key: bytes | None) -> str | None:
    """Return the document id in a key; None for the service's own keys, and for a key that is not an id."""
    if key == HEARTBEAT_KEY:
        return None
    try:
        return _document(key)
    except InvalidEvent:
        return None


def request_of(headers: Headers) -> str | None:
    """Return the request id of a deletion in a record's headers, None without a usable one."""
    return _request(last_header(headers, "request"))


def salt_of(headers: Headers) -> bytes:
    """Return the salt of a receipt in a record's headers, b"" without a usable one."""
    return _salt(last_header(headers, "salt"))


def encode_add(
    document: str,
    *,
    text: str | None = None,
    counts: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    subjects: Sequence[str] = (),
) -> Message:
    """Return the record of an add; the same arguments give the same bytes.

    document: its id.
    text, counts: the document's text, or its words with their numbers; exactly one of the two.
    labels: class by task.
    subjects: the people that the document is about, 1 to MAX_SUBJECTS texts; () for nobody.
    Raises InvalidEvent as `decode` does.
    """
    fields: dict[str, Any] = {"op": "add"}
    if text is not None:
        fields["text"] = text
    if counts is not None:
        fields["counts"] = dict(sorted(counts.items()))
    if labels:
        fields["labels"] = dict(sorted(labels.items()))
    if subjects:
        # One text is a sequence of letters as well, and each letter would become a subject.
        fields["subjects"] = subjects if isinstance(subjects, str) else list(subjects)
    check_add(document, fields)
    return Message(_key(document), msgpack.packb(fields))


def check_add(document: str, fields: Mapping[str, object]) -> Document:
    """Return a document. Raises InvalidEvent for one that may not be sent.

    document: its id.
    fields: `text` or `counts`, and perhaps `labels`, `subjects`.
    """
    key = _key(document)
    _refuse_reserved(key)
    text = fields.get("text")
    if isinstance(text, str) and not _encodable(text):
        raise InvalidEvent("text-type", "`text` holds half a surrogate pair, which is not a character")
    return _add(_document(key), fields)


def encode_delete(document: str, request: str, salt: bytes = b"", trace: bytes = b"") -> Message:
    """Return the tombstone of a document.

    document: its id.
    request: id that names the deletion in its receipt.
    salt: secret by which the requester can check the receipt; b"" without one.
    trace: W3C `traceparent` of the span that asks for it; b"" without one.
    Raises InvalidEvent for an id, a request or a salt out of its limits.
    """
    key = _key(document)
    _document(key)
    _refuse_reserved(key)
    if _request(request) is None:
        raise InvalidEvent("request", f"a request id must have 1 to {MAX_REQUEST} bytes of UTF-8 text")
    headers: Headers = (("request", request.encode()),)
    if salt:
        if not _salt(salt):
            raise InvalidEvent("request", f"a salt has {MIN_SALT} to {MAX_SALT} bytes, not {len(salt)}")
        headers += (("salt", salt),)
    if trace:
        headers += ((HEADER, trace),)
    return Message(key, None, headers)


def encode_heartbeat(partition: int) -> Message:
    """Return a heartbeat for one partition."""
    return Message(HEARTBEAT_KEY, msgpack.packb({"op": "heartbeat"}), partition=partition)


def encode_rejected(record: Record, error: InvalidEvent) -> Message:
    """Return the pointer that the rejected topic keeps: reason and place, never the content.

    record: the refused record.
    error: the reason. If it says that the id is suppressed, the pointer does not name the id.
    It takes less than 2 KiB for any record.
    """
    value = {"offset": record.offset, "partition": record.partition, "reason": error.reason, "topic": record.topic}
    key = b"" if error.reason == SUPPRESSED else record.key or b""
    if len(key) > MAX_KEY:
        value["key_size"] = len(key)
        value["key_sha256"] = hashlib.sha256(key).hexdigest()
        key = key[:_KEY_START]
    # Never null: a topic that somebody has compacted would not take it.
    return Message(key, msgpack.packb(value))


def check_labels(labels: object) -> Mapping[str, str]:
    """Return the labels of an add, no labels for None. Raises InvalidEvent for other values."""
    if labels is None:
        return _NO_LABELS
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise InvalidEvent("labels", f"`labels` must be a map of at most {MAX_LABELS} tasks to classes")
    names = (*labels.keys(), *labels.values())
    for name in names:
        sound = isinstance(name, str) and 0 < len(name) <= MAX_LABEL and _encodable(name)
        if not sound:
            raise InvalidEvent("labels", f"a task or class in `labels` must be text of 1 to {MAX_LABEL} characters")
    return labels


def _key(document: str) -> bytes:
    """Return the key of a document id. Raises InvalidEvent for an id that UTF-8 cannot write."""
    try:
        return document.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent("key-encoding", "a document id must not hold half a surrogate pair") from error


def _document(key: bytes | None) -> str:
    """Return the document id in a key. Raises InvalidEvent for a key that is not an id."""
    if not key:
        raise InvalidEvent("key-missing", "the record has no key: send the document id as its key")
    if key.startswith(STRUCTURED):
        raise InvalidEvent(
            "key-structured",
            'the key begins with {, " or a zero byte, so it is not a plain id: let the connector '
            "write the id alone (ExtractField$Key and StringConverter, docs/records.md)",
        )
    if len(key) > MAX_KEY:
        raise InvalidEvent("key-size", f"the document id has {len(key)} bytes; at most {MAX_KEY} are allowed")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise InvalidEvent("key-encoding", "the document id is not UTF-8") from error


def _heartbeat(value: bytes | None) -> Heartbeat:
    """Return a heartbeat. Raises InvalidEvent for an add under its key."""
    if value is not None and _map_in(value).get("op") == "add":
        _refuse_reserved(HEARTBEAT_KEY)
    return Heartbeat()


def _refuse_reserved(key: bytes) -> None:
    """Raise InvalidEvent for a key that belongs to heartbeats."""
    if key == HEARTBEAT_KEY:
        raise InvalidEvent("key-reserved", f"the document id {HEARTBEAT_KEY.decode()} is reserved; choose another")


def _request(value: object) -> str | None:
    """Return a request id, None for other values: a delete must not fail over it."""
    if isinstance(value, str):
        value = value.encode(errors="replace")
    if not isinstance(value, bytes):
        return None
    if not 0 < len(value) <= MAX_REQUEST:
        return None
    return value.decode(errors="replace")


def _salt(value: object) -> bytes:
    """Return a salt, b"" for other values: a delete must not fail over it."""
    if isinstance(value, str):
        value = value.encode(errors="replace")
    return value if isinstance(value, bytes) and MIN_SALT <= len(value) <= MAX_SALT else b""


def _map_in(value: bytes) -> Mapping[Any, Any]:
    """Return the map in a value of msgpack or JSON, {} for null and the like.

    Raises InvalidEvent for other bytes, and beyond the limits.
    """
    if len(value) > MAX_VALUE:
        raise InvalidEvent("value-size", f"the record has {len(value)} bytes; at most {MAX_VALUE} are allowed")
    try:
        fields = parse(value)
    except InvalidEvent:
        raise
    # Bytes of anyone: json and msgpack raise errors of many kinds for them, and each means the same.
    except Exception as error:
        raise InvalidEvent("format", f"the record is neither msgpack nor JSON: {type(error).__name__}") from error
    if not fields:
        return {}
    if not isinstance(fields, dict):
        raise InvalidEvent("format", f"the record is a {type(fields).__name__}, not a map")
    _check_depth(fields)
    return fields


def _check_depth(fields: Mapping[object, object]) -> None:
    """Raise InvalidEvent for values that are nested too deeply."""
    # The depth that Python's JSON decoder reaches depends on its caller, and a refusal must not depend on it.
    if _NESTED.isdisjoint(map(type, fields.values())):
        return
    inside: list[Any] = [value for name, value in fields.items() if type(value) in _NESTED and name not in _CHECKED]
    for _ in range(MAX_DEPTH):
        if not inside:
            return
        parts = chain.from_iterable(map(_parts, inside))
        inside = [value for value in parts if type(value) in _NESTED]
    raise InvalidEvent("format", f"the record is nested deeper than {MAX_DEPTH} levels")


def _parts(outer: Mapping[object, object] | list[object]) -> Iterable[object]:
    """Return the values in a map or a list."""
    return outer if isinstance(outer, list) else outer.values()


def _add(document: str, fields: Mapping[Any, object]) -> Document:
    """Return the document of these fields. Raises InvalidEvent for fields that are not an add."""
    text = fields.get("text")
    counts = fields.get("counts")
    if (text is None) == (counts is None):
        raise InvalidEvent("content", "an add needs either `text` or `counts`")
    content = _counts(counts) if text is None else _text(text)
    labels = check_labels(fields.get("labels"))
    return Document(document, content, labels, check_subjects(fields))


def _text(text: object) -> str:
    """Return the text of an add. Raises InvalidEvent for other values and for long texts."""
    if not isinstance(text, str):
        raise InvalidEvent("text-type", f"`text` is a {type(text).__name__}, not a string")
    size = len(text)
    # A character has one to four bytes, so most texts need not be encoded to be measured.
    if size <= MAX_TEXT < 4 * size:
        size = len(text.encode(errors="replace"))
    if size > MAX_TEXT:
        raise InvalidEvent("text-size", f"`text` is longer than {MAX_TEXT} bytes; split the document")
    return text


def _counts(counts: object) -> Mapping[str, int]:
    """Return the counts of the words of a document. Raises InvalidEvent for other values."""
    if not isinstance(counts, dict):
        raise InvalidEvent("counts-type", f"`counts` is a {type(counts).__name__}, not a map of words to numbers")
    if len(counts) > MAX_WORDS:
        raise InvalidEvent(
            "counts-words",
            f"`counts` has {len(counts)} words; at most {MAX_WORDS} are allowed, which make {MAX_PAIRS:,} pairs: "
            "split the document, or send its text",
        )
    # Sets of types and sizes, since a loop over words would take three times as long.
    sound = {str}.issuperset(map(type, counts)) and all(0 < size <= MAX_WORD for size in {*map(len, counts)})
    if not sound or not _encodable("".join(counts)):
        raise InvalidEvent("word", f"a word in `counts` must be text of 1 to {MAX_WORD} characters")
    numbers = counts.values()
    whole = {int}.issuperset(map(type, numbers))
    if not whole or (counts and not 1 <= min(numbers) <= max(numbers) <= MAX_COUNT):
        raise InvalidEvent("count", f"a number in `counts` must be a whole number from 1 to {MAX_COUNT}")
    length = sum(numbers)
    if length > MAX_PASSAGE:
        raise InvalidEvent("counts-length", f"`counts` has {length} tokens; at most {MAX_PASSAGE} are allowed")
    return counts


def _encodable(text: str) -> bool:
    """Return whether UTF-8 can write a text, which it cannot with half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_subject(value: object) -> bool:
    """Return whether a value is a subject: a text of 1 to MAX_SUBJECT characters that UTF-8 can write."""
    return isinstance(value, str) and 0 < len(value) <= MAX_SUBJECT and _encodable(value)


def check_subjects(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Return the subjects of an add, each once, in their order; () without any.

    fields: of the add.

    Raises InvalidEvent for `subjects` that are not a list of subjects.
    """
    found = fields.get("subjects")
    if found is None:
        return ()
    if not isinstance(found, list) or not 0 < len(found) <= MAX_SUBJECTS:
        raise InvalidEvent("subjects", f"`subjects` must be a list of 1 to {MAX_SUBJECTS} texts")
    if not all(map(is_subject, found)):
        raise InvalidEvent("subjects", f"a subject must be a text of 1 to {MAX_SUBJECT} characters")
    return tuple(dict.fromkeys(found))


def subject_digest(subject: str, secret: bytes) -> bytes:
    """Return the digest of a subject in the state of a partition, DIGEST_BYTES long.

    secret: of the partition, at most 64 bytes.
    """
    return hashlib.blake2b(subject.encode(), key=secret, digest_size=DIGEST_BYTES, person=_DIGEST).digest()


def subject_digests(subjects: Sequence[str], secret: bytes) -> tuple[bytes, ...]:
    """Return the digests of the subjects of a document, ascending: equal sets of subjects give equal digests."""
    found = {subject_digest(subject, secret) for subject in subjects}
    return tuple(sorted(found))
