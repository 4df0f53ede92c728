"""The model as it is published: topics as people read them, how good they are, and their correlations.

    WordEvidence      from the retained counts: documents that hold a word, and how often pairs meet
    ordered           each topic's words by token and document evidence
    top_words         the same with the coherent ten first: the one order in which words are shown
    npmi, diversity   how good shown words are
    topic_correlations, topic_shares   R of the model, and the shares of topics

Everything here is computed after noise, from the A that is shown and the retained counts. So it adds nothing to what A
reveals beyond the counts that a retraining would have had as well. Words use integers and IEEE operations alone: the
same A and the same counts give the same words on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from streamtopic.counts import SymmetricCounts, WordSets
from streamtopic.topics.fingerprint import RetainedCounts
from streamtopic.topics.fit import TopicFit

__all__ = [
    "COHERENT",
    "Correlations",
    "WordEvidence",
    "coherent",
    "diversity",
    "named",
    "npmi",
    "ordered",
    "top_words",
    "topic_correlations",
    "topic_shares",
]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

COHERENT = 10
"""So many words of a topic are chosen together and shown first; quality is measured on them."""

# They are chosen from the first so many times as many.
_POOL = 2

# Documents that count as much as the rarer word's own: NPMI of a word in few documents is mostly chance.
_SHRINK = 20

# NPMI is rounded to this fixed point, so that its sums are exact in any order and true ties stay ties.
_FIXED = 2.0**40

# Terms of the logarithm's series: for arguments between sqrt(1/2) and sqrt(2) the rest is below 2^-60.
_SERIES = 12

_LOG_2 = 0.6931471805599453


@dataclass(frozen=True, slots=True, eq=False)
class WordEvidence:
    """Evidence of the retained counts for n words.

    frequency: (n,) documents that hold a word, of `documents` in all.
    q: pair counts over these and perhaps other words, whose entries are zeros.
    places: (n,) where the words are in q.
    mass: (n,) their row sums in q.
    """

    frequency: Int64
    documents: int
    q: SymmetricCounts
    places: Positions
    mass: Int64

    @classmethod
    def over(cls, q: SymmetricCounts, places: Positions, frequency: Int64, documents: int) -> Self:
        """Take pair counts as they are; the parts are those of the class."""
        return cls(frequency, documents, q, places, q.row_sums()[places])

    @classmethod
    def of(cls, fit: RetainedCounts, frequency: Int64) -> Self:
        """Take the counts of a model's published words. frequency: (n',), of `fit.words`. Cost: one pass over Q."""
        return cls.over(fit.q, fit.live, frequency, fit.documents)

    @property
    def weight(self) -> Float:
        """The factor of each word's probability in the order of words, up to one that all share, (n,): see `ordered`.

        0 for a word that meets no other. Where each word is in all documents, as in a corpus of one, no word is rarer
        than another and the logarithm is left out.
        """
        rarity = _logarithm(max(self.documents, 1) / np.maximum(self.frequency, 1))
        rarity = rarity if rarity.any() else np.ones_like(rarity)
        return np.asarray(np.sqrt(self.frequency / np.maximum(self.mass, 1)) * rarity * (self.mass > 0))

    def fixed_npmi(self, words: Positions) -> Int64:
        """Return the shrunk NPMI of each pair of some words in fixed point, (k, k), 0 on the diagonal.

        N_ij = log(Q_ij / (p_i p_j)) / -log(Q_ij) for Q and p whose entries sum to 1, -1 for a pair that never meets;
        times d / (d + 20), d the lesser of both document frequencies.
        """
        together = np.stack([self._row(word, words) for word in words.tolist()]).astype(float)
        total, mass = max(float(sum(self.mass.tolist())), 1.0), self.mass[words].astype(float)
        meets = together > 0
        np.fill_diagonal(meets, val=False)
        joint = np.where(meets, together / total, 0.5)
        lift = np.where(meets, together * total / np.maximum(mass[:, None] * mass, 1.0), 0.5)
        found = np.where(meets, -_logarithm(lift) / _logarithm(joint), -1.0)
        rarer = np.minimum(self.frequency[words][:, None], self.frequency[words]).astype(float)
        fixed: Int64 = np.rint(found * (rarer / (rarer + _SHRINK)) * _FIXED).astype(np.int64)
        np.fill_diagonal(fixed, 0)
        return fixed

    def _row(self, word: int, others: Positions) -> Int64:
        """Return the counts of one word with some others."""
        columns, values = self.q.row(int(self.places[word]))
        if not len(columns):
            return np.zeros(len(others), np.int64)
        wanted = self.places[others]
        at = np.minimum(np.searchsorted(columns, wanted), len(columns) - 1)
        return np.asarray(np.where(columns[at] == wanted, values[at], 0))


def ordered(A: Float, evidence: WordEvidence) -> Positions:
    """Return the positions of each topic's words by token and document evidence, (r, n).

    Order: A_it sqrt(df_i / (m p_i)) log(m / df_i), A (n, r) and p_i the word's share of Q. A_it is the evidence of
    tokens; A_it df_i / (m p_i) is that of documents, which a word repeated in few of them does not have; the root is
    their geometric mean. The logarithm takes out words that topics share. Ties go to the first word.
    """
    return _descending(A * evidence.weight[:, None])


def coherent(words: Positions, evidence: WordEvidence, keep: int = COHERENT) -> Positions:
    """Return the `keep` of these words that go together best, in the order given.

    The word with the least sum of shrunk NPMI with the others is dropped, and again among those left; of words that
    tie the last one goes.
    """
    together = evidence.fixed_npmi(words)
    left = np.arange(len(words))
    while len(left) > keep:
        sums = together[np.ix_(left, left)].sum(axis=1)
        left = np.delete(left, np.flatnonzero(sums == sums.min())[-1])
    return words[left]


def top_words(A: Float, evidence: WordEvidence, top: int = COHERENT, keep: int = COHERENT) -> Positions:
    """Return the positions of each topic's words as they are shown, (r, top), or all n where `top` is more.

    First come those `keep` of the first 2 `keep` words that go together best (`coherent`), then all others, each in
    the order of `ordered`. So a shorter list is always the beginning of a longer one. A topic with evidence for fewer
    words has fewer to choose from, and a topic with at most `keep` has no choice. A: (n, r).
    """
    scores = A * evidence.weight[:, None]
    order = _descending(scores)
    pools = np.minimum(np.count_nonzero(scores, axis=0), _POOL * keep)
    for topic, size in zip(order, pools.tolist(), strict=True):
        if size > keep:
            pool = topic[:size].copy()
            chosen = coherent(pool, evidence, keep)
            topic[:size] = np.concatenate([chosen, pool[~np.isin(pool, chosen)]])
    return order[:, :top]


def named(order: Positions, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the words at some positions, by topic."""
    return tuple(map(tuple, np.array(words, object)[order].tolist()))


def _descending(scores: Float) -> Positions:
    """Return the rows of each column (n, r) by falling score, (r, n); ties go to the first row."""
    return np.argsort(-scores.T, axis=1, kind="stable")


def _logarithm(x: Float) -> Float:
    """Return the natural logarithm of positive numbers: the same bits everywhere, where a library's differ in the last.

    x = 2^e f with f from sqrt(1/2) to sqrt(2); log f = 2 artanh(s), s = (f - 1) / (f + 1), by its series. The logarithm
    of 1 is 0 exactly; a relative error is a few units in the last place.
    """
    fraction, exponent = np.frexp(x)
    low = fraction < np.sqrt(0.5)
    fraction, exponent = np.where(low, 2 * fraction, fraction), exponent - low
    s = (fraction - 1) / (fraction + 1)
    square, series = s * s, np.zeros_like(s)
    for k in range(_SERIES, 0, -1):
        series = (series + 1 / (2 * k + 1)) * square
    return np.asarray(exponent * _LOG_2 + 2 * (s + s * series))


def npmi(top: Positions, documents: WordSets) -> float:
    """Return the mean normalised pointwise mutual information of each topic's pairs of top words.

    top: (r, k) word positions; documents: the words that each document of a sample holds. -1 for a pair that never
    meets, +1 for one that is in every document.
    """
    wanted = np.unique(top)
    place = np.full(max(int(documents.words.max(initial=-1)), int(wanted.max(initial=-1))) + 1, -1, np.intp)
    place[wanted] = np.arange(len(wanted))
    columns = place[documents.words]
    total = len(documents)
    rows = np.repeat(np.arange(total), np.diff(documents.indptr))[columns >= 0]
    shape = (total, len(wanted))
    presence = sparse.csr_array((np.ones(len(rows), np.int64), (rows, columns[columns >= 0])), shape=shape)
    presence.data[:] = 1  # a word of several passages is one word of its document
    together = (presence.T @ presence).toarray()
    single = together.diagonal()
    scores = [
        _npmi(together[a, b], single[a], single[b], total)
        for topic in np.searchsorted(wanted, top)
        for a, b in combinations(topic, 2)
    ]
    return float(np.mean(scores)) if scores else 0.0


def _npmi(both: float, one: float, other: float, total: int) -> float:
    if both == 0:
        return -1.0
    if both == total:
        return 1.0
    joint = both / total
    return float(np.log(joint * total * total / (one * other)) / -np.log(joint))


def diversity(top: Positions) -> float:
    """Return the share of distinct words among all top words."""
    return len(np.unique(top)) / top.size if top.size else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """R (r, r), positive semidefinite, and the topics' shares (r,), non-negative, sum 1."""

    R: Float
    shares: Float


def topic_correlations(fit: TopicFit, A: Float) -> Correlations:
    """Return R = PSD(A^+ Q A^+^T) and shares z, its row sums, for a noised A (n', r) over `fit.words`.

    Cost: one pass over Q, nnz(Q) r. Source: the paper, section 3; Arora et al. 2013.
    """
    half = fit.restricted_product(A)
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    R = inverse @ (A.T @ half) @ inverse
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return Correlations((R + R.T) / 2, topic_shares(R))


def topic_shares(R: Float) -> Float:
    """Return the shares z of topics, (r,): row sums of R (r, r), cut at 0, sum 1; equal ones where all are 0."""
    shares = np.maximum(R.sum(axis=1), 0.0)
    total = float(shares.sum())
    return np.asarray(shares / total) if total > 0 else np.full(len(shares), 1 / len(shares))
