"""Canonical bytes: equal values have equal bytes, and so one digest.

Canonical msgpack sorts keys, writes an array as {dtype, shape, little-endian data} and every float in 64 bits.
`fitting` makes a dataclass of unpacked fields and checks their types: a digest proves which fields were signed, and not
that they make sense.
"""

import contextlib
import math
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from streamtopic.errors import InvalidRelease, UsageError

__all__ = ["fitting", "pack", "reading_fields", "unpack"]

T = TypeVar("T")

ARRAY_FIELDS = {"data", "dtype", "shape"}
DTYPES = {"<f4", "<f8", "<i4", "<i8"}
# Sums and differences of two whole numbers below this stay within 64 bits.
_LARGEST = 1 << 62


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


@contextlib.contextmanager
def reading_fields(what: str) -> Iterator[None]:
    """Turn the errors of missing fields and wrong types within the block into InvalidRelease.

    what: the signed thing, for the message. A signature says who wrote the fields, and not that they make sense.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError) as error:
        raise InvalidRelease(f"a signed {what} has malformed fields ({error}): update this program") from error


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        return _plain_map(value)
    if isinstance(value, list | tuple):
        return list(value) if _all_text(value) else [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} has no canonical form")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"a {type(value).__name__} has no canonical form")


def _all_text(values: Iterable[object]) -> bool:
    """Return whether all values are text and nothing else, without a call for each: a model has thousands of words."""
    return set(map(type, values)) <= {str}


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
        return value if _all_text(value) else [_rich(item) for item in value]
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


def _all_fit(values: Collection[object], hint: Any) -> bool:  # noqa: ANN401 -- an annotation
    return (hint is str and _all_text(values)) or all(_fits(value, hint) for value in values)


def _scalar_fits(value: object, hint: type) -> bool:
    if hint is float:
        return isinstance(value, float) or _scalar_fits(value, int)
    if hint is int:
        # A bool is an int in Python, and a version or an offset of True would pass.
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -_LARGEST < cast("int", value) < _LARGEST
    return isinstance(value, hint)
