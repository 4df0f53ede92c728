"""Documents made to be hard to forget, and a model that learned them and had to forget them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.audit.subtraction import difference
from streamtopic.counts import MAX_LENGTH, Cooccurrence, Counts, DocumentBatch, Passage, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.display import WordEvidence, top_words, topic_correlations
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.learner import learn, thresholds
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update

__all__ = [
    "MOST_SETS",
    "Document",
    "Forgotten",
    "crafted_documents",
    "crafted_sets",
    "exact_differences",
    "forget",
    "hardest",
]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_SETS = 10
"""The most forget sets that `crafted_sets` makes; a corpus may allow fewer."""

_TOKENS = 256
# Words about to enter the vocabulary.
_ENTRANTS = 64
_MOST_WORDS = 1_000
_MOST_COPIES = 16
# Words to push above the vocabulary's threshold.
_RETURNING = 8
_PASSAGES = 3
# The audit compares digests within this process and never shows them, so their key need not be secret.
_WITHIN = bytes(32)

Document = tuple[Passage, ...]
"""A document, as its passages."""


@dataclass(frozen=True, slots=True, eq=False)
class Forgotten:
    """One forget set, and the model after it.

    name: of the forget set.
    documents: number of forgotten documents.
    model: after unlearning.
    moved: ||A(S) - A(S - S_f)||_F over all words.
    gap: the distance of the unlearned from the retrained A, which noise has to hide.
    reason: why the model was learned again; "" if it was updated.
    different: parts that are published without noise and differ from a retraining.
    kept: parts that would differ if the documents had not been subtracted.
    """

    name: str
    documents: int
    model: TopicFit
    moved: float
    gap: float
    reason: str
    different: tuple[str, ...]
    kept: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as `audit --json` prints it, without the model."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}


def crafted_documents(counts: Counts, fit: TopicFit) -> dict[str, Document]:
    """Make documents that pull where a model is most sensitive, by name.

    counts: the counts that `fit` was learned from.

    Documents pull at anchors, at the rarest words, at the threshold of the vocabulary, and at all topics at once. Some
    have as much weight as a document may have, in one passage or in several that share words.
    """
    live = _places(counts, fit.words)
    frequency = counts.frequency[live]
    rare = live[np.argsort(frequency, kind="stable")]
    middling = rare[len(rare) // 2 :][:20]
    frequent = rare[-_MOST_WORDS:]
    anchors = _places(counts, fit.anchors)
    rarest_first = np.argsort(counts.frequency[anchors], kind="stable")
    anchors = anchors[rarest_first]
    pulled = rare[~np.isin(rare, anchors)]
    evidence = WordEvidence.of(fit, frequency)
    tops = live[top_words(fit.A, evidence, 8)]
    threshold = int(frequency.min())
    below = np.flatnonzero(counts.frequency == threshold - 1)[:_ENTRANTS]
    # The word with nearly all of its mass in one topic, of the words that are not anchors.
    nearest = np.where(fit.C < 1, fit.C, 0).max(axis=1)
    nearest_first = np.argsort(-nearest, kind="stable")
    vertex = live[nearest_first[:1]]
    made = {}
    made["two anchors side by side"] = _document(anchors[:2])
    vertex_and_rare = np.concatenate([vertex, pulled[:1]])
    made["the word next to being an anchor, with a rare one"] = _document(vertex_and_rare)
    made["the rarest words of the vocabulary"] = _document(rare[:16])
    made["the top words of every topic"] = _document(np.unique(tops))
    made["words about to enter the vocabulary"] = _document(below)
    # One that hardly pulls at all: each of the others may call for a retrain, and then no update would be tried.
    made["words of middling frequency"] = _document(middling, 20)
    made["as long as a document may be"] = _document(frequent, MAX_LENGTH)
    made["a text of several passages"] = _text(frequent, anchors)
    # A single word makes no pair, so such a document would add nothing to the counts.
    return {name: document for name, document in made.items() if len(document[0].words) > 1}


def crafted_sets(counts: Counts, fit: TopicFit) -> dict[str, list[Document]]:
    """Make forget sets of crafted documents, by name: each alone, sets that decide something together, all in turn.

    counts: the counts that `fit` was learned from.

    One set puts words into too many documents, so that they enter the vocabulary as the documents are forgotten.
    """
    made = crafted_documents(counts, fit)
    sets = {name: [document] for name, document in made.items()}
    returning = _returning(counts, fit)
    if returning:
        sets["words that enter as they are forgotten"] = returning
    sets["all of these, one after another"] = list(chain.from_iterable(sets.values()))
    return sets


def _returning(counts: Counts, fit: TopicFit) -> list[Document]:
    """Return as many documents of the most frequent words as lift these above the vocabulary's greatest share."""
    # No share is too great then.
    if fit.options.max_df == 1:
        return []
    live = _places(counts, fit.words)
    most = int(thresholds(counts.documents + _MOST_COPIES, fit.options).most)
    frequent_first = np.argsort(-counts.frequency[live], kind="stable")
    frequent = live[frequent_first]
    anchors = _places(counts, fit.anchors)
    frequent = frequent[~np.isin(frequent, anchors)]
    reachable = counts.frequency[frequent] > most - _MOST_COPIES
    near = frequent[reachable][:_RETURNING]
    if not len(near):
        return []
    copies = most + 1 - int(counts.frequency[near].min())
    # A document has a pair of words at least, and words that meet others have rows.
    beside = np.setdiff1d(frequent, near)[:_RETURNING]
    words = np.concatenate([near, beside])
    return [_document(words, 4 * len(words))] * copies


def _places(counts: Counts, words: Sequence[str]) -> Int64:
    """Return the positions of words in counts."""
    place = {word: k for k, word in enumerate(counts.words)}
    return np.array([place[word] for word in words], np.int64)


def forget(
    counts: Counts, retrained: TopicFit, documents: Sequence[Document], name: str, *, options: LearnerOptions
) -> Forgotten:
    """Learn counts with some documents, then unlearn these documents one after another.

    counts: without the documents.
    retrained: a model of `counts`, which never saw the documents.
    documents: the forget set.
    name: of the forget set.
    options: of the learner.
    Raises CannotLearn if counts and documents make no model.
    """
    words = counts.words
    batches = [DocumentBatch.build([document]) for document in documents]
    parts = [count(batch, len(words), options.weighting) for batch in batches]
    held = counts.cooccurrence + sum(parts, Cooccurrence.zero(len(words)))
    learned = learn(Counts(words, held), options)
    moved = float(np.linalg.norm(difference(learned, retrained)))
    kept = exact_differences(learned, retrained, Counts(words, held), counts)
    fit: TopicFit | None = learned
    reason = ""
    # One after another, as a service does it, each update beginning where the last one ended.
    for part in parts:
        held = held - part
        fit, reason = _without(fit, Counts(words, held), part, reason)
    model = fit or learn(counts, options)
    different = exact_differences(model, retrained, Counts(words, held), counts)
    gap = float(np.linalg.norm(difference(model, retrained)))
    return Forgotten(name, len(documents), model, moved, gap, reason, different, kept)


def hardest(
    counts: Counts, options: LearnerOptions, step: Callable[[], None] = lambda: None
) -> tuple[TopicFit, tuple[Forgotten, ...]]:
    """Try sets of crafted documents; return the retrained model and the tries, hardest first.

    counts: of the documents that are kept.
    options: of the learner.
    step: called after each set.

    The hardest set was unlearned by an update and left the model farthest from the retrained model; among equals, the
    set that moved the model most is the hardest. Raises CannotLearn if `counts` make no model.
    """
    retrained = learn(counts, options)
    tries = []
    for name, documents in crafted_sets(counts, retrained).items():
        try:
            tries.append(forget(counts, retrained, documents, name, options=options))
        except CannotLearn:
            # With such documents a service has no version, so it has no version to unlearn them from.
            continue
        finally:
            step()
    # Noise is there for the gap that an update leaves; a model that was learned again has no gap.
    tries.sort(key=lambda one: (one.reason == "", one.gap, one.moved), reverse=True)
    return retrained, tuple(tries)


def exact_differences(unlearned: TopicFit, retrained: TopicFit, before: Counts, after: Counts) -> tuple[str, ...]:
    """Name the parts published without noise that differ: each would give an unlearned version away with certainty.

    before: counts that the unlearned model was made of.
    after: counts that the retrained model was made of.

    It compares the words, the anchors, m, the shape, the digest of retained counts that keys the noise, and R.
    """
    found = []
    if unlearned.words != retrained.words:
        found.append("words")
    if unlearned.anchors != retrained.anchors:
        found.append("anchors")
    if unlearned.documents != retrained.documents:
        found.append("documents")
    if unlearned.A.shape != retrained.A.shape:
        found.append("shape")
    if _digest(unlearned, before) != _digest(retrained, after):
        found.append("counts")
    # R with the same A in both, since R is published of one noised A. Models over other words have no R in common.
    if not found:
        one = topic_correlations(unlearned, retrained.A)
        other = topic_correlations(retrained, retrained.A)
        if not np.array_equal(one.R, other.R):
            found.append("covariance")
    return tuple(found)


def _without(fit: TopicFit | None, now: Counts, part: Cooccurrence, reason: str) -> tuple[TopicFit | None, str]:
    """Carry a fit over to counts without `part`; return None and the reason if it has to be learned again."""
    if fit is None:
        return None, reason
    zero = Cooccurrence.zero(len(now.words))
    change = Counts(now.words, zero - part)
    outcome = update(fit, now, change)
    if isinstance(outcome, NeedsRetrain):
        return None, outcome.reason
    return outcome, reason


def _document(words: npt.NDArray[np.integer], tokens: int = _TOKENS) -> Document:
    """Spread tokens over words evenly, at least one each."""
    chosen = np.unique(words)[:tokens].astype(np.int32)
    each = tokens // max(len(chosen), 1)
    counts = np.full(len(chosen), each, np.int32)
    # Every token has a count.
    return (Passage(int(counts.sum()), chosen, counts),)


def _text(words: npt.NDArray[np.integer], shared: npt.NDArray[np.integer]) -> Document:
    """Deal words out to passages of the greatest length; each of them holds all shared words."""
    document: Document = ()
    for k in range(_PASSAGES):
        part = np.union1d(words[k::_PASSAGES], shared)
        document += _document(part, MAX_LENGTH)
    return document


def _digest(fit: TopicFit, counts: Counts) -> str:
    """Return the digest of retained counts, as a service computes it to key the noise."""
    places = _places(counts, fit.words)
    frequency = counts.frequency[places]
    return fingerprint(fit, frequency.tolist(), [repr(fit.options)], _WITHIN)
