"""Counts to topics, from a cold start: the whole path on one screen.

    words      choose_words            which words, from document frequencies
    anchors    choose_sets             r words that stand for one topic each, and the words that stand beside them
    X          sums of Q's rows        one row a topic, over its anchor (paper) or its super-anchor (default)
    C          least squares           every word as a mixture of those rows
    A          columns p_i C_ik / z_k, with a certificate of ||A - A*||_F

Everything down to X is decided by arithmetic that has the same bits on every path and machine; C and A are rounded, and
the certificate bounds that (docs/proof.md). Source: Arora et al. 2013, Algorithms 1 to 3 (learner "paper"); the
differences of learner "default" are in docs/decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import AnchorChoice, choose_anchors, coordinates, super_anchors
from streamtopic.topics.fit import TopicFit, Words
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
    "working_counts",
]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The part of learning that does not depend on the number of topics: fits made of it share its arrays.

    q: counts over the working vocabulary.
    mass: (n,) row sums.
    squares: (n,) D^2.
    words: (n,) the working vocabulary.
    candidates: positions of words that may be anchors.
    documents: how many were counted.
    """

    q: SymmetricCounts
    mass: Int64
    squares: Float
    words: tuple[str, ...]
    candidates: npt.NDArray[np.intp]
    documents: int


def learn(source: CountSource, options: LearnerOptions) -> TopicFit:
    """Learn a topic model from counts.

    source: counts made with `options.weighting`. Returns a fit over the working vocabulary, before noise.
    Raises CannotLearn, with a reason, where too few words or independent directions are left.
    """
    return learn_prepared(prepare(source, options), options)


def prepare(source: CountSource, options: LearnerOptions) -> Prepared:
    """Return the part of `learn` that does not depend on the number of topics.

    Raises CannotLearn where too few words are left for the topics that `options` asks for.
    """
    q, mass, words, frequency, may_anchor = working_counts(source, options)
    candidates = candidate_positions(frequency, may_anchor, options)
    return Prepared(q, mass, column_squares(mass, options), words, candidates, source.documents)


def learn_prepared(prepared: Prepared, options: LearnerOptions) -> TopicFit:
    """Learn from prepared counts. options: those that they were prepared for, but for `n_topics`.

    An update changes a fit's arrays in place, so do not update one of several fits of one Prepared.
    """
    q, mass = prepared.q, prepared.mass
    choice, group = choose_sets(q, mass, prepared.candidates, prepared.words, options)
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
        mixtures=Mixtures.cold(q, mass, prepared.squares, grouped_rows(q, group, options.n_topics), None),
    )


def choose_sets(
    q: SymmetricCounts,
    mass: Int64,
    candidates: npt.NDArray[np.intp],
    words: Sequence[str],
    options: LearnerOptions,
) -> tuple[AnchorChoice, Int64]:
    """Choose the anchors, positions in Q, and the topic that each word stands for, (n,), -1 for most.

    q: Q, in which words without mass may be left of earlier counts; mass: (n,) row sums; words: (n,) its words. A
    function of the words that have mass and their counts alone, to the bit. Raises CannotLearn where candidates or
    directions are too few.
    """
    r = options.n_topics
    if len(candidates) < r:
        raise CannotLearn(
            "candidates",
            f"{len(candidates)} words may be anchors, {r} topics need as many: "
            "add documents, ask fewer topics or lower anchor_min_df",
        )
    if options.learner == "paper":
        choice = farthest_rows(q, candidates, mass, r)
        return choice, only_anchors(choice, q.n)
    E = coordinates(q, mass, candidates, [words[k] for k in candidates], r)
    found = choose_anchors(E)
    group = np.full(q.n, -1, np.int64)
    group[candidates] = super_anchors(E, found.rows)
    return AnchorChoice(candidates[found.rows], found.margin), group


def only_anchors(choice: AnchorChoice, n: int) -> Int64:
    """Return the sets in which every anchor stands alone, (n,)."""
    group = np.full(n, -1, np.int64)
    group[choice.rows] = np.arange(len(choice.rows))
    return group


def working_counts(
    source: CountSource, options: LearnerOptions
) -> tuple[SymmetricCounts, Int64, tuple[str, ...], Int64, npt.NDArray[np.bool_]]:
    """Return Q over the working vocabulary: counts, row sums (n,), words, document frequencies, which may be anchors.

    A function of the counts alone, so of the documents that are left. Raises CannotLearn where no word is.
    """
    if source.documents <= 0:
        raise CannotLearn("documents", "there is no document to learn from: add some")
    keep, may_anchor = choose_words(source, options)
    if not len(keep):
        raise CannotLearn("words", "no word occurs in enough documents: add documents or lower min_df")
    q = source.symmetric(keep)
    mass = q.row_sums()
    if not mass.all():
        # A word that never meets another kept word has no row; leaving it out changes no other row.
        left = np.flatnonzero(mass)
        q.drop_empty(left)
        keep, may_anchor, mass = keep[left], may_anchor[left], mass[left]
        if not len(keep):
            raise CannotLearn("pairs", "no two words occur together: documents need at least two known words")
    return q, mass, tuple(source.words[k] for k in keep), source.frequency[keep], may_anchor


def candidate_positions(
    frequency: Int64, may_anchor: npt.NDArray[np.bool_], options: LearnerOptions
) -> npt.NDArray[np.intp]:
    """Return ascending positions of the words that may be anchors; the default learner takes the most frequent."""
    candidates = np.flatnonzero(may_anchor)
    if options.learner == "default" and len(candidates) > options.max_candidates:
        # Stable, so that of equally frequent words the first ones are taken on every machine.
        order = np.argsort(-frequency[candidates], kind="stable")[: options.max_candidates]
        candidates = np.sort(candidates[order])
    return candidates
