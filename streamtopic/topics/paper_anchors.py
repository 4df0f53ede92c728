"""The anchor search of the published learner: farthest rows of Qbar, then the swap pass (RecoverAnchors).

Every operation is an IEEE double operation in a fixed order, in word order. So the same
counts give the same anchors on any machine, by any number of threads, cold or after updates of any kind. A tie cannot
fall two ways: of rows that are equally far out by these very operations the first wins.
Source: Arora et al. 2013, algorithm 4 without its random projection; docs/proof-paper-anchors.md.

The greedy search looks at few rows. With chosen rows s_0, s_1, ... and b_iu = <q_i, q_su>, one more row of a Cholesky
factor belongs to each candidate i:

    y_iu   = (b_iu - sum over v < u of y_iv L_uv) / L_uu,    L_u = (y_v of row s_u for v < u; sqrt of its distance^2)
    distance^2 to the span of the first t = |q_i|^2 - sum over u < t of y_iu^2

Distances only shrink, in floating point too. So a distance that is out of date is an upper bound, and a row is brought
up to date only while it could still win. The numbers of a row do not depend on when that happens. So the chosen rows
are those of a search that computes everything.
"""

import numpy as np

from streamtopic.compiled import allocating, kernel
from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.learner_options import too_few_words, too_much_alike
from streamtopic.topics.products import times
from streamtopic.topics.reproducible import check_arithmetic, cholesky, chunks, each_span, solve_lower

__all__ = ["LazyGreedy", "farthest_rows", "row_dot", "row_norms"]

_UNIT = 2.0**-53
_CHUNK = 256


def row_norms(q: SymmetricCounts, rows: Positions, scale: Float) -> Float:
    """Return squared norms of scaled rows, (len(rows),), summed in column order."""
    norms: Float = _row_norms(q.rows, rows, scale)
    return norms


class LazyGreedy:
    """The greedy search, one row a step.

    norms: (c,) squared norms of the candidates' scaled rows.
    anchors: (n, r) the chosen scaled rows, as columns.
    chosen: their positions among the candidates.
    """

    def __init__(self, q: SymmetricCounts, candidates: Positions, mass: Int64, r: int) -> None:
        self.q = q
        self.candidates = candidates
        self.scale = 1.0 / mass[candidates].astype(float)
        self.norms = row_norms(q, candidates, self.scale)
        # Rounding can make a distance of 0 as large as this. It is a function of the counts, so that a search that
        # stops here stops everywhere.
        self.floor = 2.0 * (q.n + r + 8) * _UNIT * float(self.norms.max())
        self.chosen: list[int] = []
        # One column for each chosen row. Fixed strides keep the products of a row in the cache.
        self.anchors = np.zeros((q.n, r))
        self._distances = self.norms.copy()
        self._fresh = np.zeros(len(candidates), np.int64)
        self._parts = np.zeros((len(candidates), r))
        self._upper = np.zeros((r, r))

    def step(self) -> None:
        """Choose the next row. Raises CannotLearn if no row leaves the span of those chosen."""
        t = len(self.chosen)
        row = self._front()
        distance = float(self._distances[row])
        if not distance > self.floor:
            raise too_much_alike(len(self._upper))
        self._distances[row] = -1.0
        self._upper[:t, t] = self._parts[row, :t]
        self._upper[t, t] = np.sqrt(distance)
        self.set_anchor(t, row)
        self.chosen.append(row)

    def set_anchor(self, t: int, row: int) -> None:
        """Make a candidate's scaled row column t of the anchors."""
        column = self.anchors[:, t]
        column[:] = 0.0
        word = self.candidates[row]
        _write_row(self.q.rows, word, self.scale[row], column)

    def _front(self) -> int:
        """Return the first of the farthest rows, brought up to date."""
        found = _front(
            self.q.rows, self.candidates, self.scale,
            self._distances, self._fresh, self._parts, self._upper, self.anchors, len(self.chosen),
        )  # fmt: skip
        return int(found)


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
def row_dot(q: Compact, row: int, directions: Float, scale: float) -> Float:
    """Return the inner products of one scaled row with columns of `directions` (n, d), (d,), summed in column order."""
    products = np.zeros(directions.shape[1])
    w = q.wide_indptr[row]
    for k in range(q.indptr[row], q.indptr[row + 1]):
        exact, w = read(q, k, w)
        value = float(exact) * scale
        at = directions[q.columns[k]]
        for d in range(len(products)):
            products[d] += value * at[d]
    return products


@kernel
def _write_row(q: Compact, row: int, scale: float, out: Float) -> None:
    """Write the entries of a scaled row to `out` (n,)."""
    w = q.wide_indptr[row]
    for k in range(q.indptr[row], q.indptr[row + 1]):
        exact, w = read(q, k, w)
        out[q.columns[k]] = float(exact) * scale


@allocating
def _front(
    q: Compact, candidates: Positions, scale: Float,
    distances: Float, fresh: Int64, parts: Float, upper: Float, anchors: Float, found: int,
) -> int:  # fmt: skip
    """Bring the farthest row up to date until one stays the farthest. Return it.

    distances: (c,) squared distances, -1 for chosen rows.
    fresh: (c,) how many chosen rows each distance takes into account.
    parts: (c, r) y of the module's docstring.
    upper: (r, r) L^T.
    anchors: (n, r) the chosen rows.
    found: how many rows are chosen.
    """
    while True:
        row = 0
        for i in range(1, len(distances)):
            if distances[i] > distances[row]:
                row = i
        first = fresh[row]
        if distances[row] < 0.0 or first == found:
            return row
        new = anchors[:, first:found]
        left = row_dot(q, candidates[row], new, scale[row])
        own = parts[row]
        distance = distances[row]
        for v in range(first):
            factor = own[v]
            for u in range(first, found):
                left[u - first] -= factor * upper[v, u]
        for v in range(first, found):
            factor = left[v - first] / upper[v, v]
            own[v] = factor
            distance -= factor * factor
            for u in range(v + 1, found):
                left[u - first] -= factor * upper[v, u]
        distances[row] = max(distance, 0.0)
        fresh[row] = found


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
    # Without the paper's random projection: a lazy search visits few rows, so exact distances cost less.
    search = LazyGreedy(q, candidates, mass, r)
    for _ in range(r):
        search.step()
    swaps = _SwapPass(search)
    for k in range(r):
        swaps.step(k)
    return np.asarray(np.sort(candidates[swaps.chosen]))


class _SwapPass:
    """The swap pass: each anchor in turn is replaced by the row farthest from the span of the others.

    With G = L L^T the Gram matrix of the anchors' rows, L y_i = b_i and m_k column k of L^-1:

        distance^2 of row i to the span of all anchors but k = |q_i|^2 - |y_i|^2 + (m_k . y_i)^2 / |m_k|^2

    chosen: (r,) positions among the candidates.
    """

    def __init__(self, search: LazyGreedy) -> None:
        self.search = search
        self.chosen = np.array(search.chosen, np.intp)
        # A row for each anchor u: b_iu and y_iu of all candidates i side by side, so that each is summed in order.
        self.inner = np.empty((len(self.chosen), len(search.norms)))
        self.parts = np.empty_like(self.inner)
        self.rest = np.empty_like(search.norms)
        self._multiply(slice(None))
        self._factor(0)

    def step(self, k: int) -> None:
        """Decide on anchor k."""
        distances = np.empty_like(self.rest)
        _leave_one_out(self.parts, self.rest, self.directions, k, distances)
        # The other anchors stay, so they cannot take its place.
        others = np.delete(self.chosen, k)
        distances[others] = -1.0
        # Of equal rows the first.
        row = int(np.argmax(distances))
        if row != self.chosen[k]:
            self.chosen[k] = row
            self.search.set_anchor(k, row)
            self._multiply(slice(k, k + 1))
            self._factor(k)

    def _multiply(self, some: slice) -> None:
        """Take the inner products of all candidates with some anchors."""
        thin = np.ascontiguousarray(self.search.anchors[:, some])
        product = times(self.search.q, thin, self.search.candidates)
        _scale_across(product, self.search.scale, self.inner[some])

    def _factor(self, first: int) -> None:
        """Factor the anchors' Gram matrix and eliminate. The anchors before `first` are those of the last time."""
        r = len(self.chosen)
        c = len(self.rest)
        gram = self.inner[:, self.chosen].T
        L, pivots = cholesky(np.ascontiguousarray(gram))
        if pivots < r:
            raise too_much_alike(r)
        self.directions = solve_lower(L, np.eye(r))
        norms = self.search.norms
        arrays = self.inner, L, first, norms, self.parts, self.rest
        each_span(_eliminate, arrays, chunks(c, _CHUNK))


@kernel
def _scale_across(product: Float, scale: Float, out: Float) -> None:
    """Write rows of a product (c, r), each times its scale (c,), to columns of `out` (r, c)."""
    for i in range(len(scale)):
        for u in range(len(out)):
            out[u, i] = product[i, u] * scale[i]


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
