"""Places of topics on a map: distances between topics, two axes that show most of them, and room for each name."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["TopicMap", "classical_scaling", "divergences", "place_topics", "spread"]

Float = npt.NDArray[np.float64]

# Steps that a box tries together: more of them cost memory, fewer cost calls into numpy.
_AT_ONCE = 2_000
# Rounding of positions, in pixels.
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class TopicMap:
    """A map of r topics.

    positions: (r, 2), on two axes.
    distances: (r, r), between the topics' words, from 0 (the same words) to 1 (no common word).
    shown: share of the squared distances that two axes can show.
    """

    positions: Float
    distances: Float
    shown: float


def place_topics(A: Float) -> TopicMap:
    """Lay out the columns of A (n, r), words given topics, by the square roots of their divergences."""
    squares = divergences(A)
    positions, shown = classical_scaling(squares)
    return TopicMap(positions, np.sqrt(squares), shown)


def divergences(A: Float) -> Float:
    """Return the Jensen-Shannon divergences between columns of A (n, r), (r, r), in bits: 0 if equal, 1 at the most.

    Their square roots are distances that lie in a Euclidean space (Endres and Schindelin 2003; Fuglede and Topsoe
    2004), so classical scaling has no negative part to drop. Cost: n r^2.
    """
    r = A.shape[1]
    own = _entropies(A)
    found = np.zeros((r, r))
    # One topic against all later ones at a time: all pairs at once would take n r^2 numbers of memory.
    for k in range(r - 1):
        later = A[:, k + 1 :]
        mixed = _entropies((later + A[:, [k]]) / 2)
        mean = (own[k] + own[k + 1 :]) / 2
        # Rounding can leave a divergence of equal topics a little below 0.
        found[k, k + 1 :] = np.clip(mixed - mean, 0.0, 1.0)
    return found + found.T


def _entropies(A: Float) -> Float:
    """Return the entropies of the columns of A (n, r), (r,), in bits."""
    # 0 log 0 counts as 0: a word that a topic lacks adds nothing.
    logs = np.log2(A, out=np.zeros_like(A), where=A > 0)
    return np.asarray(-np.einsum("ij,ij->j", A, logs))


def classical_scaling(squares: Float) -> tuple[Float, float]:
    """Return positions (r, 2) by classical scaling, and the share of the squared distances that they show.

    squares: (r, r), squared distances.
    Source: Torgerson 1952.
    """
    r = len(squares)
    by_column = squares.mean(axis=0)
    by_row = squares.mean(axis=1)[:, None]
    centred = squares - by_column - by_row + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    # The largest first. Rounding can leave an eigenvalue of 0 a little below it.
    values = np.maximum(values[::-1], 0.0)
    vectors = vectors[:, ::-1]
    positions = np.zeros((r, 2))
    for axis in range(min(2, r)):
        column = vectors[:, axis] * np.sqrt(values[axis])
        # An eigenvector has either sign; with its largest coordinate above 0, equal distances give equal maps.
        if column[np.abs(column).argmax()] < 0:
            column = -column
        positions[:, axis] = column
    total = float(values.sum())
    # Topics of the same words have no distances to show.
    if total <= 0:
        return positions, 1.0
    shown = values[:2].sum()
    return positions, float(shown / total)


def spread(centres: Float, sizes: Float, width: float, height: float) -> Float:
    """Move boxes apart within a canvas, so that they do not overlap; return their centres, (r, 2).

    centres, sizes: (r, 2), of the boxes.
    width, height: of the canvas.

    The largest box stays in its place, and each next one goes to the nearest free place. A box without room stays in
    its place and overlaps others.
    """
    canvas = np.array([width, height])
    low = sizes / 2
    high = np.maximum(canvas - sizes / 2, sizes / 2)
    places = np.clip(centres, low, high)
    steps = _nearest_first(canvas)
    # An order that sizes alone decide gives equal releases equal maps.
    order = np.argsort(-sizes.prod(axis=1), kind="stable")
    for count, box in enumerate(order):
        others = order[:count]
        # Steps are tried in parts: most boxes find a place among the first, and all at once would take memory.
        for first in range(0, len(steps), _AT_ONCE):
            tried = places[box] + steps[first : first + _AT_ONCE]
            not_low = tried >= low[box] - _CLOSE
            not_high = tried <= high[box] + _CLOSE
            inside = (not_low & not_high).all(axis=1)
            gaps = np.abs(tried[:, None] - places[others])
            needed = (sizes[box] + sizes[others]) / 2
            # Two boxes are clear of each other if they are apart along one axis.
            apart = (gaps >= needed).any(axis=2)
            clear = apart.all(axis=1)
            free = inside & clear
            if free.any():
                places[box] = tried[free.argmax()]
                break
    return places


def _nearest_first(canvas: Float) -> Float:
    """Return steps on a fine grid over the canvas, (steps, 2), the shortest first, (0, 0) being the first of all."""
    step = float(canvas.max()) / 160
    reach = []
    for side in canvas:
        most = int(side / step)
        reach.append(np.arange(-most, most + 1) * step)
    grid = np.meshgrid(*reach, indexing="ij")
    steps = np.stack(grid, axis=-1).reshape(-1, 2)
    # Rounded, so that steps of equal lengths keep their order on every machine.
    squares = (steps**2).sum(axis=1).round(6)
    order = np.argsort(squares, kind="stable")
    return np.asarray(steps[order])
