"""Counts to topics, from a cold start: the whole path on one screen.

    words      choose_words            which words, from document frequencies
    anchors    farthest rows           r words that stand for one topic each
    round 1    every word as a mixture of the anchor rows
    round 2    the same with averages over super-anchors (default learner)
    A          columns p_i C_ik / z_k, with a certificate of ||A - A*||_F

Source: Arora et al. 2013, Algorithms 1 to 3 (learner "paper"); the differences of learner "default" are in
docs/decisions. Everything is a pure, deterministic function of the counts.
"""

from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import AnchorChoice, farthest_in_principal_directions, farthest_rows
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.products import candidate_gram, candidate_gram_roundings, dense_rows, grouped_rows
from streamtopic.topics.simplex_round import Round
from streamtopic.topics.spectrum import leading_eigenpairs
from streamtopic.topics.vocabulary import choose_words

__all__ = [
    "Prepared",
    "candidate_positions",
    "column_squares",
    "learn",
    "learn_prepared",
    "prepare",
    "super_anchors",
    "working_counts",
]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What learning needs of the counts whatever the number of topics: fits made of it share its arrays.

    q: counts over the working vocabulary, words; mass (n,) row sums; squares (n,) D^2; candidates: positions of words
    that may be anchors; gram (c, c) of their rows, or None for learner "paper"; pairs: leading eigenpairs of that in
    units of p, where several numbers of topics share them.
    """

    q: SymmetricCounts
    mass: Int64
    squares: Float
    words: tuple[str, ...]
    candidates: npt.NDArray[np.intp]
    gram: Float | None
    documents: int
    pairs: tuple[Float, Float] | None = None

    def sharing(self, topics: int) -> "Prepared":
        """Return these counts with the eigenpairs that up to so many topics need, found once for all of them.

        They are those that a number of topics by itself would find, to rounding.
        """
        if self.gram is None:
            return self
        return replace(self, pairs=leading_eigenpairs(_in_units_of_p(self.gram, self.mass, self.candidates), topics))


def learn(source: CountSource, options: LearnerOptions) -> TopicFit:
    """Learn a topic model from counts.

    source: counts made with `options.weighting`. Returns a fit over the working vocabulary, before noise.
    Raises CannotLearn, with a reason, where too few words or independent directions are left.
    """
    return learn_prepared(prepare(source, options), options)


def prepare(source: CountSource, options: LearnerOptions) -> Prepared:
    """Return the part of `learn` that does not depend on the number of topics: most of its cost where they are few.

    Raises CannotLearn where too few words are left for the topics that `options` asks for.
    """
    q, mass, words, frequency, may_anchor = working_counts(source, options)
    squares = column_squares(mass, options)
    candidates = candidate_positions(frequency, may_anchor, options)
    _require_candidates(candidates, options)
    gram = None if options.learner == "paper" else candidate_gram(q, candidates, squares)
    return Prepared(q, mass, squares, words, candidates, gram, source.documents)


def learn_prepared(prepared: Prepared, options: LearnerOptions) -> TopicFit:
    """Learn from prepared counts. options: those that they were prepared for, but for `n_topics`.

    An update changes a fit's arrays in place, so of several fits of one Prepared none may be updated.
    """
    q, mass, squares, candidates = prepared.q, prepared.mass, prepared.squares, prepared.candidates
    _require_candidates(candidates, options)
    if prepared.gram is None:
        anchors = farthest_rows(q, candidates, mass, options.n_topics)
    else:
        anchors = choose_in_gram(prepared.gram, mass, candidates, q.n, options, pairs=prepared.pairs)
    first = Round.cold(q, mass, squares, dense_rows(q, anchors.rows), None)
    rounds, group = [first], np.full(q.n, -1, np.int64)
    if options.learner == "default":
        group = super_anchors(first, q, mass, anchors.rows)
        rounds.append(Round.cold(q, mass, squares, grouped_rows(q, group, options.n_topics), first.C))
    return TopicFit(
        options=options,
        names=Words(prepared.words),
        documents=prepared.documents,
        q=q,
        mass=mass,
        squares=squares,
        candidates=candidates,
        gram=prepared.gram,
        choice=anchors,
        group=group,
        rounds=rounds,
    )


def _require_candidates(candidates: npt.NDArray[np.intp], options: LearnerOptions) -> None:
    if len(candidates) < options.n_topics:
        raise CannotLearn(
            "candidates",
            f"{len(candidates)} words may be anchors, {options.n_topics} topics need as many: "
            "add documents, ask fewer topics or lower anchor_min_df",
        )


def working_counts(
    source: CountSource, options: LearnerOptions
) -> tuple[SymmetricCounts, Int64, tuple[str, ...], Int64, npt.NDArray[np.bool_]]:
    """Return Q over the working vocabulary: counts, row sums (n,), words, document frequencies, which may be anchors.

    A function of the counts alone, so of the documents that are left. Raises CannotLearn where no word is.
    """
    if source.documents <= 0:
        raise CannotLearn("documents", "there is no document to learn from: add some")
    keep, may_anchor = choose_words(source.frequency, source.documents, options)
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


def column_squares(mass: Int64, options: LearnerOptions) -> Float:
    """Return D^2, (n,): 1, or p^-1/2 with p rounded to powers of sqrt 2, so that it rarely moves."""
    if options.learner == "paper":
        return np.ones(len(mass))
    total = float(sum(mass.tolist()))
    steps = np.round(2 * np.log2(np.maximum(mass, 1) / total))
    return np.asarray(np.exp2(-steps / 4))


def candidate_positions(
    frequency: Int64, may_anchor: npt.NDArray[np.bool_], options: LearnerOptions
) -> npt.NDArray[np.intp]:
    """Return ascending positions of the words that may be anchors; the default learner takes the most frequent."""
    candidates = np.flatnonzero(may_anchor)
    if options.learner == "default" and len(candidates) > options.max_candidates:
        order = np.argsort(-frequency[candidates], kind="stable")[: options.max_candidates]
        candidates = np.sort(candidates[order])
    return candidates


def choose_in_gram(
    gram: Float,
    mass: Int64,
    candidates: npt.NDArray[np.intp],
    n: int,
    options: LearnerOptions,
    carried: float = 0.0,
    pairs: tuple[Float, Float] | None = None,
) -> AnchorChoice:
    """Search the principal directions of Qbar_c D.

    gram: Q_c D^2 Q_c^T in the units of the counts; carried: what updates have added to its error, in units of p; pairs:
    see Prepared, they stand for it where they are given.
    """
    if pairs is None:
        pairs = leading_eigenpairs(_in_units_of_p(gram, mass, candidates), options.n_topics, overwrite=True)
    roundings = candidate_gram_roundings(n)
    choice = farthest_in_principal_directions(gram, options.n_topics, roundings, carried, pairs)
    return AnchorChoice(candidates[choice.rows], choice.margin, choice.certain)


def _in_units_of_p(gram: Float, mass: Int64, candidates: npt.NDArray[np.intp]) -> Float:
    scaled = np.empty_like(gram)
    _scale(gram, 1.0 / mass[candidates], scaled)
    return scaled


def super_anchors(first: Round, q: SymmetricCounts, mass: Int64, anchors: npt.NDArray[np.intp]) -> Int64:
    """Return the topic whose super-anchor each word joins, (n,), or -1: the anchor and words with C_ik >= 1/2."""
    best = np.argmax(first.C, axis=1)
    group = np.where(first.C[np.arange(q.n), best] >= 0.5, best, -1)
    group[anchors] = np.arange(len(anchors))
    group[mass == 0] = -1
    return group.astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _scale(gram: Float, factors: Float, out: Float) -> None:
    for i in range(len(factors)):
        for j in range(len(factors)):
            out[i, j] = gram[i, j] * factors[i] * factors[j]
