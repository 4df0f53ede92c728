"""Short names for types of arrays, and small tables for sparse rows and for chosen positions.

Shapes are in docstrings, since numpy's types do not say them. Positions are indices into another array. A mask says
of each entry of another array whether it is chosen.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "Float",
    "Int32",
    "Int64",
    "Mask",
    "Positions",
    "UInt16",
    "UInt64",
    "entry_rows",
    "joined",
    "places",
    "row_ends",
]

Float = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt16 = npt.NDArray[np.uint16]
UInt64 = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
_Kind = TypeVar("_Kind", np.int32, np.int64)


def row_ends(sizes: npt.NDArray[Any]) -> Int64:
    """Return where rows of these sizes begin and the last one ends, (rows + 1,)."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def joined(parts: Sequence[npt.NDArray[_Kind]], kind: type[_Kind]) -> npt.NDArray[_Kind]:
    """Lay arrays one after the other, also if there are none. A single one is not copied. kind: type of the numbers."""
    if not parts:
        return np.zeros(0, kind)
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole.astype(kind, copy=False)


def entry_rows(indptr: npt.NDArray[np.integer[Any]]) -> Int64:
    """Return the row of each entry, (entries,). indptr: (rows + 1,) where rows begin."""
    sizes = np.diff(indptr)
    return np.repeat(np.arange(len(sizes)), sizes)


def places(n: int, chosen: npt.NDArray[np.integer[Any]], kind: Any = np.int64) -> Any:  # noqa: ANN401  an array of that kind
    """Return for each of n positions where it is among the chosen ones, (n,), -1 for the others.

    chosen: distinct positions.
    kind: the type of the numbers.
    """
    table = np.full(n, -1, kind)
    table[chosen] = np.arange(len(chosen))
    return table
