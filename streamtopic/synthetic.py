"""Topic models with a known truth: planted topics that satisfy the theory's assumptions, and documents drawn from them.

    Dirichlet, LogisticNormal   how topics mix in a document
    SyntheticTopics             A*, R*, anchors and constants; documents drawn from them
    Recovery                    how far a learned model is from the planted one

Source: Wei et al. (2025), section 2 (generation, p-separability) and appendix A (Q = A R A^T in expectation).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri, softmax

from streamtopic.counts import MAX_LENGTH, Cooccurrence, Counts, DocumentBatch, Weighting, count
from streamtopic.errors import UsageError

__all__ = ["Dirichlet", "LogisticNormal", "Moments", "Prior", "Recovery", "SyntheticTopics"]

Float = npt.NDArray[np.float64]

# Tokens that are drawn at a time.
_BLOCK_TOKENS = 1 << 21
# A lattice of L'Ecuyer and Lemieux (2000), shifted 16 times.
_POINTS, _KOROBOV, _SHIFTS = 16_381, 4_026, 16


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """z = E[X] (r,), R = E[X X^T] (r, r), and a bound on the numerical error of an entry of R (0: exact).

    error: four standard errors of the worst entry, from independent replicates.
    """

    z: Float
    R: Float
    error: float


class Prior(Protocol):
    """A distribution of topic proportions X on the simplex."""

    def sample(self, rng: np.random.Generator, m: int) -> Float:
        """Return m draws, (m, r), rows on the simplex."""

    def moments(self) -> Moments:
        """Return first and second moments."""


@dataclass(frozen=True, slots=True, eq=False)
class Dirichlet:
    """X ~ Dirichlet(alpha), alpha (r,) positive: latent Dirichlet allocation. Its moments are exact."""

    alpha: Float

    def sample(self, rng: np.random.Generator, m: int) -> Float:
        """Return m draws, (m, r)."""
        return rng.dirichlet(self.alpha, m)

    def moments(self) -> Moments:
        """R = (diag(alpha) + alpha alpha^T) / (alpha_0 (alpha_0 + 1)), alpha_0 the sum of alpha."""
        total = float(self.alpha.sum())
        R = (np.diag(self.alpha) + np.outer(self.alpha, self.alpha)) / (total * (total + 1))
        return Moments(self.alpha / total, R, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class LogisticNormal:
    """X = softmax(mu + factor g), g standard normal: topics that come together or avoid each other.

    mu (r,); factor (r, r) with factor factor^T the covariance. Moments by a shifted lattice rule.
    """

    mu: Float
    factor: Float

    @classmethod
    def with_shares(cls, z: Float, spread: float, correlation: float) -> "LogisticNormal":
        """Covariance spread^2 correlation^|k-l| between topics k and l, and mu such that E[X] = z (r,) numerically."""
        apart = np.abs(np.subtract.outer(np.arange(len(z)), np.arange(len(z))))
        covariance = spread**2 * np.where(apart == 0, 1.0, np.float64(correlation) ** np.maximum(apart, 1))
        factor = np.linalg.cholesky(covariance.astype(np.float64))
        mu = np.log(z)
        noise = _lattice(len(z), 0) @ factor.T
        for _ in range(500):
            found = softmax(mu + noise, axis=1).mean(axis=0)
            mu = mu + np.log(z / found)
            if np.abs(found / z - 1).max() < 1e-12:
                break
        return cls(mu, factor)

    def sample(self, rng: np.random.Generator, m: int) -> Float:
        """Return m draws, (m, r)."""
        return np.asarray(softmax(self.mu + rng.standard_normal((m, len(self.mu))) @ self.factor.T, axis=1))

    def moments(self) -> Moments:
        """Moments over 16 independent shifts of a lattice of 16,381 points; their spread states the error."""
        draws = (softmax(self.mu + _lattice(len(self.mu), k) @ self.factor.T, axis=1) for k in range(_SHIFTS))
        found = np.array([X.T @ X / len(X) for X in draws])
        R = found.mean(axis=0)
        return Moments(R.sum(axis=1), R, float(4 * found.std(axis=0, ddof=1).max() / math.sqrt(_SHIFTS)))


def _lattice(r: int, shift: int) -> Float:
    """Return normal deviates at a randomly shifted Korobov lattice, (points, r)."""
    steps = np.array([pow(_KOROBOV, k, _POINTS) for k in range(r)], np.int64)
    place = (np.outer(np.arange(_POINTS), steps) % _POINTS) / _POINTS + np.random.default_rng(shift).random(r)
    return np.asarray(ndtri(np.clip(place % 1.0, 2.0**-53, 1 - 2.0**-53)))


@dataclass(frozen=True, slots=True)
class Recovery:
    """Greatest entry of A - A* and of R - R* (nan where no R was given) after matching topics.

    order: for each planted topic the learned one, (r,).
    """

    A: float
    R: float
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTopics:
    """A p-separable topic model: A (n, r), anchors (r,) ascending rows of A, prior of the proportions, its moments.

    words: (n,) names, ascending. Topic k is the one of anchor k, so a learner that finds the planted anchors (and
    sorts them) returns its columns in the planted order. The constants are those of the paper: p, a, gamma, q.
    """

    words: tuple[str, ...]
    A: Float
    anchors: npt.NDArray[np.intp]
    prior: Prior
    moments: Moments

    @classmethod
    def planted(
        cls,
        words: int = 200,
        topics: int = 5,
        *,
        separability: float = 0.05,
        imbalance: float = 1.0,
        prior: Literal["dirichlet", "logistic_normal"] = "dirichlet",
        concentration: float = 1.0,
        correlation: float = 0.5,
        word_concentration: float = 0.1,
        overlap: float = 0.2,
        seed: int = 0,
    ) -> "SyntheticTopics":
        """Plant topics.

        separability: p, the mass of every anchor in its topic.
        imbalance: a = max z / min z; shares in between are a geometric sequence.
        concentration: sum of the Dirichlet's alpha, or the variance of the logistic normal's exponents.
        correlation: of neighbouring topics' exponents (logistic normal only).
        word_concentration: of the Dirichlet that a topic's other words are drawn from.
        overlap: share of a topic's other mass that is spread evenly, the same in all topics, so that no word is rare
            and only anchors are near a corner.
        Raises UsageError for values that no such model can have.
        """
        _check_planted(words, topics, separability, imbalance, concentration, correlation, overlap)
        rng = np.random.default_rng(seed)
        z = np.geomspace(1.0, imbalance, topics)
        z = rng.permutation(z / z.sum())
        anchors = np.sort(rng.choice(words, topics, replace=False))
        A = np.zeros((words, topics))
        others = np.setdiff1d(np.arange(words), anchors)
        own = rng.dirichlet(np.full(len(others), word_concentration), topics).T
        A[others] = (1 - separability) * ((1 - overlap) * own + overlap / len(others))
        A[anchors, np.arange(topics)] = separability
        mixing: Prior = Dirichlet(concentration * z)
        if prior == "logistic_normal":
            mixing = LogisticNormal.with_shares(z, math.sqrt(concentration), correlation)
        names = tuple(f"w{k:0{len(str(words - 1))}d}" for k in range(words))
        return cls(names, A / A.sum(axis=0), anchors, mixing, mixing.moments())

    @property
    def R(self) -> Float:  # noqa: N802  the paper's symbol
        """Topic-topic covariance R* = E[X X^T], (r, r), to `moments.error`."""
        return self.moments.R

    @property
    def z(self) -> Float:
        """Pr[z = k], (r,), sum 1."""
        return self.moments.z

    @property
    def a(self) -> float:
        """Topic imbalance, max z / min z."""
        return float(self.z.max() / self.z.min())

    @property
    def gamma(self) -> float:
        """Condition of R*: the least singular value of diag(z)^-1 R*. Qbar*_P is then gamma p-robust."""
        return float(np.linalg.svd(self.R / self.z[:, None], compute_uv=False)[-1])

    @property
    def p(self) -> float:
        """Separability: the least mass of an anchor word in its topic."""
        return float(self.A[self.anchors, np.arange(len(self.anchors))].min())

    @property
    def word_masses(self) -> Float:
        """Q* 1 = A z, (n,): the probability of each word."""
        return np.asarray(self.A @ self.z)

    @property
    def C(self) -> Float:  # noqa: N802  the paper's symbol
        """Pr[z = k | w = i], (n, r): each word as a mixture of anchors."""
        return self.A * self.z / self.word_masses[:, None]

    @property
    def Q(self) -> Float:  # noqa: N802  the paper's symbol
        """Population co-occurrence A R* A^T, (n, n), entries sum to 1."""
        return np.asarray(self.A @ self.R @ self.A.T)

    def q(self, topics: npt.ArrayLike) -> float:
        """Return q of a task on these topics: the least of their Pr[z = k]."""
        return float(self.z[np.asarray(topics, np.intp)].min())

    def documents(self, m: int, length: int, seed: int = 0) -> DocumentBatch:
        """Draw m documents of `length` tokens, one row each: X from the prior, every token from A X."""
        return DocumentBatch.stacked(list(self._drawn(m, length, seed)))

    def counts(self, m: int, length: int, seed: int = 0, weighting: Weighting | None = None) -> Counts:
        """Count the very documents of `documents` without keeping them. weighting: by default the paper's, mass 1."""
        cap = weighting or Weighting(1)
        blocks = [count(batch, len(self.words), cap) for batch in self._drawn(m, length, seed)]
        return Counts(self.words, Cooccurrence.sum(blocks, len(self.words)))

    def recovery(self, words: tuple[str, ...], A: Float, R: Float | None = None) -> Recovery:
        """Compare a learned A (n', r) over `words`, and R (r, r), with the planted model.

        A word that was not learned counts with the mass it should have. Topics are matched so that the sum of their
        greatest entries of A - A* is least. Raises UsageError where the number of topics differs.
        """
        if A.shape[1] != self.A.shape[1]:
            raise UsageError(f"{A.shape[1]} topics were learned and {self.A.shape[1]} planted: learn as many")
        place = {word: k for k, word in enumerate(self.words)}
        wide = np.zeros_like(self.A)
        wide[[place[word] for word in words]] = A
        far = np.array([np.abs(wide - column[:, None]).max(axis=0) for column in self.A.T])
        planted, learned = linear_sum_assignment(far)
        off = math.nan if R is None else float(np.abs(R[np.ix_(learned, learned)] - self.R).max())
        return Recovery(float(far[planted, learned].max()), off, tuple(learned.tolist()))

    def _drawn(self, m: int, length: int, seed: int) -> Iterator[DocumentBatch]:
        if m < 1 or not 1 <= length <= MAX_LENGTH:
            raise UsageError(f"{m} documents of {length} tokens cannot be drawn: use 1 or more, of 1 to {MAX_LENGTH}")
        rng = np.random.default_rng(seed)
        steps = np.cumsum(self.A, axis=0)
        steps /= steps[-1]
        block = max(1, _BLOCK_TOKENS // length)
        for start in range(0, m, block):
            yield self._block(rng, steps, min(block, m - start), length)

    def _block(self, rng: np.random.Generator, steps: Float, m: int, length: int) -> DocumentBatch:
        amounts = rng.multinomial(length, self.prior.sample(rng, m))
        n = len(self.words)
        tokens = []
        for k, own in enumerate(amounts.T):
            drawn = np.searchsorted(steps[:, k], rng.random(int(own.sum())), side="right")
            tokens.append(np.repeat(np.arange(m), own) * n + drawn)
        pairs, times = np.unique(np.concatenate(tokens), return_counts=True)
        return DocumentBatch(
            indptr=np.searchsorted(pairs, np.arange(m + 1) * n).astype(np.int64),
            words=(pairs % n).astype(np.int32),
            counts=times.astype(np.int32),
            lengths=np.full(m, length, np.int64),
            owners=np.arange(m, dtype=np.int32),
            documents=m,
        )


def _check_planted(
    words: int, topics: int, p: float, a: float, concentration: float, correlation: float, overlap: float
) -> None:
    wrong = (
        (not 1 <= topics < words, f"{topics} topics need more than {topics} words: use more than the {words} given"),
        (not 0 < p < 1, f"a separability of {p} cannot be planted: use a mass between 0 and 1"),
        (not 1 <= a < math.inf, f"an imbalance of {a} cannot be planted: use 1 or more"),
        (topics == 1 and a != 1, f"one topic cannot have an imbalance of {a}: use 1"),
        (not 0 < concentration < math.inf, f"a concentration of {concentration} makes no documents: use above 0"),
        (not abs(correlation) < 1, f"topics cannot correlate by {correlation}: use a value between -1 and 1"),
        (not 0 < overlap <= 1, f"an overlap of {overlap} leaves words without mass: use above 0, at most 1"),
    )
    for is_wrong, message in wrong:
        if is_wrong:
            raise UsageError(message)
