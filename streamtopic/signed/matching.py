"""Which topic of one version is which of another."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["assign", "match_topics"]

Float64 = npt.NDArray[np.float64]


def match_topics(words: Sequence[str], A: Float64, other_words: Sequence[str], other: Float64) -> tuple[int, ...]:
    """For each column of A (n, r) its column of `other` (k, r), one to one, least total L1 distance.

    words (n,) and other_words (k,) are sorted; a word that one side lacks has mass 0 there.
    """
    union = np.array(sorted({*words, *other_words}))
    left, right = (np.zeros((len(union), table.shape[1])) for table in (A, other))
    left[np.searchsorted(union, list(words))] = A
    right[np.searchsorted(union, list(other_words))] = other
    return assign(np.stack([np.abs(right - column[:, None]).sum(axis=0) for column in left.T]))


def assign(cost: Float64) -> tuple[int, ...]:
    """Column of each row in the assignment of least total `cost` (r, r): Kuhn and Munkres' method, O(r^3).

    Potentials u, v and shortest augmenting paths, one row after another (Jonker and Volgenant 1987). Here so that a
    subscriber needs no scipy.
    """
    r = len(cost)
    u, v = np.zeros(r + 1), np.zeros(r + 1)
    owner = np.full(r + 1, -1)
    for row in range(r):
        owner[r] = row
        column, slack = r, np.full(r, np.inf)
        came_from, used = np.full(r, r), np.zeros(r + 1, bool)
        while owner[column] >= 0:
            used[column] = True
            reduced = cost[owner[column]] - u[owner[column]] - v[:r]
            better = ~used[:r] & (reduced < slack)
            slack[better], came_from[better] = reduced[better], column
            free = np.where(used[:r], np.inf, slack)
            nearest = int(free.argmin())
            step = free[nearest]
            u[owner[used]] += step
            v[used] -= step
            slack[~used[:r]] -= step
            column = nearest
        while column != r:
            owner[column] = owner[came_from[column]]
            column = int(came_from[column])
    columns = np.empty(r, np.intp)
    columns[owner[:r]] = np.arange(r)
    return tuple(int(column) for column in columns)
