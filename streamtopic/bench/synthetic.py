"""Topic models with a known truth: planted topics that satisfy the theory's assumptions, and documents drawn from them.

    SyntheticTopics   A*, R*, anchors and constants; documents drawn from them, in which topics mix by a Dirichlet
    Recovery          how far a learned model is from the planted one
    planted           documents whose words have frequencies as in natural language
    counted           their counts

Source: Wei et al. (2025), section 2 (generation, p-separability) and appendix A (Q = A R A^T in expectation).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from streamtopic.counts import MAX_LENGTH, Cooccurrence, Counts, DocumentBatch, Weighting, count
from streamtopic.errors import UsageError

__all__ = ["Recovery", "SyntheticTopics", "counted", "planted"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

# Tokens drawn at a time, which bounds memory. Another number would give other documents for the same seed.
_BLOCK_TOKENS = 1 << 21


@dataclass(frozen=True, slots=True)
class Recovery:
    """Distance of a learned model from the planted one, after its topics were matched with the planted topics.

    A: greatest absolute entry of A - A*.
    R: greatest absolute entry of R - R*; nan if no R was given.
    order: (r,), the learned topic of each planted topic.
    """

    A: float
    R: float
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTopics:
    """A p-separable topic model, with the paper's constants p, a, gamma and q (Wei et al. 2025, section 2).

    words: (n,), names, ascending.
    A: (n, r), columns on the simplex.
    anchors: (r,), rows of A, ascending; topic k has anchor k, so a learner that finds the planted anchors, and sorts
        them, returns its columns in the planted order.
    alpha: (r,), of the Dirichlet that the topic proportions X of a document are drawn from.
    """

    words: tuple[str, ...]
    A: Float
    anchors: npt.NDArray[np.intp]
    alpha: Float

    @classmethod
    def planted(
        cls,
        words: int = 200,
        topics: int = 5,
        *,
        separability: float = 0.05,
        imbalance: float = 1.0,
        concentration: float = 1.0,
        word_concentration: float = 0.1,
        overlap: float = 0.2,
        seed: int = 0,
    ) -> "SyntheticTopics":
        """Plant topics.

        words, topics: n and r.
        separability: p, the mass of every anchor in its topic.
        imbalance: a = max z / min z; shares in between are a geometric sequence.
        concentration: sum of the Dirichlet's alpha.
        word_concentration: of the Dirichlet that a topic's other words are drawn from.
        overlap: share of a topic's other mass that is spread evenly, the same in all topics. With it words are not
            rare, and only anchors are near a corner.
        seed: of all random numbers.
        Raises UsageError for values that such a model cannot have.
        """
        _check_planted(words, topics, separability, imbalance, concentration, overlap)
        rng = np.random.default_rng(seed)
        z = np.geomspace(1.0, imbalance, topics)
        z = rng.permutation(z / z.sum())
        chosen = rng.choice(words, topics, replace=False)
        anchors = np.sort(chosen)
        A = np.zeros((words, topics))
        others = np.setdiff1d(np.arange(words), anchors)
        alpha = np.full(len(others), word_concentration)
        own = rng.dirichlet(alpha, topics).T
        even = overlap / len(others)
        mixed = (1 - overlap) * own + even
        A[others] = (1 - separability) * mixed
        A[anchors, np.arange(topics)] = separability
        distributions = A / A.sum(axis=0)
        return cls(_names(words), distributions, anchors, concentration * z)

    @property
    def R(self) -> Float:  # noqa: N802  the paper's symbol
        """Topic-topic covariance R* = E[X X^T] = (diag(alpha) + alpha alpha^T) / (s (s + 1)), (r, r); s sums alpha."""
        total = float(self.alpha.sum())
        second = np.diag(self.alpha) + np.outer(self.alpha, self.alpha)
        return np.asarray(second / (total * (total + 1)))

    @property
    def z(self) -> Float:
        """Pr[z = k], (r,), sum 1."""
        return np.asarray(self.alpha / self.alpha.sum())

    @property
    def a(self) -> float:
        """Topic imbalance, max z / min z."""
        return float(self.z.max() / self.z.min())

    @property
    def gamma(self) -> float:
        """Condition of R*, the least singular value of diag(z)^-1 R*; Qbar*_P is gamma p-robust."""
        rows = self.R / self.z[:, None]
        singular_values = np.linalg.svd(rows, compute_uv=False)
        return float(singular_values[-1])

    @property
    def p(self) -> float:
        """Separability: the least mass of an anchor word in its topic."""
        topics = np.arange(len(self.anchors))
        own = self.A[self.anchors, topics]
        return float(own.min())

    @property
    def word_masses(self) -> Float:
        """Q* 1 = A z, (n,): the probability of each word."""
        return np.asarray(self.A @ self.z)

    @property
    def C(self) -> Float:  # noqa: N802  the paper's symbol
        """Pr[z = k | w = i], (n, r): each word as a mixture of anchors."""
        joint = self.A * self.z
        return joint / self.word_masses[:, None]

    @property
    def Q(self) -> Float:  # noqa: N802  the paper's symbol
        """Population co-occurrence A R* A^T, (n, n), entries sum to 1."""
        return np.asarray(self.A @ self.R @ self.A.T)

    def documents(self, m: int, length: int | Int64, seed: int = 0) -> DocumentBatch:
        """Draw m documents, one row each: X from the Dirichlet, every token from A X.

        length: tokens of a document; or (m,), of each.
        seed: of the draws.
        Raises UsageError for no documents, or a length out of range.
        """
        blocks = list(self._drawn(m, length, seed))
        return DocumentBatch.stacked(blocks)

    def counts(self, m: int, length: int, seed: int = 0, weighting: Weighting | None = None) -> Counts:
        """Count the same documents as `documents` draws, without keeping them.

        m, length, seed: as in `documents`.
        weighting: None for the paper's, mass 1.
        """
        cap = weighting or Weighting(1)
        n = len(self.words)
        total = Cooccurrence.zero(n)
        for batch in self._drawn(m, length, seed):
            total = total + count(batch, n, cap)
        return Counts(self.words, total)

    def recovery(self, words: tuple[str, ...], A: Float, R: Float | None = None) -> Recovery:
        """Compare a learned model with the planted one.

        words: (n',), of the learned model.
        A: (n', r), its topics; words that are missing have probability 0.
        R: (r, r), its covariance of topics.

        Topics are matched so that the sum of their greatest entries of A - A* is least. Raises UsageError if the
        number of topics differs.
        """
        if A.shape[1] != self.A.shape[1]:
            raise UsageError(f"{A.shape[1]} topics were learned and {self.A.shape[1]} planted: learn as many")
        place = {word: k for k, word in enumerate(self.words)}
        wide = np.zeros_like(self.A)
        rows = [place[word] for word in words]
        wide[rows] = A
        apart = []
        for column in self.A.T:
            differences = np.abs(wide - column[:, None])
            apart.append(differences.max(axis=0))
        far = np.array(apart)
        planted, learned = linear_sum_assignment(far)
        off = math.nan
        if R is not None:
            matched = R[np.ix_(learned, learned)]
            differences = np.abs(matched - self.R)
            off = float(differences.max())
        farthest = far[planted, learned].max()
        return Recovery(float(farthest), off, tuple(learned.tolist()))

    def _drawn(self, m: int, length: int | Int64, seed: int) -> Iterator[DocumentBatch]:
        """Yield the documents in blocks."""
        lengths = np.broadcast_to(np.asarray(length, np.int64), m)
        if m < 1 or not 1 <= lengths.min() <= lengths.max() <= MAX_LENGTH:
            raise UsageError(f"{m} documents of {length} tokens cannot be drawn: use 1 or more, of 1 to {MAX_LENGTH}")
        rng = np.random.default_rng(seed)
        steps = np.cumsum(self.A, axis=0)
        # Exactly 1 at the end, so that a draw near 1 finds a word.
        steps /= steps[-1]
        block = max(1, int(_BLOCK_TOKENS // lengths.mean()))
        for start in range(0, m, block):
            yield self._block(rng, steps, lengths[start : start + block])

    def _block(self, rng: np.random.Generator, steps: Float, lengths: Int64) -> DocumentBatch:
        """Draw a document of each length; steps: (n, r), sums of A down its columns."""
        # Tokens of each topic first, then their words topic by topic: as many draws as tokens, but few calls.
        m = len(lengths)
        X = rng.dirichlet(self.alpha, m)
        amounts = rng.multinomial(lengths, X)
        n = len(self.words)
        documents = np.arange(m)
        tokens = []
        for k, own in enumerate(amounts.T):
            uniforms = rng.random(int(own.sum()))
            drawn = np.searchsorted(steps[:, k], uniforms, side="right")
            # Document and word as one number, so that one pass counts both.
            holders = np.repeat(documents, own)
            tokens.append(holders * n + drawn)
        pairs, times = np.unique(np.concatenate(tokens), return_counts=True)
        firsts = np.arange(m + 1) * n
        starts = np.searchsorted(pairs, firsts)
        words = pairs % n
        owners = np.arange(m, dtype=np.int32)
        return DocumentBatch.whole(
            indptr=starts.astype(np.int64),
            words=words.astype(np.int32),
            counts=times.astype(np.int32),
            lengths=lengths.copy(),
            owners=owners,
            documents=m,
        )


def _check_planted(words: int, topics: int, p: float, a: float, concentration: float, overlap: float) -> None:
    """Raise UsageError for values that a planted model cannot have."""
    shares = 0 < p < 1 and 0 < overlap <= 1 and 0 < concentration < math.inf
    if not (shares and 1 <= topics < words and 1 <= a < math.inf and (topics > 1 or a == 1)):
        raise UsageError(
            f"{topics} topics of {words} words with a separability of {p}, an imbalance of {a}, a concentration of "
            f"{concentration} and an overlap of {overlap} cannot be planted: use 1 topic or more and more words, "
            "masses between 0 and 1, a concentration above 0, and an imbalance of 1 or more, of 1 for one topic"
        )


def planted(
    documents: int, words: int, topics: int, tokens: int, seed: int = 0, lengths: Int64 | None = None
) -> DocumentBatch:
    """Draw documents of about `tokens` tokens: Zipf frequencies, most words leaning to one topic, few topics each.

    lengths: (documents,) tokens of each, in place of those. Every topic has an anchor word.
    """
    rng = np.random.default_rng(seed)
    zipf = 1.0 / (np.arange(words) + 20.0)
    home = rng.integers(0, topics, words)
    lean = np.where(rng.random(words) < 0.6, 40.0, 1.0)
    weights = np.repeat(zipf[:, None], topics, axis=1)
    weights[np.arange(words), home] *= lean
    # Each topic has one word of its own, 6 % of its tokens, so that anchors stay while few documents go.
    weights[:topics] = np.diag(0.06 * weights.sum(axis=0))
    if lengths is None:
        lengths = np.maximum(rng.poisson(tokens, documents), 2)
    # Ids without meaning: frequent words must not be side by side.
    places = rng.permutation(words)
    distributions = np.empty_like(weights)
    distributions[places] = weights / weights.sum(axis=0)
    model = SyntheticTopics(_names(words), distributions, places[:topics], np.full(topics, 2.0 / topics))
    return model.documents(documents, lengths, seed)


def counted(batch: DocumentBatch, words: int, weighting: Weighting) -> Counts:
    """Count a batch over words whose names sort like their ids."""
    return Counts(_names(words), count(batch, words, weighting))


def _names(words: int) -> tuple[str, ...]:
    """Return names of words, with leading zeros, so that they ascend as numbers do."""
    digits = len(str(words - 1))
    return tuple(f"w{k:0{digits}d}" for k in range(words))
