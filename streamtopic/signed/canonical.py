"""Canonical msgpack: keys sorted, arrays as {dtype, shape, little-endian data}, floats always 64 bits wide.

`fitting` makes a dataclass of what was unpacked, each field of its declared type: a signature proves who wrote the
fields, and not that they make sense.
"""

import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from streamtopic.errors import InvalidRelease

__all__ = ["fitting", "pack", "unpack"]

ARRAY_FIELDS = {"data", "dtype", "shape"}
DTYPES = {"<f4", "<f8", "<i4", "<i8"}


def pack(value: object) -> bytes:
    """Bytes of a value of maps with text keys, lists, arrays, text, bytes, numbers, booleans and None.

    Equal values give equal bytes, whatever the order of keys, the memory layout or the byte order of arrays. Raises
    TypeError for anything else, NaN and infinities included: they compare to nothing.
    """
    return bytes(msgpack.packb(_plain(value), strict_types=True))


def unpack(data: bytes) -> Any:  # noqa: ANN401 -- whatever was packed
    """The value of canonical bytes, sequences as lists. Raises InvalidRelease for bytes that `pack` does not make."""
    try:
        plain = msgpack.unpackb(data)
        value = _rich(plain)
        canonical = pack(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRelease(f"signed content cannot be read: {type(error).__name__}") from error
    if not canonical:
        raise InvalidRelease("signed content is not in canonical form")
    return value


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys of canonical maps are text")
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} has no canonical form")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"a {type(value).__name__} has no canonical form")


def _plain_array(array: np.ndarray[Any, np.dtype[Any]]) -> dict[str, object]:
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in DTYPES:
        raise TypeError(f"arrays of {array.dtype} have no canonical form")
    return {"data": array.astype(dtype).tobytes("C"), "dtype": dtype, "shape": list(array.shape)}


def _rich(value: object) -> object:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != ARRAY_FIELDS:
        return {key: _rich(item) for key, item in value.items()}
    data, dtype, shape = value["data"], value["dtype"], value["shape"]
    if dtype not in DTYPES or not isinstance(data, bytes):
        raise TypeError("unknown array")
    return np.frombuffer(data, dtype).reshape(shape)


T = TypeVar("T")
_LARGEST = 1 << 62
"""Sums and differences of two whole numbers below this stay within 64 bits."""


def fitting(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Return a dataclass of these fields. Raises InvalidRelease unless each is of the type that it is annotated with.

    A whole number passes for a float; numbers are below 2**62; keys of maps are checked as their values are.
    """
    hints = _hints(cast("Any", kind))
    problem = "; ".join(filter(None, (_problem(name, value, hints) for name, value in fields.items())))
    if not problem:
        try:
            return kind(**fields)
        except TypeError as error:
            problem = str(error)
    raise InvalidRelease(f"a signed {kind.__name__.lower()} has malformed fields ({problem}): update this program")


def _problem(name: str, value: object, hints: Mapping[str, Any]) -> str:
    if name not in hints:
        return f"{name[:40]!r} is unknown"
    return "" if _fits(value, hints[name]) else f"{name} is a {type(value).__name__}"


@cache
def _hints(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- mypy takes a class for unhashable
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 -- an annotation
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == get_args(arguments[1])[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(item, arguments[1]) for key, item in value.items()
        )
    return _scalar(value, hint)


def _scalar(value: object, hint: type) -> bool:
    if hint is float:
        return isinstance(value, float) or _scalar(value, int)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST
    return isinstance(value, hint)
