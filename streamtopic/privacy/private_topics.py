"""Topics from noised counts: everything here is a function of numbers that already have their noise.

    choose_words      a vocabulary from noised weights of words
    topics_of_noised  a topic model from the noised sum of documents' matrices (`document_matrices`)

The noise has the same size in all directions, while topics are few directions. So first those that stand out are kept,
without what noise adds to them. Then the matrix is made what a matrix of topics is, by turns: of few directions,
positive semidefinite, without negative entries (Lee, Bindel and Mimno, "Robust spectral inference for joint stochastic
matrix factorization", NeurIPS 2015). The result is rounded to
integers, and the default learner learns from it as from any counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtri

from streamtopic.counts import Cooccurrence, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["NoisedCounts", "chosen_words", "topics_of_noised", "word_threshold"]

# Directions for each topic: a topic of real text takes more than one, and more of them bring noise in.
_DIRECTIONS = 2
# More of them fit topics better and noise as well: two lost the least NPMI.
_TURNS = 2
# A direction this far above the largest one of noise alone is hardly noise.
_CLEAR = 1.05
# Binary places of the integers that the learner gets.
_PLACES = 20
# More words than any document can hold.
_MOST_WORDS = 1 << 20


def word_threshold(sigma: float, delta: float) -> float:
    """Return the weight from which on a word may be named.

    sigma: of the noise on weights.
    delta: the probability that any word of one document alone reaches it.
    """
    # Such a word has a weight of at most sqrt(1/2), and a document has fewer than 2^20 words.
    return math.sqrt(0.5) - sigma * float(ndtri(delta / _MOST_WORDS))


def chosen_words(
    words: Sequence[str], noised: Float, whole: float, least: float, max_share: float, most: int
) -> list[str]:
    """Return the heaviest words, ascending by code point.

    words: (n,).
    noised: (n,) their noised weights.
    whole: noised weight of a word that all documents would hold.
    least: the least weight of a word that may be named.
    max_share: words of a larger share of `whole` are left out.
    most: the most words to return.
    """
    heaviest = np.argsort(-noised, kind="stable")
    may = (noised >= least) & (noised <= max_share * whole)
    return sorted(words[k] for k in heaviest[may[heaviest]][:most].tolist())


@dataclass(frozen=True, slots=True, eq=False)
class NoisedCounts:
    """A count source (see CountSource) of a matrix that has its noise already.

    words: (n,) ascending.
    matrix: (n, n) symmetric, not negative.
    frequency: (n,) about the documents that hold each word, at least 1.
    documents: about how many documents there are.
    """

    words: Sequence[str]
    matrix: Float
    frequency: Int64
    documents: int

    @property
    def tokens(self) -> Int64:
        """As `frequency`: repetitions are not counted."""
        return self.frequency

    @property
    def heavy(self) -> Int64:
        """Zeros: no word repeats itself."""
        return np.zeros_like(self.frequency)

    def frequency_of(self, words: Sequence[str]) -> Int64:
        """Return the frequency of some of the words."""
        place = {word: k for k, word in enumerate(self.words)}
        return np.asarray(self.frequency[[place[word] for word in words]])

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the entries of the words at these positions as integers."""
        n = len(keep)
        values = np.rint(np.ldexp(self.matrix[np.ix_(keep, keep)], _PLACES)).astype(np.int64)
        rows, columns = np.nonzero(np.triu(values))
        indptr = np.searchsorted(rows, np.arange(n + 1))
        own = self.frequency[keep]
        return Cooccurrence(
            n,
            indptr.astype(np.int64),
            columns.astype(np.int32),
            values[rows, columns],
            own,
            own,
            np.zeros_like(own),
            self.documents,
        )

    def touching(self, keep: Positions, chosen: Mask) -> Cooccurrence:
        """See CountSource.touching."""
        return self.restrict(keep).touching(np.arange(len(keep)), chosen)

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the entries of `restrict` as a working matrix."""
        return SymmetricCounts.of(self.restrict(keep))


def topics_of_noised(
    words: Sequence[str], noised: Float, deviation: float, options: LearnerOptions
) -> tuple[TopicFit, NoisedCounts, float]:
    """Return a topic model of noised counts, the counts as it was learned from them, and the share of noise.

    words: (n,) ascending.
    noised: (n, n) symmetric, in units of documents.
    deviation: standard deviation of the noise on its diagonal; it is sqrt(1/2) of that elsewhere.
    options: of the learner. All of these words are used.

    The share is the largest direction of noise alone over the last direction of the topics: from 1 on that may be
    noise.

    Raises CannotLearn if fewer than half of the directions that the topics need stand out of the noise, or as `learn`.
    """
    topics = options.n_topics
    n = len(words)
    if n <= topics:
        raise CannotLearn("words", f"the vocabulary has {n} words for {topics} topics: name or allow more words")
    values, _ = _leading(noised, topics)
    # The largest eigenvalue that noise of this deviation has by itself, about.
    edge = deviation * math.sqrt(2 * n)
    clear = int((values > _CLEAR * edge).sum())
    if 2 * clear < topics:
        raise CannotLearn(
            "noise",
            f"noise hides the topics: {clear} directions of {topics} stand out of it. Add documents, ask for fewer "
            "topics, or take fewer words or versions or a larger epsilon in `[private]`",
        )
    directions = min(_DIRECTIONS * topics, n - 1)
    plain = _without_noise(noised, directions, edge)
    documents = max(round(float(np.trace(noised))), 1)
    # Row sums of what stands out of the noise: those of the noised matrix have all of the noise of a row.
    frequency = np.clip(np.rint(plain.sum(axis=1)), 1, documents).astype(np.int64)
    counts = NoisedCounts(words, _rectified(plain, directions), frequency, documents)
    # These words were chosen already; shares of documents say the rest.
    every = replace(options, min_df=1, min_share=0.0, max_df=1.0, max_words=n, guided=())
    return learn(counts, every), counts, edge / float(values[-1])


def _without_noise(noised: Float, directions: int, edge: float) -> Float:
    """Return the leading directions, each shrunk by what noise adds to its eigenvalue.

    edge: the largest eigenvalue of noise alone; directions below it are left out.

    Noise is spread evenly, so of an eigenvalue v about sqrt(v^2 - edge^2) is the direction's own (Gavish and Donoho,
    "Optimal shrinkage of singular values", 2017, for the Frobenius norm).
    """
    values, vectors = _leading(noised, directions)
    own = np.sqrt(np.maximum(values * np.abs(values) - edge * edge, 0.0))
    return np.asarray((vectors * own) @ vectors.T)


def _rectified(plain: Float, directions: int) -> Float:
    """Return a matrix near to this one that is of few directions, positive semidefinite, and not negative."""
    found = np.maximum(plain, 0.0)
    for _ in range(_TURNS - 1):
        values, vectors = _leading(found, directions)
        found = np.maximum((vectors * np.maximum(values, 0.0)) @ vectors.T, 0.0)
    return np.asarray((found + found.T) / 2)


def _leading(matrix: Float, count: int) -> tuple[Float, Float]:
    """Return the largest eigenvalues, descending, and their vectors, (n, count)."""
    if 4 * count >= len(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    # A start that is the same every time.
    values, vectors = eigsh(matrix, k=count, which="LA", v0=np.ones(len(matrix)))
    order = np.argsort(-values)
    return values[order], vectors[:, order]
