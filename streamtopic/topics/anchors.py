"""Anchor words: the rows that the others are mixtures of.

Both searches are greedy: the row farthest from the origin, then, r - 1 times, the row farthest from the span of those
chosen. Every decision carries its margin over the runner-up; a decision is certain when the margin exceeds what
rounding could have done. Ties go to the first word.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.lazy_greedy import row_dot, row_norms
from streamtopic.topics.products import dense_rows, times
from streamtopic.topics.spectrum import leading_eigenpairs
from streamtopic.topics.threads import one_thread

__all__ = ["AnchorChoice", "changed_anchors", "farthest_in_principal_directions", "farthest_rows", "replay_rows"]

Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]
_UNIT = 2.0**-53
_TIE = 64


@dataclass(frozen=True, slots=True, eq=False)
class AnchorChoice:
    """Chosen rows, ascending; `margin` is the least lead over a runner-up, relative to the largest distance squared.

    certain: whether every lead exceeds what rounding could have done.
    """

    rows: Positions
    margin: float
    certain: bool


def changed_anchors(before: Iterable[str], after: Iterable[str]) -> str:
    """Say which anchor words are new.

    Those that went are not named: reasons are kept, and a forgotten document may have been the last to hold one.
    """
    gone, new = {*before} - {*after}, {*after} - {*before}
    return f"anchor words changed: {len(gone)} gave way to {', '.join(sorted(new)) or 'none'}"


def farthest_in_principal_directions(
    gram: Float, r: int, roundings: int, carried: float = 0.0, pairs: tuple[Float, Float] | None = None
) -> AnchorChoice:
    """Choose r candidates by greedy search in the r leading principal directions of their rows.

    gram: (c, c), K = M M^T of the candidates' rows M; roundings: of one of its entries at a cold start; carried: bound
    on the norm of the error that updates have added; pairs: its r + 1 leading eigenpairs, if at hand. Rare words
    lie far out mostly by sampling noise; the leading directions drop it. Returns positions among the candidates. Raises
    CannotLearn where the rows span fewer than r directions.
    """
    c = len(gram)
    values, vectors = pairs or leading_eigenpairs(gram, r)
    if c < r or values[r - 1] <= c * _UNIT * values[0]:
        raise CannotLearn(
            "rank",
            f"the counts of {c} candidate words span fewer than {r} directions: add documents or ask fewer topics",
        )
    coordinates = vectors[:, :r] * np.sqrt(values[:r])
    # No entry is negative, so an error of so many units in each is one of as many in the norm. An eigensolver's is a
    # small multiple of a unit (LAPACK Users' Guide, 4.7), for which c stands here. Cutting the spectrum magnifies both
    # by the r-th eigenvalue over the gap below it (first-order bound for a spectral function).
    gap = values[r - 1] - (values[r] if c > r else 0.0)
    cold = (roundings + c) * _UNIT * values[0]
    error = cold * (values[r - 1] / gap if gap > 0 else np.inf)
    with one_thread():
        return _greedy(coordinates, r, error, 1 + carried / cold)


def _greedy(E: Float, r: int, error: float, growth: float) -> AnchorChoice:
    """Greedy search over explicit rows E (c, d); `error` bounds the perturbation of E E^T at a cold start.

    Rows within a multiple of the error of the farthest are ties, and the first word wins: words that always occur
    together then give the same choice on every path. A decision is certain unless a row lies so near the edge of the
    ties that the error, grown by updates, could carry it across.
    """
    residual = E.copy()
    distances = np.einsum("ij,ij->i", E, E)
    largest = float(distances.max())
    chosen: list[int] = []
    basis = np.empty((r, E.shape[1]))
    margin, certain = np.inf, True
    for t in range(r):
        farthest = float(distances.max())
        # A distance to a span moves by the error times (1 + |coefficients|)^2; the least pivot bounds those.
        allowed = 2 * error * (1 + np.sqrt(largest / max(farthest, 1e-300))) ** 2
        if farthest <= allowed:
            raise CannotLearn("rank", f"the rows span only {t} directions: add documents or ask fewer topics")
        behind = farthest - distances
        row = int(np.argmax(behind <= _TIE * allowed))
        edge = np.abs(behind - _TIE * allowed)
        edge[chosen] = np.inf
        certain = certain and float(edge.min()) > 2 * growth * allowed
        outside = behind[behind > _TIE * allowed]
        margin = min(margin, float(outside.min()) / largest if len(outside) else np.inf)
        chosen.append(row)
        direction = residual[row] - basis[:t].T @ (basis[:t] @ residual[row])
        basis[t] = direction / np.linalg.norm(direction)
        residual = residual - np.outer(residual @ basis[t], basis[t])
        distances = np.einsum("ij,ij->i", residual, residual)
        distances[chosen] = -1.0
    return AnchorChoice(np.sort(np.array(chosen, np.intp)), float(margin), bool(certain))


def _lead(distances: Float, row: int) -> float:
    if len(distances) < 2:
        return float(distances[row])
    return float(distances[row] - np.partition(distances, -2)[-2])


def farthest_rows(q: SymmetricCounts, candidates: Positions, mass: npt.NDArray[np.int64], r: int) -> AnchorChoice:
    """Choose r rows of Qbar among the candidates: greedy, then the swap pass of the paper (RecoverAnchors).

    candidates: ascending positions in Q; mass: (n,) row sums. Returns positions in Q. The paper's random projection is
    left out: a lazy search visits few rows, so the exact distances cost less than the projection would.
    """
    if len(candidates) < r:
        raise CannotLearn(
            "candidates", f"{len(candidates)} words may be anchors, {r} topics need {r}: ask fewer topics"
        )
    search = _LazySearch(q, candidates, mass, r)
    chosen = [search.step() for _ in range(r)]
    rows, margin, allowed = _swapped(q, candidates, mass, np.array(chosen, np.intp), search.norms)
    margin = min(margin, search.margin)
    return AnchorChoice(np.sort(candidates[rows]), float(margin), bool(margin > allowed))


def replay_rows(norms: Float, B: Float, G: Float, chosen: Positions, terms: int) -> AnchorChoice | None:
    """Check that the search of `farthest_rows` would choose the same candidates again, from inner products alone.

    norms: (c,) squared norms of the candidates' rows; B: (c, r) their inner products with the anchors' rows; G: (r, r);
    chosen: (r,) the anchors among the candidates; terms: summed in an inner product. With one growing Cholesky factor
    the distances of all candidates to all prefixes cost c r^2. None where the greedy search leaves the anchors (a swap
    had brought one in), or where a lead is within rounding: then only a new search can tell.
    """
    r, largest = len(chosen), float(norms.max())
    left, distances, y = list(range(r)), norms.copy(), np.zeros_like(B)
    margin = np.inf
    inverse = np.linalg.inv(G)
    allowed = 4 * terms * _UNIT * max(1.0, float(np.abs(inverse).sum(axis=1).max()) * largest)
    for t in range(r):
        k = max(left, key=lambda k: distances[chosen[k]])
        row = chosen[k]
        margin = min(margin, _lead(distances, int(row)) / largest)
        if not margin > allowed:
            return None
        y[:, t] = (B[:, k] - y[:, :t] @ y[row, :t]) / np.sqrt(distances[row])
        distances = distances - y[:, t] ** 2
        left.remove(k)
        distances[chosen[[k for k in range(r) if k not in left]]] = -1.0
    x = B @ inverse
    rest = norms - np.einsum("ij,ij->i", x, B)
    for k in range(r):
        distances = rest + x[:, k] ** 2 / inverse[k, k]
        distances[np.delete(chosen, k)] = -1.0
        margin = min(margin, _lead(distances, int(chosen[k])) / largest)
    return AnchorChoice(np.sort(chosen), float(margin), certain=True) if margin > allowed else None


class _LazySearch:
    """Greedy search that brings a row up to date only while it could still win.

    Distances to a growing span only shrink, so a stale distance is an upper bound. Projections are always taken off in
    the order of the directions: a row's distance is the same bits whenever it is brought up to date.
    """

    def __init__(self, q: SymmetricCounts, candidates: Positions, mass: npt.NDArray[np.int64], r: int) -> None:
        self.q, self.candidates = q, candidates
        self.scale = 1.0 / np.maximum(mass[candidates], 1).astype(float)
        self.norms = row_norms(q, candidates, self.scale)
        self.distances = self.norms.copy()
        self.fresh = np.zeros(len(candidates), np.int64)
        # One column a direction, made so far: `found`. Fixed strides keep the products of a row in the cache.
        self.directions = np.zeros((q.n, r))
        self.found = 0
        self.margin = np.inf

    def step(self) -> int:
        """Choose the next row and return its position among the candidates."""
        row = self._front()
        if not self.distances[row] > len(self.norms) * _UNIT * float(self.norms.max()):
            raise CannotLearn("rank", f"the rows span only {self.found} directions: add documents or ask fewer topics")
        distance = self.distances[row]
        self.distances[row] = -1.0
        runner = self._front() if len(self.distances) > 1 else row
        self.margin = min(self.margin, float(distance - self.distances[runner]) / float(self.norms.max()))
        direction = dense_rows(self.q, self.candidates[row : row + 1])[0] * self.scale[row]
        for _ in range(2):
            direction = direction - self.directions @ (self.directions.T @ direction)
        self.directions[:, self.found] = direction / np.linalg.norm(direction)
        self.found += 1
        return row

    def _front(self) -> int:
        """Return the farthest row, brought up to date."""
        while True:
            row = int(np.argmax(self.distances))
            if self.distances[row] < 0 or self.fresh[row] == self.found:
                return row
            parts = row_dot(
                self.q,
                self.candidates[row],
                self.directions[:, self.fresh[row] : self.found],
                self.scale[row],
            )
            self.fresh[row] = self.found
            left = self.distances[row]
            for part in parts:
                left -= part * part
            self.distances[row] = max(left, 0.0)


def _swapped(
    q: SymmetricCounts, candidates: Positions, mass: npt.NDArray[np.int64], chosen: Positions, norms: Float
) -> tuple[Positions, float, float]:
    """Let each anchor in turn be replaced by the row farthest from the span of the others.

    For the span of all anchors but k, distance^2 = distance^2 to the span of all + x_k^2 / (G^-1)_kk with x the
    coefficients of the row's projection. Returns the chosen positions, the least lead and what rounding could do.
    """
    scale = 1.0 / np.maximum(mass[candidates], 1).astype(float)

    def inner(rows: Positions) -> Float:
        thin = dense_rows(q, candidates[rows]).T * scale[rows]
        return np.asarray(times(q, np.ascontiguousarray(thin), candidates) * scale[:, None])

    chosen = chosen.copy()
    B = inner(chosen)
    largest, margin = float(norms.max()), np.inf
    condition = 1.0
    for k in range(len(chosen)):
        inverse = np.linalg.inv(B[chosen])
        x = B @ inverse
        condition = max(condition, float(np.abs(inverse).sum(axis=1).max()) * largest)
        distances = norms - np.einsum("ij,ij->i", x, B) + x[:, k] ** 2 / inverse[k, k]
        distances[np.delete(chosen, k)] = -1.0
        row = int(np.argmax(distances))
        margin = min(margin, _lead(distances, row) / largest)
        if row != chosen[k]:
            chosen[k] = row
            B[:, k] = inner(chosen[k : k + 1])[:, 0]
    return chosen, margin, 4 * q.n * _UNIT * condition
