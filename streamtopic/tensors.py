"""Named arrays and texts as bytes in the safetensors format, which programs in many languages read and none runs.

Eight bytes hold the length of a header. The header is JSON: the texts, and the type, the shape and the place of each
array. The numbers follow, little-endian. Here the header has one form: sorted keys, no spaces but those that fill it up
to a multiple of eight, and wider numbers first. So equal values have equal bytes, and so one digest.

parts      the bytes of arrays and texts, some at a time
unpacked   the arrays and texts in such bytes
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["parts", "unpacked"]

_Array = npt.NDArray[Any]

_TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U16": "<u2", "U32": "<u4", "U64": "<u8", "U8": "|u1"}
_NAMES = {code: name for name, code in _TYPES.items()}
_TEXTS = "__metadata__"
# Bytes before the header.
_START = 8


def parts(arrays: Mapping[str, _Array], texts: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of arrays and texts: the header, then each array. Raises TypeError for arrays of other types."""
    yield _header(arrays, texts)
    for name in _order(arrays):
        array = arrays[name]
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        yield little.reshape(-1).view(np.uint8).data


def unpacked(data: bytes | memoryview) -> tuple[dict[str, _Array], dict[str, str]]:
    """Return the arrays, which share these bytes, and the texts. Raises ValueError for bytes that `parts` never makes.

    data: bytes, or a view of bytes that may be changed, if the arrays are to be changed in place.
    """
    view = memoryview(data)
    try:
        start = _START + int.from_bytes(view[:_START], "little")
        header = bytes(view[:start])
        said = json.loads(header[_START:])
        texts = said.pop(_TEXTS)
        arrays = {}
        size = start
        for name, about in said.items():
            first, last = about["data_offsets"]
            held = view[start:][first:last]
            size += len(held)
            arrays[name] = np.frombuffer(held, _TYPES[about["dtype"]]).reshape(about["shape"])
        # Two encodings of one value would give two digests of it, so only one header is accepted.
        sound = size == len(view) and set(map(type, texts.values())) <= {str} and _header(arrays, texts) == header
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"these bytes are not arrays and texts: {type(error).__name__}") from error
    if not sound:
        raise ValueError("these bytes are not arrays and texts in their one form")
    return arrays, texts


def _header(arrays: Mapping[str, _Array], texts: Mapping[str, str]) -> bytes:
    """Return all bytes before the numbers."""
    header: dict[str, Any] = {_TEXTS: dict(texts)}
    first = 0
    for name in _order(arrays):
        array = arrays[name]
        last = first + array.nbytes
        kind = _NAMES.get(array.dtype.newbyteorder("<").str)
        if kind is None:
            raise TypeError(f"arrays of {array.dtype} have no form here")
        header[name] = {"data_offsets": [first, last], "dtype": kind, "shape": list(array.shape)}
        first = last
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    filled = text + b" " * (-len(text) % 8)
    return len(filled).to_bytes(_START, "little") + filled


def _order(arrays: Mapping[str, _Array]) -> list[str]:
    """Return names in the order of their numbers: wider ones first, so that each begins at a multiple of its size."""
    return sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
