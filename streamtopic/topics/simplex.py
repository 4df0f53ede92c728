"""Least squares over the simplex, solved exactly by active sets.

min over c in the simplex of 1/2 c^T G c - b^T c, one problem for each row of B, all with the same G (r, r). A support
is grown and shrunk until the conditions of optimality hold. Then the answer is solved once more on the final support in
index order, so that it depends on (G, b, support) only and not on the path there.

Every row that is returned is a point of the simplex: not negative, its sum 1 up to the rounding of a division. If G
is so near to singular that pivots vanish, it is the best point that was reached, and the certificate says how far off
it is. Rows are solved one by one in a fixed sequence of operations, without a library. So their bits are the same on
every machine and for any number of threads.
"""

import numpy as np

from streamtopic.compiled import Whole, kernel, once
from streamtopic.counts.arrays import Float, Int64, Mask
from streamtopic.topics.reproducible import cholesky, chunks, each, solve_lower

__all__ = ["holders", "project_rows", "solve_rows"]


_CHUNK = 1024
# A pivot below this share of its diagonal entry is rounding: its anchor depends on those before it.
_VANISHED = 2.0**-46
# A gradient is a difference of two numbers. Sixteen units of their sizes: rounding alone could make a smaller gain.
_SLACK = 2.0**-49


def solve_rows(G: Float, B: Float, start: Float | None = None) -> Float:
    """Return C (n, r), each row the minimiser for that row of B.

    G: (r, r) positive definite.
    B: (n, r).
    start: (n, r) rows, not negative, whose support is tried first. None, or a row of zeros, starts at the best vertex:
        the answer is then a function of G and the row of B.
    A row that does not settle within its iteration limit is returned as it is then. The certificate says how far off it
    is.
    """
    C = np.zeros_like(B) if start is None else start.copy()
    _solve_all(G, B, C, 0.0, np.zeros(len(G)))
    return C


def holders(G: Float, B: Float, least: float) -> Int64:
    """Return the topic of which each row's minimiser holds `least` or more, (n,), or -1.

    G, B: as in `solve_rows`. Every row starts from the best vertex.
    least: a share above a half, so that no row holds it of two topics.
    The answer is a function of G and the row, to the bit, also if rounding errs.
    """
    L, rank = cholesky(np.ascontiguousarray(G))
    r = len(G)
    # A row is left as soon as its answer is clear, so most rows take half as long. At a point c of the simplex with a
    # duality gap g the minimiser c* has |c - c*|_G^2 <= g, so |c_k - c*_k| <= sqrt(g (G^-1)_kk).
    reach = np.full(r, np.inf)
    if rank == r:
        inverse = solve_lower(L, np.eye(r))
        # A running sum: the bits must not depend on how numpy takes a sum apart.
        squares = np.cumsum(inverse * inverse, axis=0)[-1]
        reach = np.sqrt(squares)
    C = np.zeros_like(B)
    _solve_all(G, B, C, least, reach)
    best = np.argmax(C, axis=1)
    largest = C[np.arange(len(C)), best]
    topics = np.where(largest >= least, best, -1)
    return topics.astype(np.int64)


def _solve_all(G: Float, B: Float, C: Float, least: float, reach: Float) -> None:
    """Solve all rows in place, by all threads."""
    G = np.ascontiguousarray(G)
    spans = chunks(len(B), _CHUNK)
    parts = [(G, B[start:stop], C[start:stop], least, reach, *_memory(len(G))) for start, stop in spans]
    each(_solve_rows, parts)


def _memory(r: int) -> tuple[Int64, Float, Float, Float, Float, Mask]:
    """Return what `_solve_rows` writes to on its way: support, L, y, v, g, barred."""
    more = r + 1
    support = np.empty(more, np.int64)
    L = np.empty((more, more))
    y, v, g = np.empty(more), np.empty(more), np.empty(r)
    barred = np.empty(r, np.bool_)
    return support, L, y, v, g, barred


def project_rows(V: Float) -> Float:
    """Project each row of V (n, r) on the simplex in Euclidean distance, by sorting."""
    n, r = V.shape
    ordered = -np.sort(-V, axis=1)
    # For each number of largest entries: how far they all have to fall, if they alone stay above 0.
    sums = np.cumsum(ordered, axis=1)
    excess = (sums - 1.0) / np.arange(1, r + 1)
    above = ordered > excess
    backwards = above[:, ::-1]
    last = r - 1 - np.argmax(backwards, axis=1)
    fall = excess[np.arange(n), last]
    return np.asarray(np.maximum(V - fall[:, None], 0.0))


@once
def _factor(G: Float, support: Int64, L: Float, done: Whole, size: Whole) -> Whole:
    """Extend the Cholesky factor of G on `support` from `done` to `size` rows.

    Return the first row whose pivot vanishes, or `size` if none does.
    """
    for i in range(done, size):
        for j in range(i + 1):
            total = G[support[i], support[j]]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total > _VANISHED * G[support[i], support[i]]:
                L[i, i] = np.sqrt(total)
            else:
                return i
    return size


@once
def _on_support(L: Float, b: Float, support: Int64, size: Whole, y: Float, v: Float) -> None:
    """Write the minimiser over the support with sum 1 to y (size,). Its entries may be negative. v: memory, (size,)."""
    for i in range(size):
        first = b[support[i]]
        second = 1.0
        for k in range(i):
            first -= L[i, k] * y[k]
            second -= L[i, k] * v[k]
        y[i] = first / L[i, i]
        v[i] = second / L[i, i]
    for i in range(size - 1, -1, -1):
        first = y[i]
        second = v[i]
        for k in range(i + 1, size):
            first -= L[k, i] * y[k]
            second -= L[k, i] * v[k]
        y[i] = first / L[i, i]
        v[i] = second / L[i, i]
    excess, scale = -1.0, 0.0
    for i in range(size):
        excess += y[i]
        scale += v[i]
    # In exact arithmetic the sum of v is positive; if rounding made it 0 or less, y is as bad as the pivots were.
    level = excess / scale if scale > 0.0 else 0.0
    for i in range(size):
        y[i] -= v[i] * level


@once
def _begin(G: Float, b: Float, c: Float, support: Int64) -> Whole:
    """Make c a point of the simplex: the best vertex if c has no support. Return the size of its support."""
    size, total = 0, 0.0
    for k in range(len(b)):
        if c[k] > 0.0:
            support[size] = k
            size += 1
            total += c[k]
        else:
            c[k] = 0.0
    if size > 0 and total < np.inf:
        for i in range(size):
            c[support[i]] /= total
        return size
    best = 0
    lowest = 0.5 * G[0, 0] - b[0]
    for k in range(len(b)):
        c[k] = 0.0
        loss = 0.5 * G[k, k] - b[k]
        if loss < lowest:
            best = k
            lowest = loss
    c[best] = 1.0
    support[0] = best
    return 1


@once
def _drop(c: Float, support: Int64, size: Whole, at: Whole) -> Whole:
    """Take an index out of the support. Its share goes to the others in proportion. Return how many are left."""
    lost = c[support[at]]
    c[support[at]] = 0.0
    for i in range(at, size - 1):
        support[i] = support[i + 1]
    size -= 1
    if lost > 0.0:
        _normalise(c, support, size)
    return size


@once
def _normalise(c: Float, support: Int64, size: Whole) -> None:
    """Scale the shares of the support to sum 1."""
    total = 0.0
    for i in range(size):
        total += c[support[i]]
    if total > 0.0:
        for i in range(size):
            c[support[i]] /= total
        return
    # All that had a share is gone: any other start is as good.
    c[support[0]] = 1.0


@once
def _in_order(c: Float, support: Int64) -> Whole:
    """Write the support of c in index order. Return its size."""
    size: Whole = np.int64(0)
    for k in range(len(c)):
        if c[k] > 0.0:
            support[size] = k
            size += 1
    return size


@once
def _blocking(c: Float, support: Int64, size: Whole, y: Float) -> tuple[Whole, float]:
    """Return the place in the support that is the first to reach 0 on the way from c to y, `size` if none does.

    Return also which share of the way that is.
    """
    step = 1.0
    blocking = size
    for i in range(size):
        if not y[i] > 0.0:
            value = c[support[i]]
            ratio = value / (value - y[i]) if value > y[i] else 0.0
            if ratio < step or blocking == size:
                step, blocking = ratio, i
    return blocking, step


@once
def _settled(c: Float, support: Int64, size: Whole, y: Float) -> bool:
    """Take y as the shares of the support if it is positive; otherwise drop the shares if it is not.

    Return whether there is nothing left to solve. If no entry of y is positive, c stays as it is.
    """
    positive, some = True, False
    for i in range(size):
        if y[i] > 0.0:
            some = True
        else:
            positive = False
    if not some:
        return True
    for i in range(size):
        if positive:
            c[support[i]] = y[i]
        elif not y[i] > 0.0:
            c[support[i]] = 0.0
    return positive


@once
def _entering(G: Float, b: Float, c: Float, support: Int64, size: Whole, g: Float, barred: Mask) -> tuple[Whole, float]:
    """Return the index whose gradient lies furthest below the support's, or -1 if none does beyond rounding.

    Return also how far below: that is the duality gap, since c minimises over the support.
    """
    for k in range(len(b)):
        g[k] = 0.0
    for i in range(size):
        j = support[i]
        for k in range(len(b)):
            g[k] += c[j] * G[j, k]
    level, magnitude = 0.0, 0.0
    for i in range(size):
        k = support[i]
        level += g[k] - b[k]
        magnitude = max(magnitude, g[k] + abs(b[k]))
    level /= size
    entering, lowest = -1, 0.0
    # Members of the support cannot enter again.
    for i in range(size):
        g[support[i]] = np.inf
    for k in range(len(b)):
        if g[k] == np.inf or barred[k]:
            continue
        linear = b[k]
        lead = level - (g[k] - linear)
        noise = _SLACK * (g[k] + abs(linear) + magnitude)
        below = lead - noise
        if below > lowest:
            lowest = below
            entering = k
    return entering, lowest


@once
def _is_clear(c: Float, reach: Float, root: float, least: float) -> bool:
    """Return whether the answer is known: a share stays at `least` or more, or none can reach it.

    reach[k] * root bounds how far share k is from the minimiser's.
    """
    open_shares = 0
    for k in range(len(c)):
        moved = reach[k] * root
        if c[k] - moved >= least:
            return True
        if c[k] + moved >= least:
            open_shares += 1
    return open_shares == 0


@kernel
def _solve_rows(  # noqa: C901, PLR0912, PLR0915  one loop, so that each part of it is compiled for one place only
    G: Float, B: Float, C: Float, least: float, reach: Float,
    support: Int64, L: Float, y: Float, v: Float, g: Float, barred: Mask,
) -> None:  # fmt: skip
    """Solve rows. With least > 0 leave a row as soon as it is clear which share is `least` or more, if one is.

    support, L, y, v, g, barred: memory that all rows of a chunk share.

    First the support of a row is searched for. Then, unless it was right at once, the row is solved once more on the
    support in index order, and shares that rounding has made negative are dropped: the same steps, with `settling`.
    """
    r = len(G)
    for row in range(len(B)):
        b = B[row]
        c = C[row]
        size = _begin(G, b, c, support)
        for k in range(r):
            barred[k] = False
        done: Whole = np.int64(0)
        in_order, settling, clear = True, False, False
        # Rounding might make supports repeat. A row that has not settled by then is as good as its certificate says.
        rounds = 20 * r + 20
        while True:
            if not settling and (rounds == 0 or size == 0):
                settling = True
            rounds -= 1
            if settling:
                size = _in_order(c, support)
                done = np.int64(0)
            leaving = _factor(G, support, L, done, size)
            if leaving < size:
                if settling:
                    break
                # This anchor's row depends on the others of the support: it cannot improve on them.
                barred[support[leaving]] = True
            else:
                done = size
                _on_support(L, b, support, size, y, v)
                if settling:
                    if _settled(c, support, size, y):
                        break
                    continue
                leaving, step = _blocking(c, support, size, y)
                if leaving < size:
                    if step > 0.0:
                        for i in range(size):
                            share = c[support[i]]
                            c[support[i]] += step * (y[i] - share)
                        for k in range(r):
                            barred[k] = False
                    else:
                        # It has just entered and would leave at once: without progress it may not enter again.
                        barred[support[leaving]] = True
                    # The step ends on the face of the simplex. Rounding may have gone a little beyond it.
                    for i in range(size):
                        c[support[i]] = max(c[support[i]], 0.0)
            if leaving < size:
                size = _drop(c, support, size, leaving)
                done = leaving
                in_order = False
                continue
            for i in range(size):
                c[support[i]] = y[i]
            entering, gap = _entering(G, b, c, support, size, g, barred)
            if entering < 0:
                # A support that was right at once has been solved in index order already.
                if in_order:
                    break
                settling = True
                continue
            if least > 0.0 and _is_clear(c, reach, np.sqrt(gap), least):
                clear = True
                break
            in_order = False
            support[size] = entering
            size += 1
        if not clear:
            size = _in_order(c, support)
            _normalise(c, support, size)
