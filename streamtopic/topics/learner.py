"""Counts to topics, from a cold start: the whole path in one file.

    words      choose_words            which words, from document frequencies
    anchors    choose_sets             r words that stand for one topic each, and the words that stand beside them
    X          sums of Q's rows        one row a topic, over its anchor (paper) or its super-anchor (default);
               tandem_rows             for guided topics the harmonic mean of their seeds' rows
    C          least squares           every word as a mixture of those rows
    A          columns p_i C_ik / z_k, with a certificate of ||A - A*||_F

Everything down to X is decided by arithmetic that has the same bits on every path and machine. C and A are rounded, and
the certificate bounds their rounding (docs/proof.md). Source: Arora et al. 2013, Algorithms 1 to 3 (learner "paper").
docs/decisions has the differences of learner "default".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.counts import CountSource, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import (
    AnchorChoice,
    beside,
    choose_anchors,
    coordinates,
    guided_coordinates,
    super_anchors,
)
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.guided import GuidedRows, tandem_rows
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.paper_anchors import farthest_rows
from streamtopic.topics.products import grouped_rows
from streamtopic.topics.working_vocabulary import choose_words, column_squares

__all__ = [
    "Prepared",
    "candidate_positions",
    "choose_sets",
    "learn",
    "learn_prepared",
    "only_anchors",
    "prepare",
    "topic_rows",
    "working_counts",
]


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
    Raises CannotLearn, with a reason, where too few words or independent directions are left, CountsOverflow where a
    sum of counts leaves 64 bits, UnreliableArithmetic where this machine does not compute as others do.
    """
    return learn_prepared(prepare(source, options), options)


def prepare(source: CountSource, options: LearnerOptions) -> Prepared:
    """Return the part of `learn` that does not depend on the number of topics.

    Raises CannotLearn where too few words are left for the topics that `options` asks for.
    """
    q, mass, words, frequency, may_anchor = working_counts(source, options)
    candidates = candidate_positions(frequency, may_anchor, options)
    squares = column_squares(mass, options)
    return Prepared(q, mass, squares, words, candidates, source.documents)


def learn_prepared(prepared: Prepared, options: LearnerOptions) -> TopicFit:
    """Learn from prepared counts.

    options: the same that the counts were prepared for; only `n_topics` may differ.
    An update changes a fit's arrays in place, so do not update one of several fits of one Prepared.
    """
    q = prepared.q
    mass = prepared.mass
    guided = tandem_rows(q, mass, prepared.words, options)
    choice, group = choose_sets(q, mass, prepared.candidates, prepared.words, options, guided)
    anchor_counts = topic_rows(q, group, len(choice.rows), guided.rows)
    mixtures = Mixtures.cold(q, mass, prepared.squares, anchor_counts, None)
    return TopicFit(
        options=options,
        names=Words(prepared.words),
        documents=prepared.documents,
        q=q,
        mass=mass,
        squares=prepared.squares,
        candidates=prepared.candidates,
        choice=choice,
        group=group,
        mixtures=mixtures,
        guided=guided.topics,
        notes=guided.notes,
    )


def topic_rows(q: SymmetricCounts, group: Int64, found: int, guided: Int64) -> Int64:
    """Return the rows that stand for topics, N (found + g, n): sums over the sets of anchors, then guided rows."""
    return np.concatenate([grouped_rows(q, group, found), guided])


def choose_sets(
    q: SymmetricCounts,
    mass: Int64,
    candidates: Positions,
    words: Sequence[str],
    options: LearnerOptions,
    guided: GuidedRows | None = None,
) -> tuple[AnchorChoice, Int64]:
    """Choose the anchors, positions in Q, and the topic that each word stands for, (n,), -1 for most.

    q: Q, in which words without mass may be left of earlier counts.
    mass: (n,) row sums.
    candidates: (c,) ascending positions of words that may be anchors.
    words: (n,) the words of Q.
    options: the choices of the learner.
    guided: rows of guided topics; anchors are chosen outside their span.
    The choice is a function of the words that have mass and of their counts alone, to the bit.
    Raises CannotLearn where candidates or directions are too few.
    """
    r = options.n_topics - len(options.guided)
    if len(candidates) < r:
        raise CannotLearn(
            "candidates",
            f"{len(candidates)} words may be anchors, and {r} topics need {r} of them: "
            "add documents, ask fewer topics or lower anchor_min_df",
        )
    if options.learner == "paper":
        choice = farthest_rows(q, candidates, mass, r)
        return choice, only_anchors(choice, q.n)
    group = np.full(q.n, -1, np.int64)
    if not r:
        return AnchorChoice(np.zeros(0, np.intp), float("inf")), group
    candidate_words = [words[k] for k in candidates]
    if guided is None or not guided.topics:
        E = coordinates(q, mass, candidates, candidate_words, r)
        found = choose_anchors(E)
        group[candidates] = super_anchors(E, found.rows)
    else:
        shares = guided.rows / guided.rows.sum(axis=1)[:, None]
        topics = r + len(guided.topics)
        E, own = guided_coordinates(q, mass, candidates, candidate_words, topics, shares[:, candidates])
        found = choose_anchors(beside(E, own))
        group[candidates] = super_anchors(E, found.rows, own)
    return AnchorChoice(candidates[found.rows], found.margin), group


def only_anchors(choice: AnchorChoice, n: int) -> Int64:
    """Return the sets in which every anchor stands alone, (n,): the paper's learner has no super-anchors."""
    group = np.full(n, -1, np.int64)
    group[choice.rows] = np.arange(len(choice.rows))
    return group


def working_counts(
    source: CountSource, options: LearnerOptions
) -> tuple[SymmetricCounts, Int64, tuple[str, ...], Int64, Mask]:
    """Return Q over the working vocabulary, its row sums, its words, their document frequencies, and possible anchors.

    The last is (n,), whether each word may be an anchor. All are functions of the counts alone, so of the documents
    that are left. Raises CannotLearn where no word is left.
    """
    if source.documents <= 0:
        raise CannotLearn("documents", "no documents are left to learn from: add some")
    keep, may_anchor = choose_words(source, options)
    if not len(keep):
        raise CannotLearn("words", "no word occurs in enough documents: add documents or lower min_df")
    q = source.symmetric(keep)
    mass = q.row_sums()
    if not mass.all():
        # A word that never meets another kept word has no row. Leaving it out changes no other row.
        left = np.flatnonzero(mass)
        q.drop_empty(left)
        keep = keep[left]
        may_anchor = may_anchor[left]
        mass = mass[left]
        if not len(keep):
            raise CannotLearn("pairs", "no two words occur together: documents need at least two known words")
    words = tuple(source.words[k] for k in keep)
    return q, mass, words, source.frequency[keep], may_anchor


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
