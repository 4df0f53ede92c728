"""Schemas from a registry that answers as Confluent's does, and the values that Avro wrote by them.

A number names the same schema for ever, so a schema is fetched once. A registry that does not answer refuses nothing:
the caller waits, as for Kafka and Redis.
"""

from __future__ import annotations

import base64
import io
import json
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Any

from streamtopic.errors import ComponentUnreachable, InvalidEvent, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_AVRO", "SchemaRegistry", "avro_package"]

MAX_AVRO = (1 << 20) + (1 << 16)
"""The longest value in Avro, in bytes: the longest text, and room for other fields. Avro says nothing of the number of
values before all are made, so this bounds their memory."""

_SECONDS = 10.0
_MAX_ANSWER = 4 << 20
_MOST_SCHEMAS = 1_000
# A number that nobody registered is asked for again after so many seconds: a flood of them must not become a flood of
# requests.
_FORGOTTEN_AFTER = 30.0
# What registries answer beside the status 404 where they have no such schema, version or subject.
_NO_SCHEMA = range(40401, 40500)
_MOST_UNKNOWN = 10_000


def avro_package() -> Any:  # noqa: ANN401 -- an optional package without types
    """Return the package that reads Avro. Raises SettingsError, with the remedy, where it is not installed."""
    try:
        import fastavro
    except ImportError:
        raise SettingsError(
            "setting `input.format` is confluent-avro, which needs fastavro: pip install 'streamtopic[avro]'"
        ) from None
    return fastavro


class SchemaRegistry:
    """Schemas by their numbers, and the values that they wrote.

    url: of the registry, `https://host:8081`.
    username, password: of its basic authentication; None without one.
    ticks: seconds that only grow.

    Raises SettingsError where fastavro is not installed.
    """

    def __init__(
        self,
        url: str,
        username: str | None = None,
        password: str | None = None,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._avro = avro_package()
        _add_readers(self._avro.read.LOGICAL_READERS)
        self._url = url.rstrip("/")
        self._authorization = None if username is None else _basic(username, password or "")
        self._ticks = ticks
        self._schemas = OrderedDict[int, Any]()
        self._unknown = OrderedDict[int, float]()

    def value(self, number: int, data: bytes) -> object:
        """Return the value in data that the schema of this number wrote.

        number: of the schema, from the frame.
        data: the bytes behind the frame.

        Raises InvalidEvent for an unknown or unusable schema and for data that it did not write, ComponentUnreachable
        where the registry does not answer.
        """
        if len(data) > MAX_AVRO:
            raise InvalidEvent("value-size", f"the value has {len(data)} bytes of Avro; at most {MAX_AVRO} are allowed")
        schema = self._schema(number)
        stream = io.BytesIO(data)
        try:
            found: object = self._avro.schemaless_reader(stream, schema, None)
        # Bytes of anyone: the package raises errors of a dozen kinds for them, and each means the same.
        except Exception as error:  # noqa: BLE001
            raise InvalidEvent("format", f"the value is not Avro of schema {number}: {type(error).__name__}") from None
        if stream.read(1):
            raise InvalidEvent("format", f"more bytes follow behind the value of schema {number}")
        return found

    def _schema(self, number: int) -> Any:  # noqa: ANN401 -- fastavro's own form of a schema
        """Return a schema, ready for use. Raises as `value`."""
        if number in self._schemas:
            self._schemas.move_to_end(number)
            return self._schemas[number]
        since = self._unknown.get(number)
        if since is not None and self._ticks() - since < _FORGOTTEN_AFTER:
            raise _not_there(number)
        schema = self._usable(number, self._fetched(number))
        self._schemas[number] = schema
        if len(self._schemas) > _MOST_SCHEMAS:
            self._schemas.popitem(last=False)
        return schema

    def _usable(self, number: int, answer: object) -> Any:  # noqa: ANN401 -- as `_schema`
        """Return the schema in a registry's answer. Raises InvalidEvent where it cannot be used."""
        fields = answer if isinstance(answer, dict) else {}
        text = fields.get("schema")
        if fields.get("schemaType", "AVRO") != "AVRO" or not isinstance(text, str):
            raise InvalidEvent("schema", f"schema {number} of the registry is not an Avro schema")
        if fields.get("references"):
            raise InvalidEvent("schema", f"schema {number} names other schemas: register one that holds all its types")
        try:
            plain = json.loads(text)
            _refuse_unbounded(plain)
            return self._avro.parse_schema(_with_own_readers(plain))
        except InvalidEvent:
            raise
        # The package's error for a wrong schema has no base of its own.
        except Exception as error:  # noqa: BLE001
            raise InvalidEvent("schema", f"schema {number} is not valid Avro: {type(error).__name__}") from None

    def _fetched(self, number: int) -> object:
        """Return the registry's answer for a schema. Raises as `value`."""
        # The scheme is http or https: the setting takes no other.
        request = urllib.request.Request(f"{self._url}/schemas/ids/{number}")  # noqa: S310
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self._authorization is not None:
            # Not sent on to another server that the registry may name.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- as above
                return json.loads(answer.read(_MAX_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                unknown = error.code == 404 and _says_unknown(error)
            if unknown:
                self._forget(number)
                raise _not_there(number) from None
            raise _away(self._url, f"it answered {error.code}") from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise _away(self._url, type(error).__name__) from None

    def _forget(self, number: int) -> None:
        """Note that the registry has no schema of this number now."""
        self._unknown[number] = self._ticks()
        self._unknown.move_to_end(number)
        if len(self._unknown) > _MOST_UNKNOWN:
            self._unknown.popitem(last=False)


def _basic(username: str, password: str) -> str:
    """Return the header of basic authentication."""
    pair = f"{username}:{password}".encode()
    return "Basic " + base64.b64encode(pair).decode("ascii")


def _not_there(number: int) -> InvalidEvent:
    """Return the refusal of a record whose schema nobody registered."""
    return InvalidEvent("schema", f"the registry has no schema {number}: register it, and send the record again")


def _says_unknown(answer: IO[bytes]) -> bool:
    """Return whether a 404 is the registry's own word that it has no such schema.

    A proxy, and a server under a wrong address, answer 404 for everything, and each refusal would remove a document.
    """
    try:
        fields = json.loads(answer.read(_MAX_ANSWER))
    except (OSError, HTTPException, ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and fields.get("error_code") in _NO_SCHEMA


def _away(url: str, why: str) -> ComponentUnreachable:
    """Return the error for a registry that gives no answer."""
    return ComponentUnreachable(
        f"the schema registry at {url} cannot be used ({why}): check `registry_url`, its user and password; nothing is "
        "refused meanwhile"
    )


def _refuse_unbounded(schema: object, within: tuple[str, ...] = ()) -> None:
    """Raise InvalidEvent for a schema by which few bytes can make many values, or values of any depth.

    schema: as JSON has it.
    within: names of the records around it.
    """
    if isinstance(schema, list):
        for branch in schema:
            _refuse_unbounded(branch, within)
        return
    if isinstance(schema, str):
        # A name without its namespace too: a doubt is a refusal, and nobody loses a record by another schema's name.
        if schema.rpartition(".")[2] in within:
            raise InvalidEvent("schema", f"type {schema} holds itself, so its values have no bound of depth")
        return
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind in {"array", "map"}:
        inner = schema.get("items" if kind == "array" else "values")
        if kind == "array" and _takes_no_byte(inner):
            raise InvalidEvent("schema", "an array has items of no byte, so a few bytes could claim any number of them")
        _refuse_unbounded(inner, within)
    elif kind in {"record", "error"}:
        name = str(schema.get("name", "")).rpartition(".")[2]
        for field in schema.get("fields", ()):
            _refuse_unbounded(field.get("type"), (*within, name))
    elif not isinstance(kind, str):
        _refuse_unbounded(kind, within)


# Avro's types of values that Python holds only in part: an infinite time of PostgreSQL is a number without a date.
_LOGICAL = (
    "date",
    "time-millis",
    "time-micros",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
    "uuid",
)
_OWN_LOGICAL = "streamtopic-"


def _add_readers(readers: dict[str, Any]) -> None:
    """Add a reader of each type in `_LOGICAL` to the package's, under a name of our own.

    readers: of the package, by the plain type and the name.
    """
    for name, standard in list(readers.items()):
        plain, _, logical = name.partition("-")
        if logical in _LOGICAL:
            readers[f"{plain}-{_OWN_LOGICAL}{logical}"] = _value_or_number(standard)


def _value_or_number(standard: Callable[..., object]) -> Callable[..., object]:
    """Return a reader that leaves a value as it was written where Python has no value for it.

    One field that nobody asked for must not refuse a record, and least of all a delete.
    """

    def read(data: object, writer_schema: object = None, reader_schema: object = None) -> object:
        try:
            return standard(data, writer_schema, reader_schema)
        except (ValueError, OverflowError):
            return data

    return read


def _with_own_readers(schema: object) -> object:
    """Return a schema whose types in `_LOGICAL` are read by our own readers; schema: as JSON has it."""
    if isinstance(schema, list):
        return [_with_own_readers(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if found.get("logicalType") in _LOGICAL:
        found["logicalType"] = _OWN_LOGICAL + found["logicalType"]
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _with_own_readers(found[name])
    if isinstance(found.get("fields"), list):
        found["fields"] = [_with_own_readers(field) for field in found["fields"]]
    return found


def _takes_no_byte(schema: object) -> bool:
    """Return whether values of a type may take no byte: null, an empty record, bytes of the fixed size 0."""
    if isinstance(schema, str):
        # A type that was named before may be an empty record: only Avro's own types are known here.
        return schema == "null" or schema not in _PRIMITIVE
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind == "fixed":
        return not schema.get("size")
    if kind == "record":
        return all(_takes_no_byte(field.get("type")) for field in schema.get("fields", ()))
    return kind == "null"


_PRIMITIVE = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
