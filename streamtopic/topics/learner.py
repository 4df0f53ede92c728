"""Counts to topics, from a cold start: the whole path in one file.

    words      choose_words            which words, from document frequencies; column_squares: weights of their columns
    anchors    choose_sets             r words that represent one topic each, and the words that are next to them
    X          sums of Q's rows        one row a topic, over its anchor (paper) or its super-anchor (default);
               tandem_rows             for guided topics the harmonic mean of their seeds' rows; some have ended
    C          least squares           every word as a mixture of those rows
    A          columns p_i C_ik / z_k, with a certificate of ||A - A*||_F

The working vocabulary needs no pair counts, so an update knows its words before it reads a pair (docs/decisions/0008).
Words and weights are pure functions of a few integers for each word, rounded to powers of sqrt 2 so that they rarely
move:

    frequency   documents that hold the word: not too few, not too many
    tokens      its occurrences, and
    heavy       documents of which it is a tenth of the tokens or more: both tell words that repeat themselves
    mass        its row sum: the column weight D^2 is its power -1/2

Everything down to X is decided by arithmetic that has the same bits on every path and machine. C and A are rounded, and
the certificate bounds their rounding (docs/proof.md). Source: Arora et al. 2013, Algorithms 1 to 3 (learner "paper").
docs/decisions has the differences of learner "default".
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.counts import CountSource, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import (
    choose_anchors,
    coordinates,
    independent_rows,
    super_anchors,
    without_directions,
)
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.guided import GuidedRows, ended_topics, tandem_rows
from streamtopic.topics.learner_options import LearnerOptions, too_few_words
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.paper_anchors import farthest_rows
from streamtopic.topics.products import grouped_rows

__all__ = [
    "Prepared",
    "Sets",
    "Thresholds",
    "candidate_positions",
    "choose_sets",
    "choose_words",
    "column_squares",
    "learn",
    "learn_prepared",
    "prepare",
    "thresholds",
    "why_left_out",
]


# In a small corpus a share is less than the documents of one subject: this many may always hold a word.
_LEAST_MAX_DF = 20
_LEAST_ANCHOR_DF = 2
# The row of a word in fewer documents says too little to represent a topic (docs/decisions/0008).
_ENOUGH_ANCHOR_DF = 20
# A word in this share of the documents is frequent enough, however few documents that is.
_MOST_MIN_DF_SHARE = 0.02
# With this many words or more, words that repeat themselves are left out (docs/decisions/0008).
_FEWEST_WORDS = 1_000
# `_repeated` says how these three count.
_HEAVY = 10
_SPREAD = 5
_REPEATS = 5

# 2^0, 2^(1/4), 2^(1/2), 2^(3/4): these doubles are the weights, by definition.
_ROOTS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])
# So near to the middle between two steps, a library's logarithm could decide either way.
_CLOSE = 2.0**-30


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The part of learning that does not depend on the number of topics. Fits that are made of it share its arrays.

    q: counts over the working vocabulary.
    mass: (n,) row sums.
    squares: (n,) D^2.
    words: (n,) the working vocabulary.
    candidates: positions of words that may be anchors.
    documents: how many documents were counted.
    """

    q: SymmetricCounts
    mass: Int64
    squares: Float
    words: tuple[str, ...]
    candidates: Positions
    documents: int


def learn(source: CountSource, options: LearnerOptions) -> TopicFit:
    """Learn a topic model from counts.

    source: counts made with `options.weighting`.
    options: the choices of the learner.
    Returns a fit over the working vocabulary, before noise.
    Raises CannotLearn, with a reason, if too few words or independent directions are left, CountsOverflow if a
    sum of counts leaves 64 bits, UnreliableArithmetic if this machine does not compute as others do.
    """
    return learn_prepared(prepare(source, options), options)


def prepare(source: CountSource, options: LearnerOptions) -> Prepared:
    """Return the part of `learn` that does not depend on the number of topics.

    All of it is a function of the counts alone, so of the documents that are left.
    Raises CannotLearn if no word is left.
    """
    if source.documents <= 0:
        raise CannotLearn("documents", "no documents are left to learn from: add some")
    keep, may_anchor = choose_words(source, options)
    if not len(keep):
        raise CannotLearn("words", _no_words(source, options))
    q = source.symmetric(keep)
    mass = q.row_sums()
    if not mass.all():
        # A word that never meets another kept word has no row. Leaving it out changes no other row.
        left = np.flatnonzero(mass)
        keep = keep[left]
        may_anchor = may_anchor[left]
        mass = mass[left]
        if not len(keep):
            raise CannotLearn("pairs", "no two words occur together: documents need at least two known words")
        q = q.only(left)
    words = tuple(source.words[k] for k in keep)
    candidates = candidate_positions(source.frequency[keep], may_anchor, options)
    return Prepared(q, mass, column_squares(mass, options), words, candidates, source.documents)


def learn_prepared(prepared: Prepared, options: LearnerOptions) -> TopicFit:
    """Learn from prepared counts.

    options: the same that the counts were prepared for; only `n_topics` may differ.
    """
    q = prepared.q
    mass = prepared.mass
    sets = choose_sets(q, mass, prepared.squares, prepared.candidates, prepared.words, options)
    mixtures = Mixtures.cold(q, mass, prepared.squares, sets.rows(q), None)
    return TopicFit(
        options=options,
        words=Words(prepared.words),
        documents=prepared.documents,
        q=q,
        mass=mass,
        squares=prepared.squares,
        candidates=prepared.candidates,
        choice=sets.choice,
        group=sets.group,
        mixtures=mixtures,
        guided=sets.guided.topics,
        notes=sets.guided.remarks,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """The words and rows that represent topics.

    choice: the anchors, positions in Q.
    group: (n,) the topic that each word represents, -1 for most.
    guided: the guided topics that go on.
    """

    choice: Positions
    group: Int64
    guided: GuidedRows

    @classmethod
    def of_anchors(cls, choice: Positions, n: int) -> "Sets":
        """Return the sets of the paper's learner: every anchor alone, and no guided topic."""
        group = np.full(n, -1, np.int64)
        group[choice] = np.arange(len(choice))
        return cls(choice, group, _no_guides(n))

    def rows(self, q: SymmetricCounts) -> Int64:
        """Return the rows that represent topics, N (found + g, n): sums over the sets of anchors, then guided rows."""
        found = grouped_rows(q, self.group, len(self.choice))
        return np.concatenate([found, self.guided.rows])


def _no_guides(n: int) -> GuidedRows:
    return GuidedRows((), np.zeros((0, n), np.int64))


def choose_sets(
    q: SymmetricCounts,
    mass: Int64,
    squares: Float,
    candidates: Positions,
    words: Sequence[str],
    options: LearnerOptions,
) -> Sets:
    """Choose what represents each topic.

    q: Q.
    mass: (n,) row sums.
    squares: (n,) D^2.
    candidates: (c,) ascending positions of words that may be anchors.
    words: (n,) the words of Q.
    options: the choices of the learner.
    The choice is a function of the words and of their counts alone, to the bit.
    Raises CannotLearn if candidates or directions are too few, or all topics are guided and have ended.
    """
    r = options.n_topics - len(options.guided)
    if len(candidates) < r:
        raise too_few_words(len(candidates), r)
    if options.learner == "paper":
        choice = farthest_rows(q, candidates, mass, r)
        return Sets.of_anchors(choice, q.n)
    candidate_words = [words[k] for k in candidates]
    guided = tandem_rows(q, mass, words, options) if options.guided else _no_guides(q.n)
    # Anchors are chosen in addition to guided topics. If one of these ends, they are chosen once more without it.
    while r or guided.topics:
        choice, group, independent = _beside_guides(q, mass, candidates, candidate_words, r, guided)
        if not independent.all():
            guided = guided.without(~independent, "its words are those of earlier guided topics")
            continue
        sets = Sets(choice, group, guided)
        if not guided.topics:
            return sets
        ended = ended_topics(q, mass, squares, words, sets.rows(q), guided)
        if not ended.any():
            return sets
        guided = guided.without(ended, "no word represents it next to the other topics")
    reasons = "; ".join(guided.remarks.values())
    raise CannotLearn(
        "guided", f"no topic is left ({reasons}): ask for more topics than guided ones, or give other seeds"
    )


def _beside_guides(
    q: SymmetricCounts, mass: Int64, candidates: Positions, words: Sequence[str], found: int, guided: GuidedRows
) -> tuple[Positions, Int64, Mask]:
    """Return `found` anchors besides guided topics, the topic of each word, and which guided rows are independent.

    words: (c,) the words of the candidates.
    If some rows are not independent, the anchors and topics are empty.
    """
    none = np.zeros(0, np.intp)
    group = np.full(q.n, -1, np.int64)
    if not found:
        return none, group, np.ones(len(guided.topics), np.bool_)
    topics = found + len(guided.topics)
    shares = guided.rows / guided.rows.sum(axis=1)[:, None]
    E, own = coordinates(q, mass, candidates, words, topics, shares[:, candidates])
    independent = independent_rows(own)
    if not independent.all():
        return none, group, independent
    chosen = choose_anchors(without_directions(E, own))
    group[candidates] = super_anchors(E, chosen, own)
    return candidates[chosen], group, independent


def candidate_positions(frequency: Int64, may_anchor: Mask, options: LearnerOptions) -> Positions:
    """Return ascending positions of the words that may be anchors.

    frequency: (n,) documents that hold each word.
    may_anchor: (n,) whether a word is frequent enough.
    """
    candidates = np.flatnonzero(may_anchor)
    # The default learner's search costs the square of the candidates, so it takes the most frequent words only.
    if options.learner == "default" and len(candidates) > options.max_candidates:
        # Stable, so that of equally frequent words the first ones are taken on every machine.
        order = np.argsort(-frequency[candidates], kind="stable")[: options.max_candidates]
        candidates = np.sort(candidates[order])
    return candidates


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds of document frequencies, themselves included.

    least, most: of a kept word.
    anchor: the least one of an anchor word.
    """

    least: float
    most: float
    anchor: float


def thresholds(documents: int, options: LearnerOptions) -> Thresholds:
    """Turn the shares of the options into numbers of documents, out of `documents`."""
    # Rounded to powers of sqrt 2: a threshold that followed m exactly would change the vocabulary at almost every
    # deletion.
    never_more = max(1.0, _coarse(_MOST_MIN_DF_SHARE * documents))
    by_count = min(options.min_df, never_more)
    by_share = _coarse(options.min_share * documents)
    most = max(_LEAST_MAX_DF, _coarse(options.max_df * documents))
    # A share of 1 means every word: rounding must not make it less.
    if options.max_df == 1:
        most = documents
    anchor = max(_LEAST_ANCHOR_DF, _coarse(options.anchor_min_df * documents))
    # The published learner has anchors as rare as its theory allows. A share of 0 means every word.
    if options.learner == "default" and options.anchor_min_df > 0:
        anchor = max(anchor, min(_ENOUGH_ANCHOR_DF, never_more))
    return Thresholds(max(by_count, by_share), most, anchor)


def choose_words(source: CountSource, options: LearnerOptions) -> tuple[Positions, Mask]:
    """Return the ascending positions of the kept words, (k,), and whether each of them may be an anchor, (k,).

    source: the counts; its pairs are not read.
    The options' `exclude_words` are left out. If more than `max_words` words pass, the least frequency rises by factors
    of sqrt 2 until that many or fewer do. Then words that repeat themselves are left out.
    """
    limits = thresholds(source.documents, options)
    least = limits.least
    below = source.frequency <= limits.most
    for word in options.exclude_words:
        at = _place(source, word)
        if at is not None:
            below[at] = False
    keep = np.flatnonzero((source.frequency >= max(least, 1)) & below)
    while len(keep) > options.max_words:
        least *= math.sqrt(2)
        keep = np.flatnonzero((source.frequency >= least) & below)
    if len(keep) >= _FEWEST_WORDS:
        keep = keep[~_repeated(source, keep)]
    return keep, source.frequency[keep] >= limits.anchor


def why_left_out(source: CountSource, word: str, options: LearnerOptions) -> str:
    """Return in words why a word is not kept, with its documents; "" if nothing is against it alone."""
    at = _place(source, word)
    held = 0 if at is None else int(source.frequency[at])
    if not held:
        return "is in no document"
    if word in options.exclude_words:
        return "is one of exclude_words"
    limits = thresholds(source.documents, options)
    share = f"is in {held} documents, {held / source.documents:.1%} of them"
    if held > limits.most:
        return f"{share}, more than max_df ({options.max_df:.1%}) allows"
    if held < limits.least:
        return f"{share}, fewer than min_df ({options.min_df}) and min_share ({options.min_share:.2%}) ask for"
    return ""


def _place(source: CountSource, word: str) -> int | None:
    """Return the position of a word in the counts, None if it is not there."""
    at = bisect_left(source.words, word)
    return at if at < len(source.words) and source.words[at] == word else None


def _no_words(source: CountSource, options: LearnerOptions) -> str:
    """Return in words why `choose_words` keeps no word, with the remedy."""
    limits = thresholds(source.documents, options)
    enough = source.frequency >= max(limits.least, 1)
    if not enough.any():
        return "no word occurs in enough documents: add documents or lower min_df"
    if (source.frequency[enough] > limits.most).all():
        return "each word occurs in too few documents or in too many: add documents, lower min_df or raise max_df"
    return "each word occurs in too few documents, in too many, or mostly repeats itself: add other documents"


def _repeated(source: CountSource, words: Positions) -> Mask:
    """Return whether words mostly meet themselves, (k,): encoded blobs, rulers, tables of one symbol.

    Such a word occurs in its documents five times or more on average. It is a tenth of the tokens of a fifth of them,
    and of ten of them at least.
    """
    # So nobody leaves out a word of others with one document: if it is heavy in h of the k documents that hold it, that
    # takes max(10 - h, (k - 5 h) / 4) documents of one's own. Only at the edge one is enough.
    frequency = source.frequency[words]
    heavy = source.heavy[words]
    often_heavy = (heavy >= _HEAVY) & (_SPREAD * heavy >= frequency)
    repeated = source.tokens[words] >= _REPEATS * frequency
    return np.asarray(often_heavy & repeated)


def _coarse(value: float) -> float:
    """Round a number to a power of sqrt 2."""
    if value <= 0:
        return 0.0
    steps = round(2 * math.log2(value))
    return float(2.0 ** (steps / 2))


def column_squares(mass: Int64, options: LearnerOptions) -> Float:
    """Return D^2, (n,): 1 for the paper's learner, else p^-1/2 with p rounded to powers of sqrt 2.

    mass: (n,) row sums, above 0.
    """
    if options.learner == "paper":
        return np.ones(len(mass))
    # Python's integers, since the sum of masses may leave 64 bits.
    total = sum(mass.tolist())
    rough = 2 * np.log2(mass / float(total))
    steps = np.round(rough).astype(np.int64)
    fraction = rough - np.floor(rough)
    from_middle = np.abs(fraction - 0.5)
    # Close cases are decided in integers, so that the last bits of a library's logarithm decide nothing.
    for i in np.flatnonzero(from_middle < _CLOSE):
        steps[i] = _nearest_step(int(mass[i]), total)
    roots = _ROOTS[-steps % 4]
    return np.asarray(np.ldexp(roots, -steps // 4))


def _nearest_step(mass: int, total: int) -> int:
    """Return k with 2^((k - 1/2) / 2) < mass / total <= 2^((k + 1/2) / 2), in integers."""
    # The fourth power of the ratio lies between 2^(2 k - 1) and 2^(2 k + 1).
    power = mass**4
    whole = total**4
    k = (power.bit_length() - whole.bit_length()) // 2 - 2
    while _above(power, whole, 2 * k + 1):
        k += 1
    return k


def _above(power: int, whole: int, exponent: int) -> bool:
    """Return whether power / whole > 2^exponent."""
    if exponent >= 0:
        return power > whole << exponent
    return power << -exponent > whole
