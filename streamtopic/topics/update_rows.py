"""Rows of an update: W' = W + dQ V + Q' (V' - V), at the cost of the entries that changed and of their rows.

    carried, regrouped   mixtures on the changed counts, with the sets of before, and then with those of now
    product_shift        dQ V + Q' (V' - V), which is added to the product of before
    OuterChange          dQ as outer products, if the passages that it is made of are known
    add_times_sparse     Q S for a sparse S: the rest of a product once most of it is carried over

Only continuous numbers are carried over, each with a bound on its error. The words that represent a topic are decided
elsewhere, from counts. A topic with other words than before gets its column of W from counts.

A small change is dQ = X^T S X - diag(E), with a row of X for each passage that came or went:

    reach      Y = Q' D^2 X^T             the product of each word's row with each passage
    products   Q' D^2 (X^T S M) = Y S M   M: how much of a passage is in each anchor's set
    Gram       Y_c S X_c and its like     for the candidates c

Y is summed once from the rows of the passages' words, and serves all three. Without it every such row would be read for
each topic that the passage touches, and for each of the products.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from streamtopic.compiled import kernel
from streamtopic.counts import SignedPassages, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions, entry_rows
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.certificate import gamma
from streamtopic.topics.mixtures import Mixtures, carried_errors, gram
from streamtopic.topics.products import grouped_rows, product_roundings, shift_roundings, times
from streamtopic.topics.reproducible import chunks, each_span

__all__ = [
    "Change",
    "OuterChange",
    "SparseRows",
    "ThinShift",
    "add_times_sparse",
    "carried",
    "dearer_than_whole",
    "outer_change",
    "product_shift",
    "regrouped",
]


# Numbers that a compiled loop adds at once if they lie side by side.
_WIDE = 4
# Numbers that a library's dense product multiplies in the time of one addition.
_BLAS = 16
# Reading an entry of Q takes about as long as adding this many numbers.
_READING = 3
# Columns that one thread sums together.
_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class OuterChange:
    """A change of Q that is known as outer products.

    passages: k passages over the n internal words.
    reach: Y (n, k).
    others: ascending positions of words that are not in the passages. Their rows and columns are the rest of dQ.
    """

    passages: SignedPassages
    reach: Float
    others: Positions

    @property
    def whole(self) -> bool:
        """Whether the passages make all of dQ."""
        return not len(self.others)

    @cached_property
    def words(self) -> Positions:
        """The words of the passages, ascending."""
        return np.unique(self.passages.words)

    @property
    def longest(self) -> int:
        """Words of the longest passage."""
        return int(np.diff(self.passages.indptr).max(initial=0))

    def sums(self, group: Int64, r: int) -> Int64:
        """Return S M, (k, r): weighted counts of each passage's words in each topic's set.

        group: (n,) the topic that each word represents, -1 for most.
        """
        inside = np.flatnonzero(group >= 0)
        ones = np.ones(len(inside), np.int64)
        member = csr_array((ones, (inside, group[inside])), shape=(len(group), r))
        return np.asarray((self.X @ member).toarray() * self.passages.weights[:, None])

    def explained(self, sums: Int64) -> Int64:
        """Return (S M)^T X, (r, n): the part of the outer products alone in the summed rows of the sets."""
        return np.asarray((csr_array(sums.T) @ self.X).toarray())

    def add_times(self, thin: Float, out: Float) -> Float:
        """Add (X^T S X - E) V to `out`, (n, r). Return for each row the largest sum of its terms' sizes, (n,).

        thin: V (n, r), not negative.
        Cost: r for each word of a passage.
        """
        weights = self.passages.weights[:, None]
        words = self.words
        X = self.X.astype(float)
        own = X[:, words].T
        met = X @ thin
        diagonal = self.E[words, None].astype(float)
        rows = thin[words]
        out[words] += own @ (met * weights) - diagonal * rows
        # V and X are not negative, so the sizes of terms are the terms with the sizes of the signed factors.
        by_passages = own @ (met * np.abs(weights))
        terms = by_passages + np.abs(diagonal) * rows
        sizes = np.zeros(len(thin))
        sizes[words] = terms.max(axis=1)
        return sizes

    @cached_property
    def X(self) -> csr_array:
        """The passages' counts, (k, n) integers."""
        p = self.passages
        return csr_array((p.counts, p.words, p.indptr), shape=self.reach.shape[::-1])

    @cached_property
    def E(self) -> Int64:
        """The pairs of tokens with themselves, (n,): an outer product has them, and counts do not."""
        p = self.passages
        out = np.zeros(len(self.reach), np.int64)
        weights = p.weights[p.owners]
        np.add.at(out, p.words, p.counts * weights)
        return out


def outer_change(
    q: SymmetricCounts, squares: Float, passages: SignedPassages, r: int, others: Positions
) -> OuterChange | None:
    """Return the change with its reach, or None if a product with all of Q would cost less.

    q: Q' after the change.
    squares: D^2 (n,) after the change.
    passages: over the internal words.
    r: topics.
    others: as in OuterChange.
    Cost: the entries of the rows of the passages' words, once for every passage that holds the word.
    """
    k = passages.passages
    if not k:
        return None
    words, held = np.unique(passages.words, return_counts=True)
    lengths = np.diff(q.indptr)[words]
    reading = float(lengths @ (held + _READING))
    cost = reading + 2.0 * q.n * k * r / _BLAS
    # Y must not need more memory than Q either.
    too_large = 8 * q.n * k > q.nbytes
    if cost > q.entries * r / _WIDE or too_large:
        return None
    reach = _reach(q, squares, passages)
    return OuterChange(passages, reach, others)


def _reach(q: SymmetricCounts, squares: Float, passages: SignedPassages) -> Float:
    """Return Q D^2 X^T, (n, k). Q is symmetric, so its columns are read as rows."""
    order = np.argsort(passages.words, kind="stable")
    owners = passages.owners[order]
    words, starts = np.unique(passages.words[order], return_index=True)
    values = passages.counts[order] * squares[passages.words[order]]
    ends = np.append(starts, len(order))
    weighted = SparseRows(words, ends, owners, values)
    out = np.zeros((q.n, passages.passages))
    add_times_sparse(q, weighted, out)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class ThinShift:
    """A change dV of V (n, r).

    rows: (t,) ascending positions of rows that change.
    moved: (t, r) their change.
    outer: the passages X (k, n), if they are known; dV has the part D^2 X^T sums too then.
    sums: (k, r) integers.
    """

    rows: Positions
    moved: Float
    outer: OuterChange | None = None
    sums: Int64 = field(default_factory=lambda: np.zeros((0, 0), np.int64))


def dearer_than_whole(q: SymmetricCounts, delta: SymmetricCounts, thin: ThinShift) -> bool:
    """Return whether `product_shift` would take longer than the product with all of Q."""
    # A product with all of Q adds up vectors, some numbers at a time; a product with dV adds up single numbers.
    r = thin.moved.shape[1]
    held = np.count_nonzero(thin.moved, axis=1) + _READING
    single = int(np.diff(q.indptr)[thin.rows] @ held)
    shifted = single + delta.entries * r / _WIDE
    whole = q.entries * r / _WIDE
    return bool(shifted > whole)


def product_shift(q: SymmetricCounts, delta: SymmetricCounts, before: Float, thin: ThinShift) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'.
    delta: dQ, signed.
    before: V (n, r), not negative.
    thin: dV.
    Cost: nnz(dQ) r; for each entry of `moved` the entries of its row of Q'; n r for each passage.
    """
    shift = np.zeros(before.shape)
    sizes = np.zeros(len(before))
    outer = thin.outer
    if outer is not None and outer.whole:
        sizes += outer.add_times(before, shift)
    else:
        _add_change(delta.rows, before, before.max(axis=1), shift, sizes)
    sizes += add_times_sparse(q, SparseRows.of(thin.rows, thin.moved), shift)
    if outer is not None:
        sizes += _add_mixed(outer.reach, thin.sums, shift)
    return shift, sizes


def _add_mixed(thin: Float, mixing: Int64, out: Float) -> Float:
    """Add T M for T (n, k), not negative, and M (k, r). Return for each row the largest sum of its terms' sizes."""
    out += thin @ mixing.astype(float)
    terms = thin @ np.abs(mixing).astype(float)
    return np.asarray(terms.max(axis=1))


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


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A sparse S (n, k) by those rows that have entries.

    rows: (t,) ascending positions of the rows.
    ends: (t + 1,) where rows begin and end.
    columns, values: (nnz,) the entries.
    """

    rows: Int64
    ends: Int64
    columns: Int64
    values: Float

    @classmethod
    def of(cls, rows: Int64, dense: Float) -> "SparseRows":
        """Take the entries of `dense` (t, k), whose rows are at ascending positions."""
        held, columns = np.nonzero(dense)
        ends = np.searchsorted(held, np.arange(len(rows) + 1))
        values = dense[held, columns]
        return cls(rows.astype(np.int64), ends, columns, values)

    @property
    def owners(self) -> Int64:
        """The row of each entry, as a position in `rows`, (nnz,)."""
        return entry_rows(self.ends)


def add_times_sparse(q: SymmetricCounts, S: SparseRows, out: Float) -> Float:
    """Add Q S to `out` (n, k). Return for each row a bound on the sum of its terms' sizes in any column, (n,).

    Cost: for each entry of S the entries of its row of Q.
    """
    # Q is symmetric, so its columns are read as rows: those of the rows of S. Column by column, so that sums are read
    # and written in order.
    columns = out.shape[1]
    order = np.argsort(S.columns, kind="stable")
    starts = np.searchsorted(S.columns[order], np.arange(columns + 1))
    rows = S.rows[S.owners[order]]
    # Sizes of its own for each thread, which no other one writes to.
    parts = [(np.zeros(q.n), *span) for span in chunks(columns, _TOGETHER)]
    each_span(_add_columns, (q.rows, rows, S.values[order], starts, out), parts)
    sizes = np.zeros(q.n)
    for size, *_ in parts:
        np.maximum(sizes, size, out=sizes)
    return sizes


def _add_columns(
    q: Compact, rows: Int64, values: Float, starts: Int64, out: Float, sizes: Float, first: int, last: int
) -> None:
    """Add to columns first ... last - 1 of the result."""
    sums = np.zeros((last - first, 2, len(out)))
    _by_columns(q, rows, values, starts, out, sizes, first, last, sums)


@kernel
def _by_columns(
    q: Compact, rows: Int64, values: Float, starts: Int64, out: Float, sizes: Float, first: int, last: int, sums: Float
) -> None:
    """Do so. sums: (last - first, 2, n) zeros."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of Q over the internal words, and the quantities that follow from it.

    delta: dQ, signed.
    mass: (n,) row sums after the change.
    squares: (n,) D^2 after the change.
    squares_before: (n,) D^2 before it.
    outer: dQ, or most of it, as outer products, if its passages are known and few enough to save work.
    """

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    squares_before: Float
    outer: OuterChange | None = None


def carried(before: Mixtures, q: SymmetricCounts, change: Change, group: Int64) -> Mixtures:
    """Return the mixtures on the changed Q, with the words of each topic as before.

    before: the mixtures before the change.
    q: Q after the change.
    group: (n,) the topic that each word stood for, or -1.
    C stays the last solution, and G the last matrix.
    """
    thin = before.thin.copy()
    outer = change.outer
    topics = len(before.anchor_counts)
    entries = grouped_rows(change.delta, group, topics)
    counts = before.anchor_counts + entries
    sums = np.zeros((0, topics), np.int64)
    explained = np.zeros_like(entries)
    longest = 0
    if outer is not None:
        sums = outer.sums(group, topics)
        explained = outer.explained(sums)
        longest = outer.longest
    # In integers, so all but the outer products is exact: self-pairs, and words that came or went.
    unexplained = (entries != explained).any(axis=0)
    columns = np.flatnonzero(unexplained | (change.squares != change.squares_before))
    rest = counts[:, columns] - explained[:, columns]
    weighted = rest * change.squares[columns]
    moved = np.ascontiguousarray(weighted.T) - thin[columns]
    step = ThinShift(columns, moved, outer, sums)
    shifted = None
    if not dearer_than_whole(q, change.delta, step):
        shifted = product_shift(q, change.delta, before.thin, step)
    touched = columns if outer is None else np.union1d(columns, outer.words)
    new = counts[:, touched] * change.squares[touched]
    thin[touched] = new.T
    # The search for a row begins at its last solution. A word without mass has no row.
    live = change.mass > 0
    start = np.where(live[:, None], before.C, 0.0)
    made = replace(before, anchor_counts=counts, anchor_mass=counts.sum(axis=1), thin=thin, C=start)
    entries_each = np.diff(q.indptr)
    if shifted is None:
        relative = gamma(product_roundings(entries_each, q.n))
        product = times(q, thin)
        error = np.zeros(q.n)
        return replace(made, product=product, relative=relative, error=error)
    product, sizes = shifted
    changed_each = np.diff(change.delta.indptr)
    roundings = shift_roundings(entries_each, changed_each, len(sums), longest)
    relative, error = carried_errors(before.relative, before.error, roundings, sizes)
    product += before.product
    # A word without mass has no entry in Q: its products are 0 exactly, and no error of earlier ones may stay.
    for array in (product, relative, error):
        array[~live] = 0.0
    return replace(made, product=product, relative=relative, error=error)


def regrouped(before: Mixtures, q: SymmetricCounts, change: Change, then: Int64, now: Int64, guided: Int64) -> Mixtures:
    """Return the mixtures with other sets: a topic with the same words keeps its columns, others are computed.

    before: the mixtures on the changed Q, with the sets of before.
    then: (n,) the topic that each word stood for, or -1.
    now: (n,) the topic that each word represents, or -1.
    guided: (g, n) the rows of guided topics, after the others.
    Cost: a pass over Q for the columns that are computed.
    """
    found = int(now.max(initial=-1)) + 1
    live_then = np.where(change.mass > 0, then, -1)
    origin = np.full(found + len(guided), -1, np.int64)
    like = origin.copy()
    # If a guided topic has ended or come back, all topics are new.
    if len(origin) == len(before.anchor_counts):
        origin[:found], like[:found] = _origins(live_then, now, found)
        same = (before.anchor_counts[found:] == guided).all(axis=1)
        origin[found:][same] = found + np.flatnonzero(same)
        like[found:] = origin[found:]
    fresh = np.flatnonzero(origin < 0)
    # With most topics new, a product of all of them costs no more, and carries no error.
    if 2 * len(fresh) > len(origin):
        anchor_counts = np.concatenate([grouped_rows(q, now, found), guided])
        return Mixtures.cold(q, change.mass, change.squares, anchor_counts, None)
    kept = np.maximum(like, 0)
    counts = before.anchor_counts
    thin = before.thin
    product = before.product
    C = before.C
    relative = before.relative
    error = before.error
    if len(fresh) or not np.array_equal(kept, np.arange(len(kept))):
        counts = counts[kept]
        # Not by an index, which leaves the entries of a column side by side: kernels read rows, and would be compiled
        # once more for columns.
        thin = thin.take(kept, axis=1)
        product = product.take(kept, axis=1)
        C = C.take(kept, axis=1)
    if len(fresh):
        topic = np.full(len(now), -1, np.int64)
        inside = np.flatnonzero(now >= 0)
        place = np.full(len(origin), -1, np.int64)
        place[fresh] = np.arange(len(fresh))
        topic[inside] = place[now[inside]]
        counts[fresh] = grouped_rows(q, topic, len(fresh))
        anew = fresh >= found
        counts[fresh[anew]] = guided[fresh[anew] - found]
        thin[:, fresh] = (counts[fresh] * change.squares).T
        new = np.ascontiguousarray(thin[:, fresh])
        product[:, fresh] = times(q, new)
        # One bound for all columns of a row, so the larger of both.
        fresh_errors = gamma(product_roundings(np.diff(q.indptr), q.n))
        relative = np.maximum(relative, fresh_errors)
        # A topic none of whose words stood for one before has no support to try first.
        C[:, like < 0] = 0.0
    G, sigma = gram(counts, thin)
    anchor_mass = counts.sum(axis=1)
    made = Mixtures(counts, anchor_mass, thin, product, relative, error, G, C, sigma)
    made.solve(change.mass, C)
    return made


def _origins(then: Int64, now: Int64, topics: int) -> tuple[Int64, Int64]:
    """Return for each topic of now the one of before with the same words, and the one that had most of them.

    Both are (topics,), -1 without one.
    """
    sizes = np.bincount(then[then >= 0], minlength=topics)
    same = np.full(topics, -1, np.int64)
    like = same.copy()
    for topic in range(topics):
        old = then[now == topic]
        known = old[old >= 0]
        if len(known):
            most = np.bincount(known).argmax()
            like[topic] = most
            # All words of now are words of then, and there are as many: the sets are the same.
            if sizes[most] == len(old) and (old == most).all():
                same[topic] = most
    return same, like
