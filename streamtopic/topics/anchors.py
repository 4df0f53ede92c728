"""Chooses anchor words: each has a row of counts that represents a topic, and all other rows are mixtures of such rows.

This is the search of the default learner, with the words that join an anchor (its super-anchor). It is greedy, as that
of the published learner (`paper_anchors`). Both return positions, ascending.

    scaled       S = diag(p)^-1/2 Q diag(p)^-1/2 of the candidates, without its diagonal, as integers of 26 bits
    directions   its r leading directions, by a fixed number of block power steps from a start that the words give
    E            every candidate's row in those directions
    anchors      the row farthest from the origin, then r - 1 times the row farthest from the span of those chosen
    sets         every candidate as a mixture of the anchors; it joins the topic that has .6 or more of it

Rows of guided topics (`guided`) are kept with the anchors that are found. Their directions are taken out of E first, so
no anchor is spent on what they explain already. For sets they are rows like those of anchors, but no word joins them.

All of it is a function of the retained counts. It has the same bits from a cold start or after any number of updates,
on any machine, by any number of threads. So a near tie cannot fall two ways, and needs no rule.
Large products are exact. Both factors are integers of 26 bits with rows and columns no longer than 1. So by Cauchy and
Schwarz every partial sum stays below 2^53, and every order of summation gives the same number. Everything else goes
through `reproducible`. docs/proof.md, "Decisions", has the consequences; docs/decisions/0011 has the reasons.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int32, Int64, Mask, Positions, places
from streamtopic.counts.compact import Compact, value_at
from streamtopic.topics.learner_options import too_much_alike
from streamtopic.topics.reproducible import (
    check_arithmetic,
    cholesky,
    each_span,
    even_spans,
    leading_pairs,
    product,
    solve_lower,
    workers,
)
from streamtopic.topics.simplex import holders

__all__ = [
    "MEMBER",
    "changed_anchors",
    "choose_anchors",
    "coordinates",
    "independent_rows",
    "super_anchors",
    "without_directions",
]

MEMBER = 0.6
"""A candidate joins a super-anchor if at least this share of it lies in the topic."""

# Two factors of 26 bits make products of 52, and sums of these stay exact in a double of 53.
_BITS = 26
_GRID = 2.0**_BITS
# Power steps: a fixed number, so that the same counts always go through the same operations.
_STEPS = 6
# Columns in addition to those that are wanted: they take up the directions just after the last wanted one.
_GUARDS = 16
# Columns that are copied together when a matrix is mirrored: eight lines of memory of each row.
_BLOCK = 64
# Below these shares of the largest, a column, a direction or a row is taken as dependent on those before it.
_LEAST_PIVOT = 2.0**-20
_LEAST_VALUE = 2.0**-16
_LEAST_DISTANCE = 2.0**-30


def changed_anchors(before: Iterable[str], after: Iterable[str]) -> str:
    """Say how many anchor words are gone and which are new."""
    # Words that are gone are not named: reasons are kept, and a forgotten document may have been the last to hold one.
    gone = {*before} - {*after}
    new = {*after} - {*before}
    names = ", ".join(sorted(new)) or "none"
    return f"anchor words changed: {len(gone)} gave way to {names}"


def coordinates(
    q: SymmetricCounts, mass: Int64, candidates: Positions, words: Sequence[str], topics: int, rows: Float
) -> tuple[Float, Float]:
    """Return the candidates' rows in their leading directions, E (c, topics), and other rows in them, (g, topics).

    q: Q over the working vocabulary.
    mass: (n,) row sums.
    candidates: (c,) ascending positions.
    words: (c,) the words of the candidates.
    topics: r.
    rows: (g, c) shares of the candidates in each of the other rows, not all 0.

    The inner product of two rows of E is that of rows of Qbar diag(p)^-1/2, cut to the leading directions.
    Cost: the entries of the candidates' rows, and about 20 c^2 topics.
    Raises CannotLearn if the counts span too few directions, UnreliableArithmetic if this machine does not
    compute as others do.
    """
    check_arithmetic()
    # A word that meets itself tells nothing about topics, so the diagonal counts only if the rest spans too little.
    for diagonal in (False, True):
        S = _scaled(q, mass, candidates, diagonal=diagonal)
        values, Y, moved, rotation = _directions(S, words, topics)
        if len(values) == topics and values[-1] > _LEAST_VALUE * values[0]:
            p = _shares(mass, candidates)
            return _rows(moved, rotation, p), _placed(rows, Y, rotation, p)
    raise too_much_alike(topics)


def choose_anchors(E: Float) -> Positions:
    """Choose r rows of E (c, r), greedily. Return their positions, ascending. Ties go to the first word.

    Raises CannotLearn if the rows span fewer than r directions.
    """
    c, r = E.shape
    chosen = np.empty(r, np.intp)
    found = _greedy(E.copy(order="C"), np.zeros(c), np.empty(r), chosen)
    if found < r:
        raise too_much_alike(r)
    return np.asarray(np.sort(chosen))


def without_directions(E: Float, guided: Float) -> Float:
    """Return E without the directions of guided rows, (c, r - g). Inner products are those of the rest of each row.

    E: (c, r) rows of the candidates.
    guided: (g, r) other rows in the same directions, independent of each other as `independent_rows` says.
    """
    g, r = guided.shape
    if not g:
        return E
    unit, gram = _unit_rows(guided)
    L, _ = cholesky(gram)
    basis = solve_lower(L, unit)
    guided_part = product(np.ascontiguousarray(basis.T), basis)
    rest = np.eye(r) - guided_part
    _, directions = leading_pairs(rest, r - g)
    return product(np.ascontiguousarray(E), directions)


def independent_rows(rows: Float) -> Mask:
    """Return which of some rows are independent of those before them, (g,). rows: (g, r)."""
    _, gram = _unit_rows(rows)
    return _pivots(gram)


def _unit_rows(rows: Float) -> tuple[Float, Float]:
    """Return rows of length 1, (g, r), and their inner products, (g, g)."""
    columns = np.ascontiguousarray(rows.T)
    unit = np.ascontiguousarray(_normalised(columns).T)
    return unit, product(unit, np.ascontiguousarray(unit.T))


def super_anchors(E: Float, anchors: Positions, guided: Float) -> Int64:
    """Return the topic that each candidate represents, (c,), or -1 for none.

    An anchor represents its topic, and so does a row with a share of `MEMBER` or more in it. Shares are those of the
    row as a mixture of the anchors' rows, by least squares over the simplex.

    E: (c, r) rows of the candidates.
    anchors: (r - g,) ascending positions in E.
    guided: (g, r) rows of guided topics, which hold parts of words as well.
    """
    rows = np.concatenate([E[anchors], guided])
    chosen = np.ascontiguousarray(rows.T)
    B = product(np.ascontiguousarray(E), chosen)
    G = product(np.ascontiguousarray(rows), chosen)
    group = holders(G, B, MEMBER)
    # The seeds of a guided topic represent it, and no other word.
    group[group >= len(anchors)] = -1
    # An anchor is its own topic by definition, also if rounding or another anchor would say otherwise.
    group[anchors] = np.arange(len(anchors))
    return group


def _scaled(q: SymmetricCounts, mass: Int64, candidates: Positions, *, diagonal: bool) -> Float:
    """Return the integers nearest to 2^26 Q_ij / sqrt(M_i M_j) for the candidates, (c, c), symmetric to the bit.

    No row is longer than 1: the matrix is similar to a part of Qbar, whose rows sum to 1, and has no negative entry.
    """
    c = len(candidates)
    place = places(q.n, candidates, np.int32)
    own = mass[candidates].astype(float)
    scale = np.zeros(q.n)
    scale[candidates] = 1.0 / np.sqrt(own)
    out = np.zeros((c, c))
    uncounted = q.uncounted
    if uncounted is None:
        same = (q.rows, candidates, place, scale, diagonal, out)
        # Four spans a thread: rows differ in length, and so do the spans' times.
        spans = [(*span, np.empty(q.n + 1, np.int64)) for span in even_spans(c, 4 * workers())]
        each_span(_fill_scaled, same, spans)
    else:
        # Few pairs are pairs of candidates, so these alone are counted.
        for block in uncounted.blocks(candidates):
            _fill_counted(block.first, block.sizes, block.columns, block.values, scale[candidates], diagonal, out)
    each_span(_mirror, (out,), even_spans(c, 4 * workers()))
    return out


def _directions(S: Float, words: Sequence[str], topics: int) -> tuple[Float, Float, Float, Float]:
    """Return the largest Ritz values, descending, a basis Y (c, k), S Y, and the basis of their directions, (k, r).

    Y is in integers of 26 bits. There are fewer values than topics if fewer directions were found.
    """
    c = len(S)
    # Half as many columns again and 16 as guards: directions after them are weakened smoothly, and none is cut off.
    width = min(c, topics + topics // 2 + _GUARDS)
    # Signs of few words may depend on each other. If every direction is asked for, any basis will do.
    Y = np.eye(c) if width == c else _start(words, width)
    for step in range(_STEPS):
        Z = _times_exactly(S, Y)
        # Every second step: between two, columns lean to each other by the square of the spread of S at most.
        Y = _quantised(_normalised(Z)) if step % 2 == 0 else _orthonormal(Z)
    Z = _times_exactly(S, Y)
    # In place: Z is as large as the candidates times the directions. A factor that is a power of 2 does not round.
    Z *= 1.0 / _GRID**2
    H = Y.T @ _quantised(Z)
    both = H + H.T
    symmetric = np.ascontiguousarray(both * (0.5 / _GRID**2))
    values, rotation = leading_pairs(symmetric, min(topics, width))
    positive = int(np.count_nonzero(values > 0))
    return values[:positive], Y, Z, rotation


def _times_exactly(S: Float, Y: Float) -> Float:
    """Return S Y, (c, k), for a symmetric S and integers of 26 bits, whose sums are exact in any order."""
    # As the transpose of Y^T S: a library for linear algebra takes half as long with the large matrix on the right.
    moved = Y.T @ S
    return np.ascontiguousarray(moved.T)


def _start(words: Sequence[str], width: int) -> Float:
    """Return a matrix of 1 and -1, (c, width), row i a function of word i alone: other words may come and go."""
    size = -(-width // 8)
    digests = bytearray()
    for word in words:
        data = word.encode("utf-8", "surrogatepass")
        digests += hashlib.shake_128(data).digest(size)
    raw = np.frombuffer(digests, np.uint8)
    by_word = raw.reshape(len(words), -1)
    bits = np.unpackbits(by_word, axis=1)
    signs = bits[:, :width]
    return np.asarray(1.0 - 2.0 * signs, np.float64)


def _normalised(Z: Float) -> Float:
    """Return Z with columns of length 1; a column of zeros stays one."""
    lengths = _column_lengths(Z)
    divisors = np.where(lengths > 0, lengths, 1.0)
    return np.asarray(Z / divisors)


def _orthonormal(Z: Float) -> Float:
    """Return an orthonormal basis of the columns of Z (c, k) in integers of 26 bits, 0 if a column adds nothing."""
    columns = _quantised(_normalised(Z))
    gram = columns.T @ columns / _GRID**2
    kept = np.flatnonzero(_pivots(np.ascontiguousarray(gram)))
    basis = np.zeros_like(columns)
    among = gram[np.ix_(kept, kept)]
    L, _ = cholesky(np.ascontiguousarray(among))
    independent = np.ascontiguousarray(columns[:, kept] / _GRID)
    # A column of L as a row, so that the inner loop reads numbers that lie side by side.
    _by_inverse(independent, np.ascontiguousarray(L.T))
    basis[:, kept] = independent
    return _quantised(basis)


def _quantised(Y: Float) -> Float:
    """Return the integers nearest to 2^26 Y, columns no longer than 1."""
    return np.rint(Y * _GRID)


def _rows(moved: Float, rotation: Float, p: Float) -> Float:
    """Return E = diag(p)^-1/2 S Y R (c, r), for S Y (c, k) as `moved` and R (k, r) as `rotation`."""
    E = product(np.ascontiguousarray(moved), np.ascontiguousarray(rotation))
    return np.asarray(E / np.sqrt(p)[:, None])


def _shares(mass: Int64, candidates: Positions) -> Float:
    """Return the candidates' shares of all mass, p (c,)."""
    # Python's integers, since the sum of masses may leave 64 bits.
    total = float(sum(mass.tolist()))
    own = mass[candidates].astype(float)
    return np.asarray(own / total)


def _placed(rows: Float, Y: Float, rotation: Float, p: Float) -> Float:
    """Return x diag(p)^-1/2 Y R for each of some rows x of shares, (g, r).

    rows: (g, c).
    Y: (c, k) in integers of 26 bits.
    rotation: R (k, r).
    """
    if not len(rows):
        return np.zeros((0, rotation.shape[1]))
    scaled = np.ascontiguousarray((rows / np.sqrt(p)).T)
    lengths = _column_lengths(scaled)
    # Rows of length 1 in integers of 26 bits, so that their product with Y is exact.
    unit = _quantised(_normalised(scaled))
    moved = unit.T @ Y
    moved *= 1.0 / _GRID**2
    placed = product(np.ascontiguousarray(moved), np.ascontiguousarray(rotation))
    return np.asarray(placed * lengths[:, None])


@kernel
def _fill_scaled(
    q: Compact,
    rows: Positions,
    place: Int32,
    scale: Float,
    diagonal: bool,  # noqa: FBT001  numba takes no keywords
    out: Float,
    start: int,
    stop: int,
    found: Int64,
) -> None:
    """Fill rows start ... stop - 1 of `out` (c, c), from the diagonal on.

    rows: (c,) positions in Q, ascending.
    place, scale: (n,) by position in Q.
    found: memory of this span, (n + 1,).
    """
    for i in range(start, stop):
        row = rows[i]
        target = out[i]
        own = scale[row]
        count = np.int64(0)
        # From the end of the row to its diagonal, since reading is the cost: the other half is a copy. Most columns are
        # not candidates, so no branch depends on that, and their values are not read.
        for k in range(q.indptr[row + 1] - 1, q.indptr[row] - 1, -1):
            column = q.columns[k]
            if column < row:
                break
            found[count] = k
            count += np.int64(place[column] >= 0)
        for t in range(count):
            k = found[t]
            column = q.columns[k]
            j = place[column]
            if diagonal or j != i:
                # The product of the scales first: it is the same for (i, j) and (j, i).
                scales = own * scale[column]
                target[j] = np.rint(float(value_at(q, row, k)) * scales * _GRID)


@kernel
def _fill_counted(
    first: int,
    sizes: Int64,
    columns: Int32,
    values: Int64,
    scale: Float,
    diagonal: bool,  # noqa: FBT001  numba takes no keywords
    out: Float,
) -> None:
    """Fill rows first ... of `out` (c, c), from the diagonal on, with the counts of a block. scale: (c,)."""
    k = 0
    for i in range(len(sizes)):
        row = first + i
        for _ in range(sizes[i]):
            if diagonal or columns[k] != row:
                scales = scale[row] * scale[columns[k]]
                out[row, columns[k]] = np.rint(float(values[k]) * scales * _GRID)
            k += 1


@kernel
def _mirror(out: Float, start: int, stop: int) -> None:
    """Copy the entries after the diagonal of `out` (c, c) to rows start ... stop - 1 before it."""
    # In blocks, so that lines of memory that one row has read are still at hand for the next one.
    for first in range(0, stop, _BLOCK):
        for i in range(max(start, first + 1), stop):
            row = out[i]
            for j in range(first, min(first + _BLOCK, i)):
                row[j] = out[j, i]


def _column_lengths(Z: Float) -> Float:
    """Return the lengths of columns, (k,)."""
    k = Z.shape[1]
    largest = np.zeros(k)
    squares = np.zeros(k)
    _scaled_squares(Z, largest, squares)
    return np.asarray(np.sqrt(squares) * largest)


@kernel
def _scaled_squares(Z: Float, largest: Float, squares: Float) -> None:
    """Fill in the size of each column's largest entry, 1 for a column of zeros, and the sum of squares in its unit."""
    # Divided by the largest entry first, so that no square leaves the range of doubles.
    k = Z.shape[1]
    for i in range(len(Z)):
        row = Z[i]
        for j in range(k):
            largest[j] = max(largest[j], abs(row[j]))
    for j in range(k):
        if largest[j] == 0.0:
            largest[j] = 1.0
    for i in range(len(Z)):
        row = Z[i]
        for j in range(k):
            part = row[j] / largest[j]
            squares[j] += part * part


def _pivots(gram: Float) -> Mask:
    """Return which columns are independent of those before them, (k,)."""
    kept = np.zeros(len(gram), np.bool_)
    _keep_pivots(gram, _LEAST_PIVOT, np.zeros(gram.shape), kept)
    return kept


@kernel
def _keep_pivots(gram: Float, least: float, L: Float, kept: Mask) -> None:
    """Mark the columns of which more than `least` of their square is left. L: memory, (k, k) zeros."""
    k = len(gram)
    for i in range(k):
        for j in range(i):
            if kept[j]:
                total = gram[i, j]
                for t in range(j):
                    total -= L[i, t] * L[j, t]
                L[i, j] = total / L[j, j]
        pivot = gram[i, i]
        for t in range(i):
            pivot -= L[i, t] * L[i, t]
        if pivot > least:
            kept[i] = True
            L[i, i] = np.sqrt(pivot)
        else:
            for t in range(i):
                L[i, t] = 0.0


@kernel
def _by_inverse(Z: Float, U: Float) -> None:
    """Replace Z (c, k) by Z U^-1, U upper triangular: each entry is taken off all entries after it at once."""
    k = len(U)
    for i in range(len(Z)):
        row = Z[i]
        for j in range(k):
            other = U[j]
            row[j] /= other[j]
            factor = row[j]
            for t in range(j + 1, k):
                row[t] -= factor * other[t]


@kernel
def _greedy(residual: Float, distances: Float, direction: Float, chosen: Positions) -> int:
    """Return how many rows were chosen.

    residual: (c, r) the rows; what the chosen ones span is taken off them.
    distances: (c,) zeros.
    direction: memory, (r,).
    chosen: (r,) filled with the chosen rows in the order of choice, fewer than r if no row is left outside the span.
    """
    c, r = residual.shape
    largest = 0.0
    for t in range(r):
        best = -1
        for i in range(c):
            row = residual[i]
            total = 0.0
            for k in range(r):
                total += row[k] * row[k]
            taken = distances[i] < 0.0
            if not taken:
                distances[i] = total
                if best < 0 or total > distances[best]:
                    best = i
        farthest = distances[best]
        if t == 0:
            largest = farthest
        if best < 0 or not farthest > _LEAST_DISTANCE * largest:
            return t
        chosen[t] = best
        length = np.sqrt(farthest)
        for k in range(r):
            direction[k] = residual[best, k] / length
        # Below every distance, so that a chosen row never wins again.
        distances[best] = -1.0
        for i in range(c):
            row = residual[i]
            part = 0.0
            for k in range(r):
                part += row[k] * direction[k]
            for k in range(r):
                row[k] -= part * direction[k]
    return len(chosen)
