"""The model as it is published: topics as people read them, how good they are, and their correlations.

    WordEvidence      from the retained counts: documents that hold a word, and how often pairs meet
    coefficients      each topic's part in the row of a word, which says how well the word represents the topic
    ordered           each topic's words by coefficients
    top_words         the same with the coherent ten first: the one order in which words are shown
    arranged          the same for any scores
    npmi, diversity   how good shown words are
    topic_correlations, topic_shares   R of the model, and the shares of topics
    correlations_and_words   R, shares and the shown words by one pass over Q
    TopicTable, TopicRow     topics as a table; heap: whether one of them holds nearly everything

Everything here is computed after noise, from the A that is shown and the retained counts. So it reveals nothing beyond
that A and the counts, which a retraining would have had as well. Words use integers and IEEE operations alone: the same
A and the same counts give the same words on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from streamtopic.counts import DocumentBatch, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions, entry_rows, places
from streamtopic.topics.fit import RetainedCounts, TopicFit
from streamtopic.topics.products import dense_rows, times_within
from streamtopic.topics.reproducible import cholesky, leading_pairs, product, solve_lower

__all__ = [
    "COHERENT",
    "Correlations",
    "TopicRow",
    "TopicTable",
    "WordEvidence",
    "arranged",
    "coefficients",
    "coherent",
    "correlations_and_words",
    "diversity",
    "heap",
    "named",
    "npmi",
    "ordered",
    "top_words",
    "topic_correlations",
    "topic_shares",
]


COHERENT = 10
"""Words of a topic that are chosen together and shown first. Quality is measured on them."""

# The chosen words come from a pool of this many times as many words.
_POOL = 2
# Only of words with more than this share of the first word's score: noise gives every word a little.
_FAINT = 1e-3

# Documents that count as much as the rarer word's own: NPMI of a word in few documents is mostly chance.
_SHRINK = 20

# Topics that are almost alike have almost the same row, and a row of Q has parts that no topic explains.
_ALIKE = 1e-9
_UNEXPLAINED = 1e-6

# NPMI is rounded to this fixed point, so that its sums are exact in any order and true ties stay ties.
_FIXED = 2.0**40

# Terms of the logarithm's series: for arguments between sqrt(1/2) and sqrt(2) the other terms are below 2^-60.
_SERIES = 12

_LOG_2 = 0.6931471805599453

# A topic with more than this share of the word occurrences is a heap, if there are so many topics.
_HEAP = 0.5
_MANY_TOPICS = 5


@dataclass(frozen=True, slots=True, eq=False)
class WordEvidence:
    """Evidence of the retained counts for n words.

    frequency: (n,) documents that hold a word.
    documents: all documents.
    q: pair counts over these words, and perhaps others whose entries are zeros.
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
        """Take pair counts as they are. The parameters are the fields of the class. Cost: one pass over Q."""
        return cls(frequency, documents, q, places, q.row_sums()[places])

    @classmethod
    def of(cls, fit: RetainedCounts, frequency: Int64) -> Self:
        """Take the counts of a model's published words.

        frequency: (n',) documents that hold each of `fit.words`.
        """
        return cls(frequency, fit.documents, fit.q, fit.live, fit.mass[fit.live])

    @property
    def weight(self) -> Float:
        """The certainty of a word, sqrt(df / p) log(m / df), up to one factor that all words share, (n,).

        p is the word's share of Q. A word that is repeated in few documents has more of it than its documents say. The
        logarithm takes out words that topics share. It is 0 for a word that meets no other word.
        """
        holders = np.maximum(self.frequency, 1)
        rarity = _logarithm(max(self.documents, 1) / holders)
        # Each word is in all documents, as in a corpus of one: then no word is rarer than another.
        if not rarity.any():
            rarity = np.ones_like(rarity)
        spread = np.sqrt(self.frequency / np.maximum(self.mass, 1))
        return np.asarray(spread * rarity * (self.mass > 0))

    @property
    def idf(self) -> Float:
        """The inverse document frequency of each word, log((1 + m) / (1 + df)) + 1, (n,)."""
        ratios = (1.0 + self.documents) / (1.0 + self.frequency.astype(float))
        return np.asarray(_logarithm(ratios) + 1.0)

    def fixed_npmi(self, words: Positions) -> Int64:
        """Return the shrunk NPMI of each pair of some words in fixed point, (k, k), 0 on the diagonal.

        N_ij = log(Q_ij / (p_i p_j)) / -log(Q_ij) for Q and p whose entries sum to 1, and -1 for a pair that never
        meets. It is multiplied by d / (d + 20), d being the lesser of both document frequencies.
        words: (k,) positions.
        """
        here = self.places[words]
        together = dense_rows(self.q, here)[:, here].astype(float)
        # Python's integers, since the sum of masses may leave 64 bits.
        total = max(float(sum(self.mass.tolist())), 1.0)
        mass = self.mass[words].astype(float)
        frequency = self.frequency[words]
        meets = together > 0
        np.fill_diagonal(meets, val=False)
        # If a pair never meets, any number whose logarithm is not 0 takes its place.
        joint = np.where(meets, together / total, 0.5)
        by_chance = np.maximum(mass[:, None] * mass, 1.0)
        lift = np.where(meets, together * total / by_chance, 0.5)
        information = -_logarithm(lift) / _logarithm(joint)
        found = np.where(meets, information, -1.0)
        rarer_of_two = np.minimum(frequency[:, None], frequency)
        rarer = rarer_of_two.astype(float)
        shrunk = found * (rarer / (rarer + _SHRINK))
        scaled = np.rint(shrunk * _FIXED)
        fixed: Int64 = scaled.astype(np.int64)
        np.fill_diagonal(fixed, 0)
        return fixed


def coefficients(A: Float, evidence: WordEvidence) -> Float:
    """Return how well each word represents each topic, (n, r), not negative.

    Probability favours words that are written often. A coefficient says how much of a word's row a topic explains. Rows
    and columns are weighted by inverse document frequency: K = diag(idf) Q diag(idf), and H0 is diag(idf) A with
    columns of length 1. One step of alternating least squares from H0 gives V = H0 (H0^T H0)^-1, M = K V and
    H = M (V^T M)^-1. The result is H / idf times `WordEvidence.weight`, and 0 if H is negative. It is 0 too for a word
    of which the topic has no probability (docs/decisions/0009).

    A: (n, r), columns on the simplex.
    Cost: one pass over Q, nnz(Q) r, and about 5 n r^2. Operations have a fixed order: equal A and counts, equal bits.
    """
    met = times_within(evidence.q, _raised_twice(A, evidence), evidence.places)
    return _solved(A, evidence, met)


def _raised_twice(A: Float, evidence: WordEvidence) -> Float:
    """Return diag(idf)^2 A, (n, r), whose product with Q `_solved` needs."""
    idf = evidence.idf[:, None]
    return A * idf * idf


def _solved(A: Float, evidence: WordEvidence, product_with_q: Float) -> Float:
    """Return the coefficients. product_with_q: Q diag(idf)^2 A, (n, r)."""
    idf = evidence.idf[:, None]
    raised = np.ascontiguousarray(A * idf)
    inner = product(np.ascontiguousarray(raised.T), raised)
    lengths = np.sqrt(np.diagonal(inner))
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    r = A.shape[1]
    alike = inner / lengths[:, None] / lengths + _ALIKE * np.eye(r)
    lower, _ = cholesky(alike)
    half = solve_lower(lower, np.eye(r))
    unmixed = product(np.ascontiguousarray(half.T), half) / lengths[:, None]
    met = product_with_q * idf
    M = product(met, unmixed)
    N = product(np.ascontiguousarray(product(raised, unmixed).T), M)
    values, vectors = leading_pairs((N + N.T) / 2, r)
    # Nothing meets anything: all coefficients are 0.
    if not values[0] > 0.0:
        return np.zeros_like(A)
    solved = product(M, vectors) / (values + _UNEXPLAINED * values[0])
    found = product(solved, np.ascontiguousarray(vectors.T))
    weighted = np.maximum(found, 0.0) / idf * evidence.weight[:, None]
    return np.where(A > 0.0, weighted, 0.0)


def ordered(A: Float, evidence: WordEvidence) -> Positions:
    """Return the positions of each topic's words by coefficients, (r, n); ties go to the first word.

    A: (n, r) columns on the simplex.
    """
    return _descending(coefficients(A, evidence))


def coherent(together: Int64, keep: int = COHERENT) -> Positions:
    """Return which `keep` of some words go together best, ascending places among them.

    together: their shrunk NPMI, as `WordEvidence.fixed_npmi` returns it, (k, k).
    Again and again the word is dropped whose shrunk NPMI with the others has the least sum. Of words that tie the last
    one is dropped.
    """
    sums = together.sum(axis=1)
    left = np.arange(len(together))
    while len(left) > keep:
        # The last of those with the least sum.
        place = len(left) - 1 - int(np.argmin(sums[left][::-1]))
        sums -= together[left[place]]
        left = np.delete(left, place)
    return left


def top_words(A: Float, evidence: WordEvidence, top: int = COHERENT, keep: int = COHERENT) -> Positions:
    """Return the positions of each topic's words as they are shown, (r, top), or (r, n) if `top` is more than n.

    They are `arranged` by coefficients. A: (n, r) columns on the simplex.
    """
    return arranged(coefficients(A, evidence), evidence, top, keep)


def arranged(scores: Float, evidence: WordEvidence, top: int = COHERENT, keep: int = COHERENT) -> Positions:
    """Return the positions of each topic's words, (r, top), or (r, n) if `top` is more than n.

    First come those `keep` of the first 2 `keep` words that go together best (`coherent`), then all others, both in
    the order of their scores. So a shorter list is always the beginning of a longer one. A word with less than a
    thousandth of the score of the topic's first word is not chosen from: it may be there by noise alone. With at
    most `keep` words left there is no choice.

    scores: (n, r) of each word in each topic, not negative.
    """
    order = _descending(scores)
    heard = scores > _FAINT * scores.max(axis=0, initial=0)
    pools = np.minimum(np.count_nonzero(heard, axis=0), _POOL * keep)
    chosen = [topic[:size] for topic, size in zip(order, pools.tolist(), strict=True) if size > keep]
    if chosen:
        # For all topics at once, since each look at pairs may read all documents.
        words, inverse = np.unique(np.concatenate(chosen), return_inverse=True)
        together = evidence.fixed_npmi(words)
        ends = np.cumsum([len(pool) for pool in chosen])
        for pool, here in zip(chosen, np.split(inverse, ends[:-1]), strict=True):
            first = coherent(together[np.ix_(here, here)], keep)
            pool[:] = np.concatenate([pool[first], np.delete(pool, first)])
    return order[:, :top]


def named(order: Positions, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the words at some positions, by topic. order: (r, k) positions in `words`."""
    by_topic = np.array(words, object)[order].tolist()
    return tuple(tuple(topic) for topic in by_topic)


def _descending(scores: Float) -> Positions:
    """Return the rows of each column (n, r) by falling score, (r, n); ties go to the first row."""
    return np.argsort(-scores.T, axis=1, kind="stable")


def _logarithm(x: Float) -> Float:
    """Return the natural logarithm of positive numbers, with the same bits on every machine.

    x = 2^e f with f from sqrt(1/2) to sqrt(2); log f = 2 artanh(s), s = (f - 1) / (f + 1), by its series. The logarithm
    of 1 is 0 exactly. The relative error is a few units in the last place.
    """
    # numpy's logarithm has other last bits on other processors, and ties between words would fall with them.
    fraction, exponent = np.frexp(x)
    low = fraction < np.sqrt(0.5)
    fraction = np.where(low, 2 * fraction, fraction)
    exponent = exponent - low
    s = (fraction - 1) / (fraction + 1)
    square = s * s
    series = np.zeros_like(s)
    for k in range(_SERIES, 0, -1):
        series = (series + 1 / (2 * k + 1)) * square
    of_fraction = 2 * (s + s * series)
    return np.asarray(exponent * _LOG_2 + of_fraction)


def npmi(top: Positions, documents: DocumentBatch) -> float:
    """Return the mean normalised pointwise mutual information over all pairs of top words of a topic, -1 to 1.

    A pair that never meets has -1, a pair that is in every document +1. Without a pair the mean is 0.

    top: (r, k) word positions.
    documents: a sample.
    """
    wanted = np.unique(top)
    last = int(documents.words.max(initial=-1))
    most = max(last, int(wanted.max(initial=-1)))
    columns = places(most + 1, wanted)[documents.words]
    held = columns >= 0
    total = documents.documents
    rows = documents.owners[entry_rows(documents.indptr)][held]
    coordinates = (rows, columns[held])
    ones = np.ones(len(rows), np.int64)
    presence = sparse.csr_array((ones, coordinates), shape=(total, len(wanted)))
    # A word of several passages is one word of its document.
    presence.data[:] = 1
    together = (presence.T @ presence).toarray()
    single = together.diagonal()
    scores = []
    for topic in np.searchsorted(wanted, top):
        for a, b in combinations(topic, 2):
            score = _npmi(together[a, b], single[a], single[b], total)
            scores.append(score)
    return float(np.mean(scores)) if scores else 0.0


def _npmi(both: float, one: float, other: float, total: int) -> float:
    """Return the NPMI of a pair from the documents that hold both words, one, the other, and all documents."""
    if both == 0:
        return -1.0
    # The formula would divide 0 by 0.
    if both == total:
        return 1.0
    joint = both / total
    lift = joint * total * total / (one * other)
    return float(np.log(lift) / -np.log(joint))


def diversity(top: Positions) -> float:
    """Return the share of distinct words among all top words (r, k), 0 without words."""
    return len(np.unique(top)) / top.size if top.size else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """How topics go together.

    R: (r, r) positive semidefinite.
    shares: (r,) of the topics, not negative, sum 1.
    """

    R: Float
    shares: Float


def topic_correlations(fit: TopicFit, A: Float) -> Correlations:
    """Return R = PSD(A^+ Q A^+^T) and shares z, its row sums.

    fit: the model, for its Q.
    A: (n', r) over `fit.words`, noised.
    Cost: one pass over Q, nnz(Q) r. Source: the paper, section 3; Arora et al. 2013.
    """
    return _correlations(A, fit.restricted_product(A))


def correlations_and_words(
    fit: TopicFit, A: Float, evidence: WordEvidence, top: int = COHERENT
) -> tuple[Correlations, Positions]:
    """Return `topic_correlations` and `top_words` by one pass over Q, with the same bits.

    evidence: of the words of `fit`.
    """
    r = A.shape[1]
    both = times_within(fit.q, np.hstack([A, _raised_twice(A, evidence)]), fit.live)
    scores = _solved(A, evidence, both[:, r:])
    return _correlations(A, both[:, :r] / fit.total), arranged(scores, evidence, top)


def _correlations(A: Float, half: Float) -> Correlations:
    """Return R and shares. half: Q A for Q whose entries sum to 1, (n', r)."""
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    R = inverse @ (A.T @ half) @ inverse
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    # Negative eigenvalues come from noise: the nearest positive semidefinite matrix leaves them out.
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return Correlations((R + R.T) / 2, topic_shares(R))


def topic_shares(R: Float) -> Float:
    """Return the shares z of topics, (r,): row sums of R (r, r), cut at 0 and scaled to sum 1. If all are 0: equal."""
    shares = np.maximum(R.sum(axis=1), 0.0)
    total = float(shares.sum())
    if total > 0:
        return np.asarray(shares / total)
    return np.full(len(shares), 1 / len(shares))


class TopicRow(NamedTuple):
    """One topic.

    id: its row of `components_`, and its column of `transform`.
    name: its anchor word, or the name of a guided topic.
    share: its share of all word occurrences, from 0 to 1.
    documents: how many documents of the model have it as their largest topic.
    words: its words in the order in which they are shown.
    """

    id: int
    name: str
    share: float
    documents: int
    words: tuple[str, ...]


class TopicTable(tuple[TopicRow, ...]):
    """The topics of a model, the largest share first. It prints as a table, and `pandas.DataFrame(table)` takes it."""

    __slots__ = ()

    def __str__(self) -> str:
        cells = [TopicRow._fields]
        cells += [(str(row.id), row.name, f"{row.share:.1%}", str(row.documents), " ".join(row.words)) for row in self]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for number, name, share, documents, words in cells:
            left = f"{number:>{widths[0]}}  {name:<{widths[1]}}  {share:>{widths[2]}}"
            lines.append(f"{left}  {documents:>{widths[3]}}  {words}")
        return "\n".join(lines)

    __repr__ = __str__


def heap(shares: Float, names: Sequence[str]) -> str:
    """Return in words that one topic holds most of what is written, with the remedy; "" if none does.

    shares: (r,) of the topics, sum 1.
    names: (r,)
    """
    largest = int(shares.argmax())
    share = float(shares[largest])
    if share <= _HEAP or len(shares) < _MANY_TOPICS:
        return ""
    return (
        f"topic {names[largest]} holds {share:.0%} of all words, so the others say little: ask more topics, lower "
        "max_df so that words of many documents are left out, or give more or longer documents"
    )
