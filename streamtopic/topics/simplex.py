"""Least squares over the simplex, solved exactly by active sets.

min over c in the simplex of 1/2 c^T G c - b^T c, one problem a row of B, all with the same G (r, r). A support is
grown and shrunk until the conditions of optimality hold; then the answer is solved once more on the final support in
index order, so that it depends on (G, b, support) only and not on the path there.
"""

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.topics.threads import each

__all__ = ["project_rows", "solve_rows"]

Float = npt.NDArray[np.float64]
_CHUNK = 1024


def solve_rows(G: Float, B: Float, start: Float | None = None) -> Float:
    """Return C (n, r), each row the minimiser for that row of B (n, r).

    G: (r, r) positive definite. start: (n, r) rows on the simplex (or zero) whose support is tried first; None starts
    at the best vertex. A row that does not settle within its iteration limit is returned feasible; the certificate
    then says how far off it is.
    """
    C = np.zeros_like(B) if start is None else start.copy()
    G = np.ascontiguousarray(G)
    edges = range(0, len(B), _CHUNK)
    each(_solve_rows, [(G, B[k : k + _CHUNK], C[k : k + _CHUNK]) for k in edges])
    return C


def project_rows(V: Float) -> Float:
    """Project each row of V (n, r) on the simplex in Euclidean distance, by sorting."""
    ordered = -np.sort(-V, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, V.shape[1] + 1)
    last = V.shape[1] - 1 - np.argmax((ordered > excess)[:, ::-1], axis=1)
    return np.asarray(np.maximum(V - excess[np.arange(len(V)), last][:, None], 0.0))


@numba.njit(cache=True, nogil=True)
def _factor(G: Float, support: npt.NDArray[np.int64], L: Float, done: int, size: int) -> bool:
    """Extend the Cholesky factor of G on `support` from `done` to `size` rows; False where a pivot vanishes."""
    for i in range(done, size):
        for j in range(i + 1):
            total = G[support[i], support[j]]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                if total <= 1e-14 * G[support[i], support[i]]:
                    return False
                L[i, i] = np.sqrt(total)
            else:
                L[i, j] = total / L[j, j]
    return True


@numba.njit(cache=True, nogil=True)
def _on_support(L: Float, b: Float, support: npt.NDArray[np.int64], size: int, y: Float, v: Float) -> None:
    """Solve the equality-constrained problem on the support: y minimises, sum(y) = 1."""
    for i in range(size):
        first, second = b[support[i]], 1.0
        for k in range(i):
            first -= L[i, k] * y[k]
            second -= L[i, k] * v[k]
        y[i] = first / L[i, i]
        v[i] = second / L[i, i]
    for i in range(size - 1, -1, -1):
        first, second = y[i], v[i]
        for k in range(i + 1, size):
            first -= L[k, i] * y[k]
            second -= L[k, i] * v[k]
        y[i] = first / L[i, i]
        v[i] = second / L[i, i]
    excess, scale = -1.0, 0.0
    for i in range(size):
        excess += y[i]
        scale += v[i]
    for i in range(size):
        y[i] -= v[i] * (excess / scale)


@numba.njit(cache=True, nogil=True)
def _solve_row(  # noqa: C901, PLR0912  one loop of the active-set method; numba inlines no closures
    G: Float, b: Float, c: Float, support: npt.NDArray[np.int64], L: Float, y: Float, v: Float, g: Float
) -> None:
    r = len(b)
    size = 0
    for k in range(r):
        if c[k] > 0.0:
            support[size] = k
            size += 1
    if size == 0:
        best = 0
        for k in range(r):
            if 0.5 * G[k, k] - b[k] < 0.5 * G[best, best] - b[best]:
                best = k
        c[best] = 1.0
        support[0] = best
        size = 1
    done = 0
    in_order = True
    for _ in range(20 * r + 20):
        if not _factor(G, support, L, done, size):
            # The newest word of the support depends on the others: it cannot improve on them.
            size -= 1
            c[support[size]] = 0.0
            in_order = False
            break
        done = size
        _on_support(L, b, support, size, y, v)
        step, blocking = 1.0, -1
        for i in range(size):
            if y[i] <= 0.0:
                value = c[support[i]]
                ratio = value / (value - y[i]) if value > y[i] else 0.0
                if ratio < step or blocking < 0:
                    step, blocking = ratio, i
        if blocking >= 0:
            for i in range(size):
                c[support[i]] += step * (y[i] - c[support[i]])
            c[support[blocking]] = 0.0
            for i in range(blocking, size - 1):
                support[i] = support[i + 1]
            size -= 1
            done = blocking
            in_order = False
            continue
        for i in range(size):
            c[support[i]] = y[i]
        entering = _entering(G, b, c, support, size, g)
        if entering < 0:
            break
        in_order = False
        support[size] = entering
        size += 1
    # A support that was right at once has been solved in index order already.
    if not in_order:
        _settle(G, b, c, support, L, y, v)


@numba.njit(cache=True, nogil=True)
def _entering(G: Float, b: Float, c: Float, support: npt.NDArray[np.int64], size: int, g: Float) -> int:
    """Return the index whose gradient lies furthest below the support's, beyond rounding, or -1."""
    for k in range(len(b)):
        g[k] = -b[k]
    magnitude = 0.0
    for i in range(size):
        j = support[i]
        row = G[j]
        for k in range(len(b)):
            g[k] += c[j] * row[k]
        magnitude = max(magnitude, abs(b[j]))
    level = 0.0
    for i in range(size):
        level += g[support[i]]
    level /= size
    slack = 64 * 2.22e-16 * (magnitude + abs(level))
    for i in range(size):
        g[support[i]] = level
    entering = -1
    lowest = level - slack
    for k in range(len(b)):
        if g[k] < lowest:
            lowest = g[k]
            entering = k
    return entering


@numba.njit(cache=True, nogil=True)
def _settle(G: Float, b: Float, c: Float, support: npt.NDArray[np.int64], L: Float, y: Float, v: Float) -> None:
    """Solve once more on the support in index order, dropping what rounding has made negative."""
    while True:
        size = 0
        for k in range(len(b)):
            if c[k] > 0.0:
                support[size] = k
                size += 1
        if not _factor(G, support, L, 0, size):
            return
        _on_support(L, b, support, size, y, v)
        positive = True
        for i in range(size):
            if y[i] <= 0.0:
                positive = False
                c[support[i]] = 0.0
        if positive:
            for i in range(size):
                c[support[i]] = y[i]
            return


@numba.njit(cache=True, nogil=True)
def _solve_rows(G: Float, B: Float, C: Float) -> None:
    r = G.shape[0]
    support = np.empty(r + 1, np.int64)
    L = np.empty((r + 1, r + 1))
    y, v, g = np.empty(r + 1), np.empty(r + 1), np.empty(r)
    for row in range(len(B)):
        _solve_row(G, B[row], C[row], support, L, y, v, g)
