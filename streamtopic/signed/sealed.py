"""Canonical bytes, and the container that signs several of them together.

Canonical msgpack sorts keys, writes an array as {dtype, shape, little-endian data} and every float in 64 bits, so equal
values have equal bytes and one signature. A container (`seal`) is a canonical map of named parts, a key id and a
signature. `fitting` makes a dataclass of unpacked fields and checks their types: a signature proves who wrote the
fields, and not that they make sense.
"""

import contextlib
import hashlib
import math
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed.signing_keys import SigningKey, Verifier

__all__ = [
    "Sealed",
    "container_of",
    "fitting",
    "open_sealed",
    "pack",
    "reading_fields",
    "seal",
    "signature_of",
    "signed_by",
    "statement_digest",
    "unpack",
    "unpack_fields",
    "unseal",
]

T = TypeVar("T")

ARRAY_FIELDS = {"data", "dtype", "shape"}
DTYPES = {"<f4", "<f8", "<i4", "<i8"}
# Sums and differences of two whole numbers below this stay within 64 bits.
_LARGEST = 1 << 62

_CONTAINER_FIELDS = {"key", "kind", "parts", "signature"}
# A container is read before its signature is verified, so its form bounds how much is read.
_MOST_PARTS = 8
_LONGEST_NAME = 64
# Type bytes of msgpack: short strings and maps hold their length themselves.
_MAP, _TEXT, _TEXT_8 = 0x80, 0xA0, 0xD9
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def pack(value: object) -> bytes:
    """Return the canonical bytes of maps with text keys, lists, arrays, text, bytes, numbers, booleans and None.

    Equal values give equal bytes, whatever the order of keys, the memory layout or the byte order of arrays. Raises
    TypeError for any other value. NaN and infinities are refused as well: NaN does not equal itself.
    """
    return bytes(msgpack.packb(_plain(value), strict_types=True))


def unpack(data: bytes) -> Any:  # noqa: ANN401 -- whatever was packed
    """Return the value of canonical bytes, sequences as lists. Raises InvalidRelease for bytes that `pack` never makes.

    Call it on verified bytes only: this general reader builds any value that they announce.
    """
    try:
        plain = msgpack.unpackb(data)
        value = _rich(plain)
        # Two encodings of one value would give two digests of it, so only the canonical one is accepted.
        canonical = pack(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRelease(f"signed content cannot be read: {type(error).__name__}") from error
    if not canonical:
        raise InvalidRelease("signed content is not in canonical form")
    return value


def unpack_fields(data: bytes, *, arrays: bool = False) -> dict[str, Any]:
    """Return the fields in canonical bytes: a map, and without arrays unless `arrays`. Raises InvalidRelease otherwise.

    An array answers to indexing, comparison and truth like no other value, so only the model itself may hold one.
    """
    fields = unpack(data)
    if not isinstance(fields, dict):
        raise InvalidRelease(
            f"signed content is a {type(fields).__name__} and not a map of fields: update this program"
        )
    misplaced = not arrays and _holds_array(fields)
    if misplaced:
        raise InvalidRelease("signed content holds an array where none belongs: update this program")
    return fields


def _holds_array(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_array, value.values()))
    if isinstance(value, list):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray)


@contextlib.contextmanager
def reading_fields(what: str) -> Iterator[None]:
    """Turn the errors of missing fields and wrong types within the block into InvalidRelease.

    what: the signed thing, for the message. A signature says who wrote the fields, and not that they make sense.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, UsageError) as error:
        raise InvalidRelease(f"a signed {what} has malformed fields ({error}): update this program") from error


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        return _plain_map(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} has no canonical form")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"a {type(value).__name__} has no canonical form")


def _plain_map(value: Mapping[Any, object]) -> dict[str, object]:
    # Numbers and texts as keys of one map cannot be sorted.
    if not all(isinstance(key, str) for key in value):
        raise TypeError("keys of canonical maps are text")
    return {key: _plain(value[key]) for key in sorted(value)}


def _plain_array(array: np.ndarray[Any, np.dtype[Any]]) -> dict[str, object]:
    # The same numbers have the same bytes on a big-endian machine.
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in DTYPES:
        raise TypeError(f"arrays of {array.dtype} have no canonical form")
    data = array.astype(dtype).tobytes("C")
    shape = list(array.shape)
    return {"data": data, "dtype": dtype, "shape": shape}


def _rich(value: object) -> object:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != ARRAY_FIELDS:
        return {key: _rich(item) for key, item in value.items()}
    data = value["data"]
    dtype = value["dtype"]
    shape = value["shape"]
    if dtype not in DTYPES or not isinstance(data, bytes):
        raise TypeError("unknown array")
    return np.frombuffer(data, dtype).reshape(shape)


def fitting(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Return a dataclass of these fields. Raises InvalidRelease unless each field has its annotated type.

    A whole number passes for a float; numbers are below 2**62; keys of maps are checked as their values are.
    """
    hints = _hints(cast("Any", kind))
    found = [_problem(name, value, hints) for name, value in fields.items()]
    problems = filter(None, found)
    problem = "; ".join(problems)
    if not problem:
        try:
            return kind(**fields)
        except TypeError as error:
            problem = str(error)
    raise InvalidRelease(f"a signed {kind.__name__.lower()} has malformed fields ({problem}): update this program")


def _problem(name: str, value: object, hints: Mapping[str, Any]) -> str:
    if name not in hints:
        return f"{name[:40]!r} is unknown"
    if _fits(value, hints[name]):
        return ""
    return f"{name} is a {type(value).__name__}"


@cache
def _hints(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- mypy takes a class for unhashable
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 -- an annotation
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_fits(value, argument) for argument in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and _all_fit(value, arguments[0])
    if origin is np.ndarray:
        dtype = get_args(arguments[1])[0]
        return isinstance(value, np.ndarray) and value.dtype == dtype
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, items = arguments
        return isinstance(value, Mapping) and _all_fit(value, keys) and _all_fit(value.values(), items)
    return _scalar_fits(value, hint)


def _all_fit(values: Iterable[object], hint: Any) -> bool:  # noqa: ANN401 -- an annotation
    return all(_fits(value, hint) for value in values)


def _scalar_fits(value: object, hint: type) -> bool:
    if hint is float:
        return isinstance(value, float) or _scalar_fits(value, int)
    if hint is int:
        # A bool is an int in Python, and a version or an offset of True would pass.
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -_LARGEST < cast("int", value) < _LARGEST
    return isinstance(value, hint)


@dataclass(frozen=True, slots=True)
class Sealed:
    """Parts whose signature was verified.

    kind: of the container.
    parts: name to bytes.
    key: id of the key that signed them.
    signature: by that key.
    digest: SHA-256 of the whole container, hexadecimal.
    """

    kind: str
    parts: dict[str, bytes]
    key: str
    signature: bytes
    digest: str


def seal(kind: str, parts: Mapping[str, bytes], key: SigningKey) -> bytes:
    """Return the container of `parts`, signed by `key`. The signature covers the kind and the digest of each part.

    kind: release, receipt, completion, statement or keys; a signature of one kind does not verify as another.
    """
    digests = _digests(parts)
    message = _signed_bytes(kind, digests)
    signature = key.sign(message)
    return container_of(kind, parts, key.public.key_id, signature)


def container_of(kind: str, parts: Mapping[str, bytes], key: str, signature: bytes) -> bytes:
    """Return the container of parts that were signed before: the inverse of `open_sealed`.

    key: id of the key that signed them.
    """
    fields = {"key": key, "kind": kind, "parts": dict(parts), "signature": signature}
    return pack(fields)


def open_sealed(kind: str, data: bytes, key: Verifier, *others: str) -> Sealed:
    """Return the verified parts of a container.

    kind: the kind that it must have, or one of these `others`.

    Raises InvalidRelease if any byte differs from the container that `seal` made with this key, UnknownKey if the
    container names a key that `key` does not know.
    """
    found = _container(data)
    claimed: str = found["kind"]
    if claimed not in {kind, *others}:
        raise InvalidRelease(f"signed content is a {claimed[:40]!r}, not a {kind!r}")
    parts: dict[str, bytes] = found["parts"]
    signature: bytes = found["signature"]
    digests = _digests(parts)
    message = _signed_bytes(claimed, digests)
    signer = key.verify(signature, message, found["key"])
    digest = hashlib.sha256(data).hexdigest()
    return Sealed(claimed, parts, signer, signature, digest)


def unseal(kind: str, data: bytes, key: Verifier) -> dict[str, bytes]:
    """Return the verified parts of a container. Raises as `open_sealed`."""
    return open_sealed(kind, data, key).parts


def signature_of(data: bytes) -> bytes:
    """Return the signature in a container. Raises InvalidRelease for bytes that are not a container."""
    found: bytes = _container(data)["signature"]
    return found


def signed_by(kind: str, digests: Mapping[str, bytes], signature: bytes, key: Verifier) -> str:
    """Return the id of the key that signed parts with these digests, so one part can be shown without the others.

    digests: SHA-256 of each part. Raises InvalidRelease unless `key` verifies the signature.
    """
    message = _signed_bytes(kind, digests)
    return key.verify(signature, message)


def statement_digest(kind: str, digests: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the signed bytes, hexadecimal. It names the parts, whichever key signs them.

    digests: SHA-256 of each part. A reader who has only the digest of a large part can still compute the name.
    """
    message = _signed_bytes(kind, digests)
    return hashlib.sha256(message).hexdigest()


def _digests(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: hashlib.sha256(part).digest() for name, part in parts.items()}


def _signed_bytes(kind: str, digests: Mapping[str, bytes]) -> bytes:
    # The prefix keeps these signatures apart from any other use of the same key.
    fields = {"kind": kind, "parts": dict(digests)}
    return b"streamtopic " + pack(fields)


def _container(data: bytes) -> dict[str, Any]:
    # A general reader would build any value that unsigned bytes announce, however large. This one copies slices of the
    # input only, so it takes no more memory than the input.
    try:
        found = _ContainerReader(data).container()
        canonical = pack(found) == data
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRelease("signed content is not a sealed container") from error
    if not canonical:
        raise InvalidRelease("signed content is not in canonical form")
    return found


class _ContainerReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._map()):
            name = self._text()
            found[name] = self._field(name)
        if set(found) != _CONTAINER_FIELDS:
            raise InvalidRelease("signed content is not a sealed container")
        return found

    def _field(self, name: str) -> object:
        if name == "parts":
            return {self._text(): self._bytes() for _ in range(self._map())}
        return self._bytes() if name == "signature" else self._text()

    def _map(self) -> int:
        count = self._byte() - _MAP
        if not 0 <= count <= _MOST_PARTS:
            raise InvalidRelease("signed content is not a sealed container")
        return count

    def _text(self) -> str:
        kind = self._byte()
        length = self._byte() if kind == _TEXT_8 else kind - _TEXT
        if not 0 <= length <= _LONGEST_NAME:
            raise InvalidRelease("signed content is not a sealed container")
        return self._slice(length).decode()

    def _bytes(self) -> bytes:
        width = _BYTES.get(self._byte())
        if width is None:
            raise InvalidRelease("signed content has malformed parts")
        length = int.from_bytes(self._slice(width))
        return self._slice(length)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _slice(self, length: int) -> bytes:
        start = self._at
        self._at += length
        # A slice past the end would be short without an error.
        if self._at > len(self._data):
            raise InvalidRelease("signed content ends too early")
        return self._data[start : self._at]
