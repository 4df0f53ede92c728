"""Documents made to be hard to forget, and a model that learned them and had to forget them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import MAX_LENGTH, Cooccurrence, Counts, DocumentBatch, Passage, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.display import WordEvidence, top_words, topic_correlations
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update
from streamtopic.topics.working_vocabulary import thresholds

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

MOST_SETS = 13
"""Forget sets at the most: those of `crafted_sets` where the corpus allows all of them."""

_TOKENS = 256
_ENTRANTS = 64
_MOST_WORDS = 1_000
_MOST_COPIES = 16
_RETURNING = 8
_TIPPING = 8
_FEW_TOKENS = 16
_FILLING = 12
_PASSAGES = 3
# Key of digests that are compared within this process and shown to nobody.
_WITHIN = bytes(32)

Document = tuple[Passage, ...]
"""A document, as its passages."""


@dataclass(frozen=True, slots=True, eq=False)
class Forgotten:
    """One forget set, and the model after it.

    name: of the forget set.
    documents: how many were forgotten.
    model: after unlearning.
    moved: ||A(S) - A(S - S_f)||_F over all words.
    gap: the same of unlearned and retrained, which noise has to hide.
    reason: why it was learned anew, empty if it was updated.
    different: parts that are published without noise and differ from a retraining.
    kept: parts that would differ, had the documents not been subtracted.
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
        """Return it as `audit --json` prints it."""
        return {
            "name": self.name,
            "documents": self.documents,
            "moved": self.moved,
            "gap": self.gap,
            "how": "relearned" if self.reason else "updated",
            "reason": self.reason,
            "different": list(self.different),
            "different_if_kept": list(self.kept),
        }


def crafted_documents(counts: Counts, fit: TopicFit) -> dict[str, Document]:
    """Make documents that pull where a model is most sensitive, by name.

    counts: those that `fit` was learned from. Documents pull at anchors, at the rarest words, at the threshold of the
    vocabulary, at all topics at once, with as much weight as a document may have, in one passage or in several that
    share words, or all of it on one word; and, as anything else may call for a retrain, one that hardly pulls at all.
    """
    place = {word: k for k, word in enumerate(counts.words)}
    live = np.array([place[word] for word in fit.words], np.int64)
    frequency = counts.frequency[live]
    rare = live[np.argsort(frequency, kind="stable")]
    anchors = np.array([place[word] for word in fit.anchors], np.int64)
    anchors = anchors[np.argsort(counts.frequency[anchors], kind="stable")]
    tops = np.unique(live[top_words(fit.A, WordEvidence.of(fit, frequency), 8)])
    below = np.flatnonzero(counts.frequency == int(frequency.min()) - 1)[:_ENTRANTS]
    pulled = rare[~np.isin(rare, anchors)]
    C = fit.C[fit.live]
    nearest = np.where(C < 1, C, 0).max(axis=1)
    vertex = live[np.argsort(-nearest, kind="stable")[:1]]
    made = {
        "two anchors side by side": _document(anchors[:2]),
        "the word next to being an anchor, with a rare one": _document(np.concatenate([vertex, pulled[:1]])),
        "the rarest words of the vocabulary": _document(rare[:16]),
        "the top words of every topic": _document(tops),
        "words about to enter the vocabulary": _document(below),
        "words of middling frequency": _document(rare[len(rare) // 2 :][:20], 20),
        "as long as a document may be": _document(rare[-_MOST_WORDS:], MAX_LENGTH),
        "a text of several passages": _text(rare[-_MOST_WORDS:], anchors),
        "a document that one word fills": _filled(pulled[:1], rare[-_RETURNING:]),
    }
    return {name: document for name, document in made.items() if len(document[0].words) > 1}


def crafted_sets(counts: Counts, fit: TopicFit) -> dict[str, list[Document]]:
    """Make forget sets of crafted documents, by name: each alone, some that decide something together, all in turn.

    counts: those that `fit` was learned from. With the first of these together words are in too many documents, so that
    they enter the vocabulary as the documents are forgotten; with others words lean to another topic, so that they move
    between super-anchors; others again are filled by one word, so that it repeats itself and is left out meanwhile.
    """
    made = crafted_documents(counts, fit)
    sets = {name: [document] for name, document in made.items()}
    sets["words that enter as they are forgotten"] = _returning(counts, fit)
    sets["words that lean to another topic"] = _tipping(counts, fit)
    filled = made.get("a document that one word fills")
    sets["a word that repeats itself until they are forgotten"] = [filled] * _FILLING if filled else []
    sets = {name: documents for name, documents in sets.items() if documents}
    everything = [document for documents in sets.values() for document in documents]
    return {**sets, "all of these, one after another": everything}


def _returning(counts: Counts, fit: TopicFit) -> list[Document]:
    """Return as many documents of the most frequent words as put these above the threshold of the vocabulary."""
    if fit.options.max_df == 1:
        return []
    live = _places(counts, fit.words)
    most = int(thresholds(counts.documents + _MOST_COPIES, fit.options).most)
    frequent = live[np.argsort(-counts.frequency[live], kind="stable")]
    frequent = frequent[~np.isin(frequent, _places(counts, fit.anchors))]
    near = frequent[counts.frequency[frequent] > most - _MOST_COPIES][:_RETURNING]
    if not len(near):
        return []
    copies = most + 1 - int(counts.frequency[near].min())
    # A document has a pair of words at least, and words that meet others have rows.
    beside = np.setdiff1d(frequent, near)[:_RETURNING]
    return [_document(np.concatenate([near, beside]), 4 * len(near) + 4 * len(beside))] * copies


def _tipping(counts: Counts, fit: TopicFit) -> list[Document]:
    """Return a document for each word near the edge of a topic, with the anchor of its second topic."""
    live, anchors = _places(counts, fit.words), _places(counts, fit.anchors)
    C = fit.C[fit.live]
    if C.shape[1] < 2:
        return []
    near = np.argsort(np.abs(C.max(axis=1) - 0.5), kind="stable")
    near = near[~np.isin(live[near], anchors)][:_TIPPING]
    second = np.argsort(-C, axis=1, kind="stable")[:, 1]
    # Little enough to leave the anchors where they are.
    pairs = (np.array([live[k], anchors[second[k]]]) for k in near)
    return [_document(pair, _FEW_TOKENS) for pair in pairs]


def _places(counts: Counts, words: Sequence[str]) -> Int64:
    place = {word: k for k, word in enumerate(counts.words)}
    return np.array([place[word] for word in words], np.int64)


def forget(
    counts: Counts, retrained: TopicFit, documents: Sequence[Document], name: str, *, options: LearnerOptions
) -> Forgotten:
    """Learn `counts` with the documents, then unlearn them one after another; `retrained` never saw them.

    Raises CannotLearn where no model can be made with them.
    """
    parts = [count(DocumentBatch.build([document]), len(counts.words), options.weighting) for document in documents]
    held = Cooccurrence.sum([counts.cooccurrence, *parts], len(counts.words))
    fit: TopicFit | None = learn(Counts(counts.words, held), options)
    assert fit is not None  # noqa: S101  narrows the type
    moved, reason = _distance(fit, retrained), ""
    kept = exact_differences(fit, retrained, Counts(counts.words, held), counts)
    # One after another, as a service does it, each update beginning where the last one ended.
    for part in parts:
        held = held - part
        fit, reason = _without(fit, Counts(counts.words, held), part, reason)
    model = fit or learn(counts, options)
    different = exact_differences(model, retrained, Counts(counts.words, held), counts)
    return Forgotten(name, len(documents), model, moved, _distance(model, retrained), reason, different, kept)


def hardest(
    counts: Counts, options: LearnerOptions, step: Callable[[], None] = lambda: None
) -> tuple[TopicFit, tuple[Forgotten, ...]]:
    """Try sets of crafted documents; return the retrained model and the tries, hardest first.

    The hardest set was unlearned by an update and lies farthest from the retrained model; then come those that moved it
    most.
    Raises CannotLearn where `counts` make no model.
    """
    retrained = learn(counts, options)
    tries = []
    for name, documents in crafted_sets(counts, retrained).items():
        try:
            tries.append(forget(counts, retrained, documents, name, options=options))
        except CannotLearn:
            # With such a document there is no version to begin with, and so no version to unlearn it from.
            continue
        finally:
            step()
    # An update that leaves a gap is what the noise is for; a model that was learned again has no gap.
    return retrained, tuple(sorted(tries, key=lambda one: (one.reason == "", one.gap, one.moved), reverse=True))


def exact_differences(unlearned: TopicFit, retrained: TopicFit, before: Counts, after: Counts) -> tuple[str, ...]:
    """Name the parts published without noise that differ: each would give an unlearned version away with certainty.

    before, after: the counts that each model was made of. Compared are the words, the anchors, m, the shape, the digest
    of retained counts that keys the noise, and R as computed from one noised A.
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
    # Of the same A, as R is published of one noised A; models of other words cannot be compared.
    if not found:
        one, other = (topic_correlations(fit, retrained.A) for fit in (unlearned, retrained))
        if not np.array_equal(one.R, other.R):
            found.append("covariance")
    return tuple(found)


def _without(fit: TopicFit | None, now: Counts, part: Cooccurrence, reason: str) -> tuple[TopicFit | None, str]:
    """Carry a fit over to counts without `part`; None, and why, where it has to be learned anew."""
    if fit is None:
        return None, reason
    zero = Cooccurrence.zero(len(now.words))
    outcome = update(fit, now, Counts(now.words, zero - part))
    if isinstance(outcome, NeedsRetrain):
        return None, outcome.reason
    return outcome.fit, reason


def _document(words: npt.NDArray[np.integer], tokens: int = _TOKENS) -> Document:
    """Spread tokens over words evenly, at least one each."""
    chosen = np.unique(words)[:tokens].astype(np.int32)
    return (_passage(chosen, np.full(len(chosen), tokens // max(len(chosen), 1), np.int32)),)


def _text(words: npt.NDArray[np.integer], shared: npt.NDArray[np.integer]) -> Document:
    """Deal words out to passages of the greatest length; shared words stand in each of them."""
    parts = [np.union1d(words[k::_PASSAGES], shared) for k in range(_PASSAGES)]
    return tuple(passage for part in parts for passage in _document(part, MAX_LENGTH))


def _filled(word: npt.NDArray[np.integer], beside: npt.NDArray[np.integer]) -> Document:
    """Fill a document with one word, and put some others beside it once."""
    chosen = np.union1d(word, beside).astype(np.int32)
    counts = np.where(np.isin(chosen, word), MAX_LENGTH - len(chosen) + 1, 1).astype(np.int32)
    return (_passage(chosen, counts),)


def _passage(words: npt.NDArray[np.int32], counts: npt.NDArray[np.int32]) -> Passage:
    return Passage(int(counts.sum()), words, counts)


def _distance(one: TopicFit, other: TopicFit) -> float:
    """||A - A'||_F over the words of both; topics are compared in order."""
    if one.words == other.words:
        return float(np.linalg.norm(one.A - other.A))
    place = {word: k for k, word in enumerate(sorted({*one.words, *other.words}))}
    gap = np.zeros((len(place), one.A.shape[1]))
    for fit, sign in ((one, 1.0), (other, -1.0)):
        gap[[place[word] for word in fit.words]] += sign * fit.A
    return float(np.linalg.norm(gap))


def _digest(fit: TopicFit, counts: Counts) -> str:
    place = {word: k for k, word in enumerate(counts.words)}
    frequency = [int(counts.frequency[place[word]]) for word in fit.words]
    return fingerprint(fit, frequency, [repr(fit.options)], _WITHIN)
