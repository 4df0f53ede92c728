"""Anchors of an update: a proof, without a search, that the published learner's anchors stay.

The default learner chooses again at every update, which is cheap. The published learner's search reads many rows of Q.
But an update carries B = Qbar Qbar_P^T and G = Qbar_P Qbar_P^T along. From them and the candidates' norms every
distance that the search looks at can be computed again. They carry rounding, and so does the search that a cold start
would make (streamtopic.topics.paper_anchors). The anchors are confirmed only if every lead exceeds both.

Bound (docs/proof-paper-anchors.md). Let K be the Gram matrix of some anchors and one more row, x the coefficients of
the row's projection on the anchors, lambda the least eigenvalue of the anchors' part. If no entry of K' differs from
K by more than e, and 4 e r <= lambda, the row's squared distances in K and in K' differ by at most 2 e (1 + |x|_1)^2.
A computed Cholesky factor is exact for a matrix that differs from the given one by a few roundings. So K is the matrix
that the factor here represents, K' the one that the search's factor represents, and e is the sum of

    the error of B                  as `Mixtures.product_errors` bounds it
    (terms + 16) u N                rounding of norms and of G here
    (2 terms + 16) u N              rounding of norms and of inner products in the search
    4 (r + 4) u N, twice            both factors

with u = 2^-53, N the largest squared norm and terms the most entries of a row.
"""

from dataclasses import dataclass

import numpy as np

from streamtopic.compiled import allocating
from streamtopic.counts.arrays import Float, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.mixtures import Mixtures, gram
from streamtopic.topics.paper_anchors import distance_floor, eliminate, row_norms
from streamtopic.topics.reproducible import check_arithmetic, cholesky, chunks, each_span, solve_lower
from streamtopic.topics.update_rows import Change

__all__ = ["confirmed_anchors", "replay_rows"]

_UNIT = 2.0**-53
_CHUNK = 256
# Covers terms of second order and the rounding of the bounds themselves: `_Bounds.of` keeps each below a hundredth.
_OUTWARD = 1.1


def confirmed_anchors(fit: TopicFit, change: Change, candidates: Positions, mixtures: Mixtures) -> Positions | None:
    """Confirm the published learner's anchors after a change, or return None if carried products prove nothing.

    fit: the model before.
    change: the change of its counts.
    candidates: ascending positions of words that may be anchors now.
    mixtures: those carried over to the changed counts, with the anchors of before.
    """
    rows = fit.choice
    # An anchor that may not be one any more has surely changed.
    if not np.isin(rows, candidates).all() or not mixtures.anchor_mass.all():
        return None
    own_mass = np.maximum(change.mass[candidates], 1)
    scale = 1.0 / own_mass.astype(float)
    try:
        G, _ = gram(mixtures.anchor_counts, mixtures.thin)
    except CannotLearn:
        # Dependent anchors are no fault here: the search may find others.
        return None
    norms = row_norms(fit.q, candidates, scale)
    B = mixtures.B(change.mass, candidates)
    lengths = np.diff(fit.q.indptr)[candidates]
    # B = W / (row mass * anchor mass), so the least anchor mass bounds the error in every column.
    least = float(mixtures.anchor_mass.min())
    error = mixtures.product_errors()[candidates] * scale / least
    chosen = np.searchsorted(candidates, rows)
    live = int(np.count_nonzero(change.mass))
    found = replay_rows(norms, B, G, chosen, terms=int(lengths.max()), error=error, live=live)
    return None if found is None else np.asarray(candidates[found])


def replay_rows(
    norms: Float, B: Float, G: Float, chosen: Positions, *, terms: int, error: Float, live: int
) -> Positions | None:
    """Prove that `farthest_rows` would choose the same candidates again, or return None: then only a search can tell.

    norms: (c,) squared norms of the candidates' rows of Qbar.
    B: (c, r) their inner products with the anchors' rows.
    G: (r, r) inner products of the anchors' rows.
    chosen: (r,) the anchors among the candidates.
    terms: the most entries of a candidate's row: norms and entries of G are sums of so many products, in any order.
    error: (c,) bound on the absolute error of the entries in each row of B.
    live: words that have entries.
    Cost: c r^2.
    """
    check_arithmetic()
    r = len(chosen)
    largest = float(norms.max())
    if not np.isfinite(error).all():
        return None
    # The proof fails if the greedy search would leave the anchors, since a swap had brought one of them in.
    order = _greedy_order(G)
    reordered = G[order][:, order]
    L, pivots = cholesky(np.ascontiguousarray(reordered))
    if pivots < r:
        return None
    rounding = _UNIT * (3 * terms + 8 * r + 64)
    entry = _OUTWARD * (error + rounding * largest)
    bounds = _Bounds.of(L, chosen[order], entry, largest)
    if bounds is None:
        return None
    # The search stops at a distance that counts as 0, so all must be surely above it.
    floor = _OUTWARD * distance_floor(live, r) * largest
    if not (bounds.pivots - bounds.pivot_errors > floor).all():
        return None
    inner = np.ascontiguousarray(B.T[order])
    # Written so that a slack of nan confirms nothing.
    return np.sort(chosen) if _least_slack(bounds, norms, inner) > 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """The anchors' own distances, and bounds on all errors. Anchors are in the order of the greedy search.

    L: (r, r) the factor of G.
    M: (r, r) L^-1.
    rows: (r,) the anchors among the candidates.
    entry: (c,) e of the module's docstring.
    pivots: (r,) squared distance of each anchor to the span of those before it.
    pivot_errors: (r,) bounds on their errors, of the search and this replay together.
    alone: (r,) squared distance of each anchor to the span of all others.
    alone_errors: (r,) bounds on their errors, likewise.
    weights: (r,) bounds of |row of L^-1|_1, so that |x|_1 <= |y| . weights.
    reach: (r,) how much |x|_1 can grow when an anchor is left out, for each unit of distance along it.
    direction: bound on the error of a coordinate along a column of M.
    forward: bound on the error of its square.
    largest: the largest squared norm.
    """

    L: Float
    M: Float
    rows: Positions
    entry: Float
    pivots: Float
    pivot_errors: Float
    alone: Float
    alone_errors: Float
    weights: Float
    reach: Float
    direction: float
    forward: float
    largest: float

    @classmethod
    def of(cls, L: Float, rows: Positions, entry: Float, largest: float) -> "_Bounds | None":
        """Return the bounds, or None if the anchors are too near to dependence for them to hold.

        L, rows, entry, largest: fields of the class.
        """
        r = len(L)
        M = solve_lower(L, np.eye(r))
        size = np.abs(M)
        squares = M * M
        spread = float(np.sqrt(squares.sum()))
        # L M = I + R for the computed M, |R| <= gamma |L| |M|, and relative error `tilt` of a column of M.
        magnitudes = np.abs(L) @ size
        product = _UNIT * (r + 2) * magnitudes
        longest = float(np.sqrt(r * largest))
        tilt = 2 * _UNIT * (r + 2) * longest * spread
        row_norm = float(product.sum(axis=1).max())
        frobenius = float(np.sqrt((product * product).sum()))
        norm = max(row_norm, frobenius)
        # The least eigenvalue of L L^T is at least 1 / |L^-1|^2.
        moved = float(entry.max()) * r * spread**2
        if not (norm <= 0.01 and tilt <= 0.01 and 4 * _OUTWARD * moved <= 1):
            return None
        weights = _OUTWARD * size.sum(axis=1)
        lengths = np.sqrt(squares.sum(axis=0))
        along = (size.T @ weights) / lengths
        weight = float(np.sqrt(weights @ weights))
        reach = _OUTWARD * (along + 2 * tilt * weight)
        off = tilt + _UNIT * (r + 4)
        forward = 12 * _OUTWARD * off * largest
        # The coefficients of an anchor on those before it are its row of M, divided by the diagonal.
        before = _OUTWARD * (size.sum(axis=1) / size.diagonal())
        # The coefficients on all others are its column of G^-1, divided by the diagonal.
        others = reach / lengths
        twice = 2 * entry[rows]
        direction = 2 * _OUTWARD * off * float(np.sqrt(largest))
        return cls(
            L=L,
            M=M,
            rows=rows,
            entry=entry,
            pivots=L.diagonal() ** 2,
            pivot_errors=twice * before**2,
            alone=1 / lengths**2,
            alone_errors=twice * others**2 + forward,
            weights=weights,
            reach=reach,
            direction=direction,
            forward=forward,
            largest=largest,
        )


def _least_slack(bounds: _Bounds, norms: Float, inner: Float) -> float:
    """Return the least amount by which a lead exceeds its bound; minus infinity if an error is too large for its bound.

    norms: (c,) squared norms of the candidates' rows.
    inner: (r, c) B^T, in the order of the anchors.
    """
    r, c = inner.shape
    turn = np.full(c, r)
    turn[bounds.rows] = np.arange(r)
    parts = np.empty_like(inner)
    rest = np.empty(c)
    sizes = np.ones(c)
    spans = chunks(c, _CHUNK)
    each_span(eliminate, (inner, bounds.L, 0, norms, parts, rest), spans)
    most = 0.01 * bounds.largest
    # Each span has a place of its own for the least slack that it finds: first of the search, then of the swaps.
    found = np.full((2, len(spans), 1), np.inf)
    of_search, of_swaps = found
    searched = [(of_search[k], *span) for k, span in enumerate(spans)]
    own = bounds.pivots, bounds.pivot_errors, bounds.weights
    searching = parts, norms, turn, bounds.entry, most, *own, sizes
    each_span(_greedy_leads, searching, searched)
    lengths = np.sqrt((bounds.M * bounds.M).sum(axis=0))
    errors = bounds.M / lengths, bounds.reach, bounds.direction, bounds.forward
    swapped = [(of_swaps[k], *span) for k, span in enumerate(spans)]
    alone = bounds.alone, bounds.alone_errors
    swapping = parts, rest, turn, bounds.entry, most, *alone, sizes, *errors
    each_span(_swap_leads, swapping, swapped)
    return float(found.min())


@allocating
def _greedy_order(G: Float) -> Positions:
    """Return the order in which a greedy search among the anchors alone finds them, (r,). Ties go to the first."""
    r = len(G)
    order = np.arange(r)
    distances = np.diag(G).copy()
    parts = np.zeros((r, r))
    for t in range(r):
        at = t
        for k in range(t + 1, r):
            if distances[order[k]] > distances[order[at]]:
                at = k
        row = order[at]
        # Rows between the two places move up, so that those not found yet stay ascending.
        for k in range(at, t, -1):
            order[k] = order[k - 1]
        order[t] = row
        if not distances[row] > 0.0:
            return order
        for k in order[t + 1 :]:
            left = G[k, row]
            for v in range(t):
                left -= parts[k, v] * parts[row, v]
            part = left / np.sqrt(distances[row])
            parts[k, t] = part
            distances[k] -= part * part
    return order


@allocating
def _greedy_leads(
    parts: Float, norms: Float, turn: Positions, entry: Float, most: float, pivots: Float, pivot_errors: Float,
    weights: Float, sizes: Float, found: Float, start: int, stop: int,
) -> None:  # fmt: skip
    """Compare candidates start ... stop - 1 with the anchor that is chosen at each step.

    parts: (r, c) y.
    norms: (c,) squared norms.
    turn: (c,) the step at which a candidate is chosen, r for never.
    most: the largest error for which the bounds hold.
    sizes: (c,) 1, becomes 1 + |x|_1.
    found: (1,) becomes the least lead less its bound.
    Other arrays are those of `_Bounds`.
    """
    left = norms[start:stop].copy()
    slack = found[0]
    for t in range(len(pivots)):
        own = parts[t]
        of_pivot = pivot_errors[t]
        for i in range(start, stop):
            here = i - start
            # A row that is chosen before or at this step does not compete.
            if turn[i] > t:
                size = sizes[i]
                error = 2.0 * entry[i] * size * size
                lead = pivots[t] - left[here]
                slack = min(slack, lead - error - of_pivot)
                if not (error <= most and of_pivot <= most and left[here] >= -5.0 * most):
                    slack = -np.inf
            part = own[i]
            left[here] -= part * part
            sizes[i] += abs(part) * weights[t]
    found[0] = slack


@allocating
def _swap_leads(
    parts: Float, rest: Float, turn: Positions, entry: Float, most: float, alone: Float, alone_errors: Float,
    sizes: Float, directions: Float, reach: Float, direction: float, forward: float,
    found: Float, start: int, stop: int,
) -> None:  # fmt: skip
    """Compare candidates start ... stop - 1 with each anchor by their distances to the span of the other anchors.

    rest: (c,) squared distances to the span of all anchors.
    directions: (r, r) columns of L^-1, each of length 1.
    Other arrays are those of `_greedy_leads`.
    """
    r = len(alone)
    slack = found[0]
    along = np.empty(stop - start)
    for k in range(r):
        of_anchor = alone_errors[k]
        along[:] = 0.0
        for u in range(k, r):
            factor = directions[u, k]
            own = parts[u]
            for i in range(start, stop):
                along[i - start] += factor * own[i]
        for i in range(start, stop):
            # The other anchors stay, so they cannot take this one's place.
            if turn[i] == r:
                here = along[i - start]
                length = abs(here) + direction
                size = sizes[i] + length * reach[k]
                error = 2.0 * entry[i] * size * size + forward
                lead = alone[k] - rest[i] - here * here
                slack = min(slack, lead - error - of_anchor)
                if not (error <= most and of_anchor <= most and rest[i] >= -5.0 * most):
                    slack = -np.inf
    found[0] = slack
