"""Where topics lie on a map: distances between them, two axes that keep most of those, and room for each name.

Numbers only; `topic_map` draws them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Map", "classical_scaling", "divergences", "place_topics", "spread"]

Float = npt.NDArray[np.float64]

_ROUNDS = 400


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Positions (r, 2) of topics; distances (r, r) between their words, from 0 to 1; shown: the share of the squared
    distances that two axes can show.
    """

    positions: Float
    distances: Float
    shown: float


def place_topics(A: Float) -> Map:
    """Lay out the columns of A (n, r), words given topics, by the square roots of their divergences."""
    squares = divergences(A)
    positions, shown = classical_scaling(squares)
    return Map(positions, np.sqrt(squares), shown)


def divergences(A: Float) -> Float:
    """Return the Jensen-Shannon divergences between columns of A (n, r), (r, r), in bits: 0 the same, 1 no common word.

    Their square roots are distances that lie in a Euclidean space (Endres and Schindelin 2003; Fuglede and Topsoe
    2004), so classical scaling has no negative part to drop. Cost: n r^2.
    """
    r = A.shape[1]
    own = _entropies(A)
    found = np.zeros((r, r))
    for k in range(r - 1):
        mixed = _entropies((A[:, k + 1 :] + A[:, [k]]) / 2)
        found[k, k + 1 :] = np.clip(mixed - (own[k] + own[k + 1 :]) / 2, 0.0, 1.0)
    return found + found.T


def _entropies(A: Float) -> Float:
    logs = np.log2(A, out=np.zeros_like(A), where=A > 0)
    return np.asarray(-np.einsum("ij,ij->j", A, logs))


def classical_scaling(squares: Float) -> tuple[Float, float]:
    """Return positions (r, 2) whose squared distances are nearest to these, (r, r), and the share that they show.

    The largest coordinate of each axis is positive, so that equal distances give equal maps. Source: Torgerson 1952.
    """
    r = len(squares)
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    positions = np.zeros((r, 2))
    for axis in range(min(2, r)):
        column = vectors[:, axis] * np.sqrt(values[axis])
        positions[:, axis] = column if column[np.abs(column).argmax()] >= 0 else -column
    total = float(values.sum())
    return positions, float(values[:2].sum() / total) if total > 0 else 1.0


def spread(centres: Float, sizes: Float, width: float, height: float) -> Float:
    """Move boxes (r, 2) of these centres and sizes apart until none overlap, within a canvas; positions (r, 2).

    Each overlapping pair moves along the axis on which it overlaps least, and comes back a little each time, so that
    boxes stay near where they belong. On a canvas with too little room some overlap is left.
    """
    places = np.clip(centres, sizes / 2, np.maximum([width, height] - sizes / 2, sizes / 2))
    # Boxes of one and the same place part in the order in which they are given.
    places = places + np.arange(len(places))[:, None] * [1e-3, 1e-3]
    for turn in range(_ROUNDS):
        gaps = places[:, None] - places[None]
        overlap = (sizes[:, None] + sizes[None]) / 2 - np.abs(gaps)
        meets = np.asarray((overlap > 1e-6).all(axis=2))
        meets &= ~np.eye(len(places), dtype=np.bool_)
        if not meets.any():
            return places
        along = overlap.argmin(axis=2)
        signs = np.where(gaps >= 0, 1.0, -1.0)
        for axis in (0, 1):
            push = np.where(meets & (along == axis), signs[:, :, axis] * (overlap[:, :, axis] / 2 + 0.05), 0.0)
            places[:, axis] += push.sum(axis=1) / np.maximum((push != 0).sum(axis=1), 1)
        if turn < _ROUNDS // 2:
            places += 0.02 * (centres - places)
        places = np.clip(places, sizes / 2, np.maximum([width, height] - sizes / 2, sizes / 2))
    return places
