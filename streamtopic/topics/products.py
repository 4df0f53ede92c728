"""Products of the integer matrix Q with thin float matrices, their change with Q, and sums of its rows.

Each entry is summed in column order by one thread. So the same rows give the same bits for any number of threads, and
entries that have become zero change nothing.
"""

from itertools import pairwise

import numpy as np

from streamtopic.compiled import Whole, kernel
from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int32, Int64, Positions, places
from streamtopic.counts.batch import row_ends
from streamtopic.counts.compact import Compact, read
from streamtopic.counts.symmetric import Uncounted
from streamtopic.topics.reproducible import chunks, each_span, workers

__all__ = [
    "BLOCK",
    "add_times_sparse",
    "column_sums",
    "dense_rows",
    "grouped_rows",
    "product_roundings",
    "product_shift",
    "shift_costs_more",
    "shift_roundings",
    "times",
]

BLOCK = 256
"""Columns whose terms of a product are summed by themselves."""

# Rows that share a pass over the blocks of V: their own sums stay in the cache meanwhile.
_PANEL = 1024
# So many columns are multiplied four at a time, in a pass over Q for each four.
_FEW = 8
# Numbers that a compiled loop adds at once if they lie side by side.
_WIDE = 4
# Reading an entry of Q takes about as long as adding this many numbers.
_READING = 3
# Columns that one thread sums together.
_TOGETHER = 8


def times(q: SymmetricCounts, thin: Float, rows: Positions | None = None) -> Float:
    """Return Q V in the units of the counts. Cost: the entries of the rows times r.

    thin: V (n, r).
    rows: positions of the wanted rows of the product; None for all.
    """
    uncounted = q.uncounted
    if uncounted is not None and rows is None:
        return _times_counted(q, uncounted, thin)
    ends = np.minimum(np.arange(BLOCK, q.n + BLOCK, BLOCK), q.n)
    chosen = np.arange(q.n) if rows is None else rows
    out = np.empty((len(chosen), thin.shape[1]))
    lengths = q.indptr[chosen + 1] - q.indptr[chosen]
    entries = row_ends(lengths)
    # Four spans a thread with as many entries each: rows differ in length, and so do the times of spans.
    spans = 4 * workers()
    goals = np.linspace(0, entries[-1], spans + 1)
    first_rows = np.searchsorted(entries, goals[:-1], side="left")
    edges = first_rows.tolist()
    edges.append(len(chosen))
    r = thin.shape[1]
    if r == 1:
        each_span(_times_one, (q.rows, chosen, thin[:, 0].copy(), ends, out[:, 0]), [*pairwise(edges)])
        return out
    if r <= _FEW:
        for first in range(0, r, 4):
            some = thin[:, first : first + 4]
            four = np.zeros((q.n, 4))
            four[:, : some.shape[1]] = some
            found = np.empty((len(chosen), 4))
            each_span(_times_four, (q.rows, chosen, four, ends, found), [*pairwise(edges)])
            out[:, first : first + 4] = found[:, : some.shape[1]]
        return out
    parts = [(*span, np.empty(r), np.empty(_PANEL, np.int64), np.empty(_PANEL, np.int64)) for span in pairwise(edges)]
    each_span(_times, (q.rows, chosen, thin, ends, out), parts)
    return out


def _times_counted(q: SymmetricCounts, uncounted: Uncounted, thin: Float) -> Float:
    """Return Q V with the bits of `times`, from rows of one triangle as they are counted. No row is kept.

    Each entry serves its own row and that of its column.
    """
    out = np.zeros((q.n, thin.shape[1]))
    lengths = np.zeros(q.n, np.int64)
    run = np.zeros_like(out)
    for block in uncounted.blocks():
        _add_both(block.first, block.sizes, block.columns, block.values, thin, out, run, lengths)
    q.counted_lengths = lengths
    return out


def product_roundings(terms: Int64, n: int) -> Float:
    """Bound the roundings on the way of a term of `times`, for each row of Q, (rows,).

    terms: (rows,) entries of each row.
    n: words, of which a row may have entries for all.
    With k of these roundings the exact W* = Q D^2 N^T has |W - W*| <= gamma(k) W, entry by entry, for the W that was
    computed: terms are not negative, and zeros change nothing.
    """
    # Four come before the sum: N and Q become doubles, N times D^2, Q times V.
    blocks = -(-n // BLOCK)
    within = np.minimum(terms, BLOCK)
    across = np.minimum(terms, blocks)
    return np.asarray(4.0 + within + across)


def shift_roundings(terms: Int64, changed: Int64) -> Float:
    """Bound the roundings on the way of a term of `product_shift`, for each row, (n,).

    terms: (n,) entries of each row of Q'.
    changed: (n,) entries of each row of dQ.
    """
    # A term goes through the sum over a row of dQ and that over a row of Q', one after the other.
    return np.asarray(terms + changed + 16.0)


def shift_costs_more(q: SymmetricCounts, delta: SymmetricCounts, rows: Positions, moved: Float) -> bool:
    """Return whether `product_shift` would take longer than the product with all of Q."""
    # A product with all of Q adds up vectors, some numbers at a time; a product with dV adds up single numbers.
    r = moved.shape[1]
    held = np.count_nonzero(moved, axis=1) + _READING
    single = int(np.diff(q.indptr)[rows] @ held)
    shifted = single + delta.entries * r / _WIDE
    return bool(shifted > q.entries * r / _WIDE)


def product_shift(
    q: SymmetricCounts, delta: SymmetricCounts, before: Float, rows: Positions, moved: Float
) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'.
    delta: dQ, signed.
    before: V (n, r), not negative.
    rows: (t,) ascending positions of the rows of V that change.
    moved: (t, r) their change.
    Cost: nnz(dQ) r; for each entry of `moved` the entries of its row of Q'.
    """
    shift = np.zeros(before.shape)
    sizes = np.zeros(len(before))
    _add_change(delta.rows, before, before.max(axis=1), shift, sizes)
    sizes += add_times_sparse(q, rows, moved, shift)
    return shift, sizes


def add_times_sparse(q: SymmetricCounts, rows: Positions, moved: Float, out: Float) -> Float:
    """Add Q S to `out` (n, r). Return for each row a bound on the sum of its terms' sizes in any column, (n,).

    rows, moved: S has the rows `moved` (t, r) at these ascending positions, and zeros elsewhere.
    Cost: for each entry of S the entries of its row of Q.
    """
    # Q is symmetric, so its columns are read as rows: those of the rows of S. Column by column, so that sums are read
    # and written in order.
    r = out.shape[1]
    columns, held = np.nonzero(moved.T)
    starts = np.searchsorted(columns, np.arange(r + 1))
    # Sizes and sums of its own for each thread, which no other one writes to.
    parts = []
    for first, last in chunks(r, _TOGETHER):
        parts.append((np.zeros(q.n), first, last, np.zeros((last - first, 2, q.n))))
    each_span(_add_columns, (q.rows, rows[held], moved[held, columns], starts, out), parts)
    largest = np.zeros(q.n)
    for sizes, *_ in parts:
        np.maximum(largest, sizes, out=largest)
    return largest


def dense_rows(q: SymmetricCounts, rows: Positions) -> Int64:
    """Return rows of Q as a dense integer matrix, (len(rows), n). rows: distinct positions."""
    uncounted = q.uncounted
    if uncounted is not None:
        return uncounted.grouped(places(q.n, rows), len(rows))
    out = np.zeros((len(rows), q.n), np.int64)
    _dense_rows(q.rows, rows, out)
    return out


def column_sums(q: SymmetricCounts, rows: Positions) -> Int64:
    """Return the sum of some rows, (n,) integers."""
    group = np.full(q.n, -1, np.int64)
    group[rows] = 0
    return np.asarray(grouped_rows(q, group, 1)[0])


def grouped_rows(q: SymmetricCounts, group: Int64, groups: int) -> Int64:
    """Return the sums of the rows of each group, (groups, n) integers; a row of group -1 is left out."""
    uncounted = q.uncounted
    if uncounted is not None:
        return uncounted.grouped(group, groups)
    out = np.zeros((groups, q.n), np.int64)
    _grouped_rows(q.rows, group, out)
    return out


@kernel
def _times(
    q: Compact, rows: Positions, thin: Float, ends: Int64, out: Float, start: int, stop: int,
    run: Float, place: Int64, wide: Int64,
) -> None:  # fmt: skip
    """Write rows start ... stop - 1 of the product to `out`.

    ends: where the columns of each block end.
    run, place, wide: memory of this span, (r,) and twice (_PANEL,).

    The terms of a block are summed by themselves and added once, so rounding grows with 256 + n / 256, not with n.
    """
    # Panels of rows, and in them blocks of columns: the part of V for a block stays in the cache. Where a block begins
    # does not depend on the pairs that are stored, so a forgotten pair that is stored as 0 leaves no trace.
    r = thin.shape[1]
    for first in range(start, stop, _PANEL):
        last = min(first + _PANEL, stop)
        for i in range(first, last):
            row = rows[i]
            place[i - first] = q.indptr[row]
            wide[i - first] = q.wide_indptr[row]
            for t in range(r):
                out[i, t] = 0.0
        for edge in ends:
            for i in range(first, last):
                k = place[i - first]
                w = wide[i - first]
                end = q.indptr[rows[i] + 1]
                if k == end or q.columns[k] >= edge:
                    continue
                for t in range(r):
                    run[t] = 0.0
                while k < end and q.columns[k] < edge:
                    exact, w = read(q, k, w)
                    value = float(exact)
                    factors = thin[q.columns[k]]
                    for t in range(r):
                        run[t] += value * factors[t]
                    k += 1
                total = out[i]
                for t in range(r):
                    total[t] += run[t]
                place[i - first] = k
                wide[i - first] = w


@kernel
def _times_one(q: Compact, rows: Positions, thin: Float, ends: Int64, out: Float, start: int, stop: int) -> None:
    """Do the same for one column, with the same bits: its sum stays in a register. thin: (n,); out: (rows,)."""
    for i in range(start, stop):
        row = rows[i]
        w = q.wide_indptr[row]
        block = 0
        edge = ends[0]
        total = part = 0.0
        # One loop over the row, in which a block rarely ends: a loop for each block takes twice as long.
        for k in range(q.indptr[row], q.indptr[row + 1]):
            column = np.int64(q.columns[k])
            if column >= edge:
                total += part
                part = 0.0
                while column >= edge:
                    block += 1
                    edge = ends[block]
            exact, w = read(q, k, w)
            part += float(exact) * thin[column]
        out[i] = total + part


@kernel
def _times_four(q: Compact, rows: Positions, thin: Float, ends: Int64, out: Float, start: int, stop: int) -> None:
    """Do so for four columns. thin: (n, 4); out: (rows, 4)."""
    for i in range(start, stop):
        row = rows[i]
        w = q.wide_indptr[row]
        block = 0
        edge = ends[0]
        first = second = third = fourth = 0.0
        a = b = c = d = 0.0
        for k in range(q.indptr[row], q.indptr[row + 1]):
            column = np.int64(q.columns[k])
            if column >= edge:
                first += a
                second += b
                third += c
                fourth += d
                a = b = c = d = 0.0
                while column >= edge:
                    block += 1
                    edge = ends[block]
            exact, w = read(q, k, w)
            value = float(exact)
            a += value * thin[column, 0]
            b += value * thin[column, 1]
            c += value * thin[column, 2]
            d += value * thin[column, 3]
        out[i, 0] = first + a
        out[i, 1] = second + b
        out[i, 2] = third + c
        out[i, 3] = fourth + d


@kernel
def _add_both(
    first: int, sizes: Int64, columns: Int32, values: Int64, thin: Float, out: Float, run: Float, lengths: Int64
) -> None:
    """Add what rows first ... of the upper triangle give the product to `out`, and count entries in `lengths`.

    run: (n, r) the sums of blocks of columns that are not complete, zeros at first.
    """
    # Entries before the diagonal of a row come with earlier rows, in the order of columns. So each block has the terms
    # of `_times`, in its order.
    r = thin.shape[1]
    k: Whole = np.int64(0)
    for i in range(len(sizes)):
        row = first + i
        if row % BLOCK == 0:
            for j in range(row, len(run)):
                for t in range(r):
                    out[j, t] += run[j, t]
                    run[j, t] = 0.0
        edge: Whole = row - row % BLOCK + BLOCK
        own = run[row]
        factors = thin[row]
        total = out[row]
        end = k + np.int64(sizes[i])
        lengths[row] += sizes[i]
        while k < end:
            column = np.int64(columns[k])
            if column >= edge:
                edge = column - column % BLOCK + BLOCK
                for t in range(r):
                    total[t] += own[t]
                    own[t] = 0.0
            value = float(values[k])
            others = thin[column]
            for t in range(r):
                own[t] += value * others[t]
            if column != row:
                lengths[column] += 1
                other = run[column]
                for t in range(r):
                    other[t] += value * factors[t]
            k += 1
        for t in range(r):
            total[t] += own[t]
            own[t] = 0.0


@kernel
def _add_change(q: Compact, thin: Float, largest: Float, out: Float, sizes: Float) -> None:
    """Add dQ V to `out` (n, r), and bounds on the sizes of its terms to `sizes` (n,). largest: (n,) of V's rows."""
    for row in range(len(q.indptr) - 1):
        total = out[row]
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value = float(exact)
            column = q.columns[k]
            factors = thin[column]
            sizes[row] += abs(value) * largest[column]
            for t in range(thin.shape[1]):
                total[t] += value * factors[t]


@kernel
def _add_columns(
    q: Compact, rows: Int64, values: Float, starts: Int64, out: Float, sizes: Float, first: int, last: int, sums: Float
) -> None:
    """Add to columns first ... last - 1 of the result. sums: (last - first, 2, n) zeros."""
    # Positive and negative terms are summed by themselves, since both sums together bound the sizes of terms.
    n = len(out)
    for column in range(first, last):
        own = sums[column - first]
        for j in range(starts[column], starts[column + 1]):
            row = rows[j]
            factor = abs(values[j])
            total = own[0 if values[j] > 0.0 else 1]
            w = q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                exact, w = read(q, k, w)
                total[q.columns[k]] += float(exact) * factor
    for i in range(n):
        for column in range(first, last):
            own = sums[column - first]
            up = own[0, i]
            down = own[1, i]
            out[i, column] += up - down
            sizes[i] = max(sizes[i], up + down)


@kernel
def _dense_rows(q: Compact, rows: Positions, out: Int64) -> None:
    """Write rows of Q to `out` (len(rows), n)."""
    for i, row in enumerate(rows):
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            out[i, q.columns[k]], w = read(q, k, w)


@kernel
def _grouped_rows(q: Compact, group: Int64, out: Int64) -> None:
    """Add each row of Q to the row of its group in `out` (groups, n)."""
    for row in range(len(group)):
        if group[row] >= 0:
            total = out[group[row]]
            w = q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                value, w = read(q, k, w)
                total[q.columns[k]] += value
