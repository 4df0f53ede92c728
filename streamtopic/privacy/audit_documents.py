"""Documents made to be hard to forget, and what becomes of a model that learned them and had to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import MAX_LENGTH, Cooccurrence, Counts, DocumentBatch, Passage, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.display import top_words
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.released import topic_correlations
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["Forgotten", "crafted_documents", "exact_differences", "forget", "hardest"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_TOKENS = 256
_ENTRANTS = 64
_MOST_WORDS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Forgotten:
    """What became of one forget set.

    name, documents: what was forgotten; model: after unlearning; moved: ||A(S) - A(S - S_f)||_F over all words; gap:
    that of unlearned and retrained, what noise has to hide; reason: why it was learned anew, empty if it was updated;
    different: what is published without noise and differs from a retraining; kept: the same had it not been subtracted.
    """

    name: str
    documents: int
    model: TopicFit
    moved: float
    gap: float
    reason: str
    different: tuple[str, ...]
    kept: tuple[str, ...]


def crafted_documents(counts: Counts, fit: TopicFit) -> dict[str, Passage]:
    """Make documents that pull at what a model is most sensitive to, by name.

    counts: what `fit` was learned from. At anchors, at the rarest words, at the threshold of the vocabulary, at all
    topics at once, with as much weight as a document may have; and, as anything else may call for a retrain, one that
    hardly pulls at all.
    """
    place = {word: k for k, word in enumerate(counts.words)}
    live = np.array([place[word] for word in fit.words], np.int64)
    frequency = counts.frequency[live]
    rare = live[np.argsort(frequency, kind="stable")]
    anchors = np.array([place[word] for word in fit.anchors], np.int64)
    anchors = anchors[np.argsort(counts.frequency[anchors], kind="stable")]
    tops = np.unique(live[top_words(fit.A, frequency, counts.documents, 8)])
    below = np.flatnonzero(counts.frequency == int(frequency.min()) - 1)[:_ENTRANTS]
    pulled = rare[~np.isin(rare, anchors)]
    vertex = live[np.argsort(-np.where(fit.C[fit.live] < 1, fit.C[fit.live], 0).max(axis=1), kind="stable")[:1]]
    made = {
        "two anchors side by side": _document(anchors[:2]),
        "the word next to being an anchor, with a rare one": _document(np.concatenate([vertex, pulled[:1]])),
        "the rarest words of the vocabulary": _document(rare[:16]),
        "the top words of every topic": _document(tops),
        "words about to enter the vocabulary": _document(below),
        "words of middling frequency": _document(rare[len(rare) // 2 :][:20], 20),
        "as long as a document may be": _document(rare[-_MOST_WORDS:], MAX_LENGTH),
    }
    return {name: passage for name, passage in made.items() if len(passage.words) > 1}


def forget(
    counts: Counts, retrained: TopicFit, documents: Sequence[Passage], name: str, *, options: LearnerOptions
) -> Forgotten:
    """Learn `counts` with the documents, then unlearn them one after another; `retrained` never saw them.

    Raises CannotLearn where no model can be made with them.
    """
    parts = [count(DocumentBatch.build([[passage]]), len(counts.words), options.weighting) for passage in documents]
    held = Cooccurrence.sum([counts.cooccurrence, *parts], len(counts.words))
    fit: TopicFit | None = learn(Counts(counts.words, held), options)
    assert fit is not None  # noqa: S101  narrows the type
    moved, reason = _distance(fit, retrained), ""
    kept = exact_differences(fit, retrained, Counts(counts.words, held), counts)
    for part in parts:
        held = held - part
        fit, reason = _without(fit, Counts(counts.words, held), part, reason)
    model = fit or learn(counts, options)
    different = exact_differences(model, retrained, Counts(counts.words, held), counts)
    return Forgotten(name, len(documents), model, moved, _distance(model, retrained), reason, different, kept)


def hardest(
    counts: Counts, options: LearnerOptions, step: Callable[[], None] = lambda: None
) -> tuple[TopicFit, tuple[Forgotten, ...]]:
    """Try crafted documents, each alone and all in turn; return the retrained model and the tries, hardest first.

    Hardest is what was unlearned by an update and lies farthest from the retrained model; then what moved it most.
    Raises CannotLearn where `counts` make no model.
    """
    retrained = learn(counts, options)
    made = crafted_documents(counts, retrained)
    tries = []
    for name, documents in _sets(made):
        try:
            tries.append(forget(counts, retrained, documents, name, options=options))
        except CannotLearn:
            # With such a document there is no version to begin with, so none to unlearn it from.
            continue
        finally:
            step()
    return retrained, tuple(sorted(tries, key=lambda one: (one.reason == "", one.gap, one.moved), reverse=True))


def exact_differences(unlearned: TopicFit, retrained: TopicFit, before: Counts, after: Counts) -> tuple[str, ...]:
    """Name what is published without noise and differs: each would give an unlearned version away with certainty.

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
    if not found and not np.array_equal(
        topic_correlations(unlearned, retrained.A).R, topic_correlations(retrained, retrained.A).R
    ):
        found.append("covariance")
    return tuple(found)


def _sets(made: dict[str, Passage]) -> Iterator[tuple[str, list[Passage]]]:
    yield from ((name, [passage]) for name, passage in made.items())
    yield "all of these, one after another", list(made.values())


def _without(fit: TopicFit | None, now: Counts, part: Cooccurrence, reason: str) -> tuple[TopicFit | None, str]:
    """Carry a fit over to counts without `part`; None, and why, where it has to be learned anew."""
    if fit is None:
        return None, reason
    zero = Cooccurrence.zero(len(now.words))
    outcome = update(fit, now, Counts(now.words, zero - part))
    if isinstance(outcome, NeedsRetrain):
        return None, outcome.reason
    return outcome.fit, reason


def _document(words: npt.NDArray[np.integer], tokens: int = _TOKENS) -> Passage:
    """Spread tokens over words as evenly as may be, one each at least."""
    chosen = np.unique(words)[:tokens].astype(np.int32)
    counts = np.full(len(chosen), tokens // max(len(chosen), 1), np.int32)
    return Passage(int(counts.sum()), chosen, counts)


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
    return fingerprint(fit, frequency, [repr(fit.options)])
