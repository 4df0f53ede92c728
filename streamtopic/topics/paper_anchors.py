"""The anchor search of the published learner: farthest rows of Qbar, then the swap pass (RecoverAnchors).

Every operation is an IEEE double operation in a fixed order, in word order. So the same
counts give the same anchors on any machine, by any number of threads, cold or after updates of any kind. A tie cannot
fall two ways: of rows that are equally far out by these very operations the first wins.
Source: Arora et al. 2013, algorithm 4 without its random projection; docs/proof-paper-anchors.md.
"""

import numpy as np

from streamtopic.compiled import allocating, kernel
from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.learner_options import too_few_words, too_much_alike
from streamtopic.topics.products import dense_rows, times
from streamtopic.topics.reproducible import check_arithmetic, cholesky, chunks, each_span, solve_lower

__all__ = ["farthest_rows", "row_norms"]

_UNIT = 2.0**-53
_CHUNK = 256


def farthest_rows(q: SymmetricCounts, candidates: Positions, mass: Int64, r: int) -> Positions:
    """Choose r rows of Qbar among the candidates: greedy, then the swap pass of the paper (RecoverAnchors).

    candidates: ascending positions in Q.
    mass: (n,) row sums.
    r: topics.
    Returns positions in Q, ascending.
    Raises CannotLearn if candidates or directions are too few, UnreliableArithmetic if this machine does not
    compute as others do.
    """
    check_arithmetic()
    if len(candidates) < r:
        raise too_few_words(len(candidates), r)
    # Without the paper's random projection: exact distances are affordable.
    search = _Search(q, candidates, mass, r)
    for k in range(r):
        search.add(k)
    search.factor(0)
    for k in range(r):
        search.swap(k)
    return np.asarray(np.sort(candidates[search.chosen]))


class _Search:
    """Chosen rows, and the distances of all candidates to their span.

    With G = L L^T the Gram matrix of the chosen rows, L y_i = b_i with b_iu = <q_i, q_su>, and m_k column k of L^-1:

        distance^2 of row i to the span of all = |q_i|^2 - |y_i|^2
        distance^2 of row i to the span of all but k = |q_i|^2 - |y_i|^2 + (m_k . y_i)^2 / |m_k|^2

    chosen: (r,) positions among the candidates.
    """

    def __init__(self, q: SymmetricCounts, candidates: Positions, mass: Int64, r: int) -> None:
        self.q = q
        self.candidates = candidates
        self.scale = 1.0 / mass[candidates].astype(float)
        self.norms = row_norms(q, candidates, self.scale)
        # Rounding can make a distance of 0 as large as this. It is a function of the counts, so that a search that
        # stops here stops everywhere.
        self.floor = 2.0 * (q.n + r + 8) * _UNIT * float(self.norms.max())
        self.chosen = np.zeros(r, np.intp)
        # A row for each chosen row u: b_iu and y_iu of all candidates i side by side, so that each is summed in order.
        self.inner = np.zeros((r, len(candidates)))
        self.parts = np.zeros_like(self.inner)
        self.rest = self.norms.copy()
        self.lower = np.zeros((r, r))

    def add(self, k: int) -> None:
        """Choose row k after k others. Raises CannotLearn if no row leaves the span of those."""
        distances = self.rest.copy()
        distances[self.chosen[:k]] = -1.0
        # Of equal rows the first.
        row = int(np.argmax(distances))
        distance = float(distances[row])
        if not distance > self.floor:
            raise too_much_alike(len(self.chosen))
        self.lower[k, :k] = self.parts[:k, row]
        self.lower[k, k] = np.sqrt(distance)
        self._choose(k, row)
        self._eliminate(np.ascontiguousarray(self.lower[: k + 1, : k + 1]), k)

    def swap(self, k: int) -> None:
        """Replace chosen row k by the row farthest from the span of the others, which may be itself."""
        distances = np.empty_like(self.rest)
        _leave_one_out(self.parts, self.rest, self.directions, k, distances)
        # The others stay, so they cannot take its place.
        others = np.delete(self.chosen, k)
        distances[others] = -1.0
        row = int(np.argmax(distances))
        if row != self.chosen[k]:
            self._choose(k, row)
            self.factor(k)

    def factor(self, first: int) -> None:
        """Factor the Gram matrix and eliminate. The chosen rows before `first` are those of the last time."""
        r = len(self.chosen)
        gram = self.inner[:, self.chosen].T
        L, pivots = cholesky(np.ascontiguousarray(gram))
        if pivots < r:
            raise too_much_alike(r)
        self.directions = solve_lower(L, np.eye(r))
        self._eliminate(L, first)

    def _choose(self, k: int, row: int) -> None:
        """Make a candidate's row the chosen row k, and take the inner products of all candidates with it."""
        self.chosen[k] = row
        own = dense_rows(self.q, self.candidates[row : row + 1])[0] * self.scale[row]
        self.inner[k] = times(self.q, own[:, None], self.candidates)[:, 0] * self.scale

    def _eliminate(self, L: Float, first: int) -> None:
        """Solve L y = b for all candidates, rows of y from `first` on, and take |y|^2 off their norms."""
        arrays = self.inner, L, first, self.norms, self.parts, self.rest
        each_span(_eliminate, arrays, chunks(len(self.rest), _CHUNK))


def row_norms(q: SymmetricCounts, rows: Positions, scale: Float) -> Float:
    """Return squared norms of scaled rows, (len(rows),), summed in column order."""
    norms: Float = _row_norms(q.rows, rows, scale)
    return norms


@allocating
def _row_norms(q: Compact, rows: Positions, scale: Float) -> Float:
    """Return squared norms of scaled rows, (len(rows),)."""
    norms = np.zeros(len(rows))
    for i, row in enumerate(rows):
        w = q.wide_indptr[row]
        total = 0.0
        factor = scale[i]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value = float(exact) * factor
            total += value * value
        norms[i] = total
    return norms


@allocating
def _eliminate(
    inner: Float, L: Float, first: int, norms: Float, parts: Float, rest: Float, start: int, stop: int
) -> None:
    """Solve L y = b for candidates start ... stop - 1, rows of y from `first` on, and take |y|^2 off their norms.

    inner: (r, c) b as columns.
    parts: (r, c) y as columns.
    norms: (c,) squared norms.
    rest: (c,) becomes the squared distances to the span of all anchors.
    """
    # The inner loops run over candidates, which lie side by side: each candidate's sum keeps its order.
    for u in range(first, len(L)):
        own = parts[u, start:stop]
        own[:] = inner[u, start:stop]
        for v in range(u):
            factor = L[u, v]
            other = parts[v, start:stop]
            for i in range(len(own)):
                own[i] -= factor * other[i]
        for i in range(len(own)):
            own[i] /= L[u, u]
    left = rest[start:stop]
    left[:] = norms[start:stop]
    for u in range(len(L)):
        own = parts[u, start:stop]
        for i in range(len(own)):
            part = own[i]
            left[i] -= part * part


@kernel
def _leave_one_out(parts: Float, rest: Float, directions: Float, k: int, out: Float) -> None:
    """Write the squared distances to the span of all anchors but k to `out` (c,). directions: (r, r) L^-1."""
    out[:] = 0.0
    square = 0.0
    for u in range(k, len(parts)):
        factor = directions[u, k]
        own = parts[u]
        square += factor * factor
        for i in range(len(out)):
            out[i] += factor * own[i]
    for i in range(len(out)):
        along = out[i]
        out[i] = rest[i] + along * along / square
