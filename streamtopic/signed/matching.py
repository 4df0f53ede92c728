"""Pairs the topics of two versions, so that a topic keeps its number from version to version."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["assign", "match_topics"]

Float64 = npt.NDArray[np.float64]


def match_topics(words: Sequence[str], A: Float64, other_words: Sequence[str], other: Float64) -> tuple[int, ...]:
    """Return for each column of A its column of `other`, one to one, such that the total L1 distance is least.

    words: (n,), sorted.
    A: (n, r), words given topics.
    other_words: (k,), sorted.
    other: (k, r), words given topics.
    """
    union = np.array(sorted({*words, *other_words}))
    # A word that one version lacks has mass 0 there.
    left = np.zeros((len(union), A.shape[1]))
    right = np.zeros((len(union), other.shape[1]))
    left[np.searchsorted(union, list(words))] = A
    right[np.searchsorted(union, list(other_words))] = other
    # One topic at a time: all at once would take r times the memory of a version.
    cost = [np.abs(right - column[:, None]).sum(axis=0) for column in left.T]
    return assign(np.stack(cost))


def assign(cost: Float64) -> tuple[int, ...]:
    """Return the column of each row in the assignment of least total cost: Kuhn and Munkres' method, O(r^3).

    cost: (r, r). Potentials u, v and shortest augmenting paths, one row after another (Jonker and Volgenant 1987).
    """
    # Here, and not from scipy, so that a subscriber does not need scipy.
    r = len(cost)
    # Column r does not exist in `cost`: each path starts there.
    u, v = np.zeros(r + 1), np.zeros(r + 1)
    owner = np.full(r + 1, -1)
    for row in range(r):
        owner[r] = row
        column = r
        slack = np.full(r, np.inf)
        came_from = np.full(r, r)
        used = np.zeros(r + 1, bool)
        while owner[column] >= 0:
            used[column] = True
            last = owner[column]
            reduced = cost[last] - u[last] - v[:r]
            taken = used[:r]
            better = ~taken & (reduced < slack)
            slack[better] = reduced[better]
            came_from[better] = column
            free = np.where(taken, np.inf, slack)
            nearest = int(free.argmin())
            step = free[nearest]
            u[owner[used]] += step
            v[used] -= step
            slack[~taken] -= step
            column = nearest
        while column != r:
            before = int(came_from[column])
            owner[column] = owner[before]
            column = before
    columns = np.empty(r, np.intp)
    columns[owner[:r]] = np.arange(r)
    return tuple(int(column) for column in columns)
