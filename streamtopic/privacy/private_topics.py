"""Topics from noised counts: everything here is a function of numbers that already have their noise.

    chosen_words      a vocabulary from noised weights of words
    topics_of_noised  a topic model from the noised sum of documents' matrices (private_noise.py)

The noise has the same size in all directions, while topics are few directions. So first those that stand out are kept,
without what noise adds to them. Then the matrix is made what a matrix of topics is, by turns: of few directions,
positive semidefinite, without negative entries (Lee, Bindel and Mimno, "Robust spectral inference for joint stochastic
matrix factorization", NeurIPS 2015). The result is rounded to
integers, and the default learner learns from it as from any counts.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtri

from streamtopic.counts import Cooccurrence, Counts
from streamtopic.counts.arrays import Float, Int64
from streamtopic.errors import CannotLearn
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["chosen_words", "topics_of_noised", "word_threshold"]

# Directions for each topic: a topic of real text takes more than one, and more of them bring noise in.
_DIRECTIONS = 2
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


def topics_of_noised(
    words: Sequence[str], noised: Float, deviation: float, options: LearnerOptions
) -> tuple[TopicFit, Counts, float]:
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
    counts = _as_counts(words, _rectified(plain, directions), frequency, documents)
    # These words were chosen already; shares of documents say the rest.
    every = replace(options, min_df=1, min_share=0.0, max_df=1.0, max_words=n, guided=())
    return learn(counts, every), counts, edge / float(values[-1])


def _as_counts(words: Sequence[str], matrix: Float, frequency: Int64, documents: int) -> Counts:
    """Return a matrix that has its noise already as counts for the learner: (n, n) symmetric, not negative.

    frequency: (n,) about the documents that hold each word. It is the occurrences as well, and no word is heavy:
        repetitions are not counted.
    """
    values = np.rint(np.ldexp(np.triu(matrix), _PLACES)).astype(np.int64)
    rows, columns = np.nonzero(values)
    indptr = np.searchsorted(rows, np.arange(len(words) + 1)).astype(np.int64)
    statistics = frequency, frequency, np.zeros_like(frequency)
    upper = Cooccurrence(len(words), indptr, columns.astype(np.int32), values[rows, columns], *statistics, documents)
    return Counts(words, upper)


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
    # Both properties by turns: more turns fit topics better and noise as well. Two lost the least NPMI.
    values, vectors = _leading(np.maximum(plain, 0.0), directions)
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
