"""Infers the topics of new documents from a model, without the documents that it learned.

The topics theta (r,) of a document maximise f = sum_w x_w log (A theta)_w + alpha sum_k log theta_k over the simplex. f
is concave, so it has one optimum. There the multiplier of sum(theta) = 1 is lambda = L + r alpha, so the constraint
needs no care: grad f - lambda vanishes.

A few steps of EM come first, then Newton's method with conjugate gradients for its steps. Both work on many documents
at once and take two products with A a step, 30 to 40 in all. A step that does not raise f is taken back for a step of
EM, which always does. Some documents are left after many steps (more topics than words, a tiny alpha). Damped Newton
steps finish these, and always arrive.

How far is it to the optimum? With s = min(1, alpha, least count) f / s is self-concordant, and its Hessian is at least
(alpha / s) diag(theta)^-2, so with N = ||theta (grad f - lambda)||_2 / sqrt(s alpha) < 1

    sqrt(sum_k ((theta*_k - theta_k) / theta_k)^2) <= sqrt(s / alpha) N / (1 - N).

Source: Nesterov, "Lectures on Convex Optimization" (2018), section 5.2.
"""

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["fold_in", "held_out_likelihood", "unknown_documents", "warn_of_unknown"]

# Named here, since subscribers load this module with numpy alone: importing the counts' types would load a compiler.
Float = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]

# Numbers of A that a block of documents gathers: 4 MB, so that they stay in the cache over all steps.
_ENTRIES = 1 << 19
# The most steps: of EM at the beginning, of Newton's method, of conjugate gradients in each, of damped Newton.
_WARM = 24
_STEPS = 40
_INNER = 25
_DAMPED = 1000
# Conjugate gradients stop at this share of the residual: an inexact Newton step.
_FORCING = 0.03
# The most words of a document.
_LONGEST = 2.0**32
# Counts up to this share of alpha and tolerance are left out.
_FAINT = 1e-9
# One step makes a proportion at most three times as large.
_GROWTH = 2.0
# A step may lower f by this share of it: rounding does so near the optimum.
_ROUNDING = 1e-13


def fold_in(
    A: npt.ArrayLike,
    indptr: Int64,
    words: npt.NDArray[np.integer],
    counts: npt.ArrayLike,
    *,
    alpha: float = 0.1,
    tolerance: float = 1e-3,
) -> Float:
    """Return topic proportions, (documents, r). Rows sum to 1.

    A row does not depend on the other documents, apart from rounding: on some processors the padding of a block changes
    the order of sums.

    A: (n, r) columns on the simplex.
    indptr: (documents + 1,) where documents begin.
    words: (nnz,) positions in A.
    counts: (nnz,) how often each word occurs in its document.
    alpha: of the prior.
    tolerance: bound on the relative error of each proportion, even on the root of the sum of their squares.

    A document without a word that the model knows gets equal proportions: the prior's mode. One of more than 2^32 words
    is taken as one of so many with the same shares, since sums of larger counts round by more than the tolerance.
    """
    table = np.asarray(A, np.float64)
    documents = len(indptr) - 1
    r = table.shape[1]
    given = np.asarray(counts)
    in_the_model = table.max(axis=1) > 0
    # Also without what is not a number. Left out first: whatever is made of all entries takes memory.
    known = in_the_model[words] & (given > 0)
    owners = np.repeat(np.arange(documents, dtype=np.int32), np.diff(indptr))[known]
    words = words[known]
    amounts = _bounded(given[known].astype(np.float64), owners, documents)
    # Such a count moves no proportion by its tolerance, and the bound on the residual would ask more than floats hold.
    counted = amounts > _FAINT * alpha * tolerance
    if not counted.all():
        words = words[counted]
        amounts = amounts[counted]
        owners = owners[counted]
    starts = np.searchsorted(owners, np.arange(documents + 1, dtype=np.int32))
    sizes = np.diff(starts)
    theta = np.full((documents, r), 1.0 / r)
    # By size, so that the documents of a block need little padding.
    order = np.argsort(sizes, kind="stable")
    at = int(np.searchsorted(sizes[order], 1))
    while at < documents:
        stop = _block_end(sizes[order], at, r)
        chosen = order[at:stop]
        column = np.arange(sizes[chosen[-1]])
        held = column < sizes[chosen, None]
        first = starts[chosen, None]
        # Padding repeats a document's first word, with a count of 0.
        place = np.where(held, first + column, first)
        x = np.where(held, amounts[place], 0.0)
        F = table[words[place]]
        theta[chosen] = _solved(F, x, alpha, tolerance)
        at = stop
    return theta


def unknown_documents(A: Float, theta: Float, indptr: Int64, words: npt.NDArray[np.integer]) -> Positions:
    """Return the documents without a word that the model knows, (k,) ascending.

    theta: (documents, r) the answer of `fold_in`. The other parameters are those of `fold_in`.
    """
    # Few have equal proportions, so few are looked at.
    equal = np.flatnonzero((theta == 1.0 / theta.shape[1]).all(axis=1))
    spans = [slice(indptr[k], indptr[k + 1]) for k in equal]
    known = [bool(A[words[span]].any()) for span in spans]
    return equal[~np.array(known, np.bool_)]


def warn_of_unknown(unknown: Positions, documents: int, stacklevel: int = 3) -> None:
    """Warn, at the line that asked for proportions, of documents without a word that the model knows.

    unknown: (k,) their rows.
    documents: how many documents there are.
    stacklevel: of the line, counted from here.
    """
    if len(unknown):
        first = ", ".join(map(str, unknown[:5].tolist()))
        more = " and more" if len(unknown) > 5 else ""
        warnings.warn(
            f"{len(unknown)} of {documents} documents hold no word of the model (rows {first}{more}), so their "
            "proportions are all equal: leave these rows out",
            UserWarning,
            stacklevel=stacklevel,
        )


def held_out_likelihood(
    A: npt.ArrayLike,
    indptr: Int64,
    words: npt.NDArray[np.integer],
    counts: npt.ArrayLike,
    *,
    alpha: float = 0.1,
    tolerance: float = 1e-3,
) -> float:
    """Return the mean of log p over tokens that are held out, in nats: 0 at most, and higher for a better model.

    Every second word of a document is held out with all of its tokens, and predicted from the topics of the others.
    Words that the model does not know are left out. The parameters are those of `fold_in`.
    Returns NaN if no document has two words that the model knows.
    """
    table = np.asarray(A, np.float64)
    documents = len(indptr) - 1
    known = table.max(axis=1)[words] > 0
    owners = np.repeat(np.arange(documents), np.diff(indptr))[known]
    words = words[known]
    amounts = np.asarray(counts, np.float64)[known]
    starts = np.searchsorted(owners, np.arange(documents + 1))
    held = (np.arange(len(owners)) - starts[owners]) % 2 == 1
    rest = ~held
    ends = np.searchsorted(owners[rest], np.arange(documents + 1))
    theta = fold_in(table, ends, words[rest], amounts[rest], alpha=alpha, tolerance=tolerance)
    p = np.zeros(np.count_nonzero(held))
    # Topic by topic, since all at once would take r times the memory.
    for k in range(table.shape[1]):
        p += theta[owners[held], k] * table[words[held], k]
    weights = amounts[held]
    return float(weights @ np.log(p) / weights.sum()) if len(p) else math.nan


def _bounded(amounts: Float, owners: Int32, documents: int) -> Float:
    """Return amounts, (entries,), scaled down in documents that sum to more than _LONGEST.

    owners: (entries,) the document of each amount.
    """
    # By the largest first: a sum of amounts as they are may leave the range of floats.
    largest = np.zeros(documents)
    np.maximum.at(largest, owners, amounts)
    if not (largest > _LONGEST / max(len(amounts), 1)).any():
        return amounts
    # An empty document has no largest amount, and stays empty.
    shares = amounts / np.where(largest > 0, largest, 1.0)[owners]
    shared = np.bincount(owners, weights=shares, minlength=documents)
    fitting = _LONGEST / np.maximum(shared, 1.0)
    over = (largest > fitting)[owners]
    return np.where(over, shares * fitting[owners], amounts)


def _block_end(sizes: Positions, at: int, r: int) -> int:
    """Return where a block ends that starts at `at`. Its documents are of about one size, and fit into the cache."""
    most = 1.15 * sizes[at] + 2
    end = int(np.searchsorted(sizes, most, side="right"))
    alike = sizes[at:end]
    documents = np.arange(1, len(alike) + 1)
    fitting = documents * alike * r <= _ENTRIES
    return at + max(1, int(np.count_nonzero(fitting)))


@dataclass(slots=True, eq=False)
class _Block:
    """Documents of a block that are not done.

    ids: (b,) their positions in the block.
    F: (b, d, r) rows of A.
    x: (b, d) counts.
    lam: (b, 1) the multiplier lambda.
    goal: (b,) norm of the residual to reach.
    theta: (b, r) proportions.
    q: (b, d) F theta.
    safe: (b, r) an EM step from the last theta.
    best: (b,) f at the last theta.
    trust: (b,) the share of a step that is taken.
    """

    ids: Positions
    F: Float
    x: Float
    lam: Float
    goal: Float
    theta: Float
    q: Float
    safe: Float
    best: Float
    trust: Float

    @classmethod
    def started(cls, F: Float, x: Float, alpha: float, tolerance: float) -> Self:
        """Begin with equal proportions and take some steps of EM."""
        b, _, r = F.shape
        totals = x.sum(axis=1) + r * alpha
        lam = totals[:, None]
        held = np.where(x > 0, x, np.inf)
        least_counts = held.min(axis=1)
        s = np.minimum(min(1.0, alpha), least_counts)
        ratio = tolerance * np.sqrt(alpha / s)
        theta = np.full((b, r), 1.0 / r)
        for _ in range(_WARM):
            theta *= _back(F, x / _ahead(F, theta))
            theta += alpha
            theta /= lam
        # The module's bound, solved for the residual at the tolerance.
        goal = np.sqrt(s * alpha) * ratio / (1 + ratio)
        best = np.full(b, -np.inf)
        return cls(
            ids=np.arange(b),
            F=F,
            x=x,
            lam=lam,
            goal=goal,
            theta=theta,
            q=_ahead(F, theta),
            safe=theta,
            best=best,
            trust=np.ones(b),
        )

    def only(self, chosen: Mask) -> Self:
        """Return the block of some of the documents."""
        kept = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}
        return replace(self, **kept)

    def take_back(self, alpha: float) -> None:
        """Replace steps that did not raise f by steps of EM, and trust the next steps of their documents less."""
        value = self._value(slice(None), alpha)
        # Also if the value is not a number.
        least = self.best - _ROUNDING * np.abs(self.best)
        worse = ~(value >= least)
        self.trust = np.minimum(1.0, 2 * self.trust)
        if worse.any():
            safe = self.safe[worse]
            self.theta[worse] = safe
            self.q[worse] = _ahead(self.F[worse], safe)
            self.trust[worse] /= 8
            value[worse] = self._value(worse, alpha)
        self.best = value

    def _value(self, of: slice | Mask, alpha: float) -> Float:
        """Return f of some of the documents."""
        logarithms = np.log(self.q[of])
        likelihood = np.einsum("ij,ij->i", self.x[of], logarithms)
        prior = np.log(self.theta[of]).sum(axis=1)
        return np.asarray(likelihood + alpha * prior)


def _solved(F: Float, x: Float, alpha: float, tolerance: float) -> Float:
    """Return theta (b, r) for F (b, d, r) and x (b, d), padded by zeros in x."""
    block = _Block.started(F, x, alpha, tolerance)
    out = np.empty((len(F), F.shape[2]))
    for _ in range(_STEPS):
        block.take_back(alpha)
        weight = block.x / block.q
        pull = _back(block.F, weight)
        residual = block.theta * (pull - block.lam) + alpha
        size = np.einsum("ij,ij->i", residual, residual)
        moving = size > block.goal**2
        # Documents that are done leave when they are three in ten: a smaller block costs a copy of all arrays.
        if np.count_nonzero(moving) <= 0.7 * len(moving):
            done = ~moving
            out[block.ids[done]] = block.theta[done]
            if not moving.any():
                return out
            block = block.only(moving)
            weight = weight[moving]
            pull = pull[moving]
            residual = residual[moving]
            size = size[moving]
            moving = moving[moving]
        raised = block.theta * pull + alpha
        block.safe = raised / block.lam
        step = _direction(block, weight / block.q, residual, size, alpha)
        # A document that is done does not change until it leaves the block.
        share = (block.trust * moving)[:, None]
        block.theta = _moved(block.theta, step * share)
        block.q = _ahead(block.F, block.theta)
    block.take_back(alpha)
    for k, document in enumerate(block.ids):
        goal = float(block.goal[k])
        theta = block.theta[k]
        out[document] = _damped(block.F[k], block.x[k], theta, goal, alpha)
    return out


def _direction(block: _Block, curvature: Float, residual: Float, size: Float, alpha: float) -> Float:
    """Return u (b, r), the relative Newton step: (alpha I + Theta F^T diag(curvature) F Theta) u = residual, nearly.

    curvature: (b, d) x / q^2.
    residual: (b, r) theta (grad f - lambda).
    size: (b,) the squared norm of the residual.
    A document whose residual has become small enough gets no further part of a step.
    """
    F = block.F
    theta = block.theta
    u = np.zeros_like(theta)
    along = residual.copy()
    residual = residual.copy()
    within_goal = (0.3 * block.goal) ** 2
    enough = np.maximum(_FORCING**2 * size, within_goal)
    for _ in range(_INNER):
        # In place: these arrays are small, and new ones would cost as much as the products.
        ahead = _ahead(F, theta * along)
        ahead *= curvature
        product = _back(F, ahead)
        product *= theta
        product += alpha * along
        bend = np.einsum("ij,ij->i", along, product)
        ratio = size / np.maximum(bend, 1e-300)
        length = np.where(size > enough, ratio, 0.0)[:, None]
        u += length * along
        product *= length
        residual -= product
        left = np.einsum("ij,ij->i", residual, residual)
        if (left <= enough).all():
            break
        along *= (left / np.maximum(size, 1e-300))[:, None]
        along += residual
        size = left
    return u


def _moved(theta: Float, u: Float) -> Float:
    """Return theta after relative steps u (b, r). It is positive and its rows sum to 1."""
    up = 1 + np.clip(u, 0.0, _GROWTH)
    # Downwards by theta / (1 - u): where only the prior holds a proportion up, that is Newton's step on 1 / theta,
    # which arrives at once.
    down = 1 - np.clip(u, -1e6, 0.0)
    moved = theta * up / down
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def _damped(F: Float, x: Float, theta: Float, goal: float, alpha: float) -> Float:
    """Return theta (r,) by exact Newton steps, cut to 1 / (1 + N) while the decrement N is large."""
    lam = float(x.sum()) + len(theta) * alpha
    s = min(1.0, alpha, float(x[x > 0].min()))
    for _ in range(_DAMPED):
        q = F @ theta
        pull = F.T @ (x / q)
        residual = theta * (pull - lam) + alpha
        # A tenth, so that bringing the sum to 1 does not take it over the goal again.
        if residual @ residual <= (0.1 * goal) ** 2:
            break
        roots = np.sqrt(x) / q
        rows = roots[:, None] * F * theta
        hessian = rows.T @ rows + alpha * np.eye(len(theta))
        u = np.linalg.solve(hessian, residual)
        decrement = math.sqrt(max(float(u @ residual), 0.0) / s)
        # A full step converges quadratically from here on; a damped one gets here from anywhere.
        if decrement > 0.25:
            u = u / (1 + decrement)
        theta = theta * (1 + u)
    return np.asarray(theta / theta.sum())


def _ahead(F: Float, theta: Float) -> Float:
    """Return F theta, (b, d), for F (b, d, r) and theta (b, r)."""
    products = np.matmul(F, theta[:, :, None])
    return np.asarray(products[:, :, 0])


def _back(F: Float, weight: Float) -> Float:
    """Return F^T weight, (b, r), for F (b, d, r) and weight (b, d)."""
    products = np.matmul(weight[:, None, :], F)
    return np.asarray(products[:, 0, :])
