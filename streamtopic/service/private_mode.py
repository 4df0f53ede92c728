"""Private mode in the service: versions that cannot be subtracted, since noise hides each document in all of them.

    PrivateRule       the settings of the mode: a budget for all versions of a period
    PrivateModeller   the Modeller of this mode; an update is made from the counts that remain, as a first version is

A period begins with a base model and ends with the next one, which only an operator asks for, since it spends the
budget once more. Nothing that is published is a function of exact counts: not the number of documents, nor a word.
docs/proof.md, "Private mode", has the theorem.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamtopic.counts import narrowed
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.document_matrices import UNIT, document_matrices, noised_matrix, word_weights
from streamtopic.privacy.private_topics import chosen_words, topics_of_noised, word_threshold
from streamtopic.privacy.series_noise import SeriesNoise
from streamtopic.service.schedule.modeller import Made, Modeller, NotVerified, kept_of
from streamtopic.service.schedule.payload import TOP_WORDS, PayloadPlan, TaskData, no_sample, topics_payload
from streamtopic.state.document_counts import read_documents
from streamtopic.topics.display import WordEvidence, correlations_and_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamtopic.counts import DocumentBatch
    from streamtopic.counts.arrays import Int64
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.modeller import Base, FromLog, MeasureCapacity
    from streamtopic.service.schedule.payload import Sample
    from streamtopic.signed import Envelope
    from streamtopic.state import DocumentCounts, StoredBase
    from streamtopic.topics.learner_options import LearnerOptions

    Documents = Callable[[Sequence[str] | None], tuple[Sequence[str], DocumentBatch]]

__all__ = ["PrivateModeller", "PrivateRule", "Series"]

# If words are chosen from the documents: the part of mu^2 that this takes, and the part of delta.
_CHOICE = 0.1
_CHOICE_DELTA = 0.01
# `_add_weights` rounds a square root: no document's vector is longer than this.
_LENGTH = 1 + 2.0**-20


@dataclass(frozen=True, slots=True)
class PrivateRule:
    """The settings of private mode.

    epsilon, delta: what all versions of a period together reveal of one document.
    versions: the most versions of a period.
    words: the vocabulary, ascending; None to choose it from the documents, within the budget.
    size: the most words to choose.
    max_df: the largest share of the documents that may hold a chosen word.
    """

    epsilon: float
    delta: float
    versions: int
    words: tuple[str, ...] | None
    size: int
    max_df: float

    @property
    def slack(self) -> float:
        """The part of delta that the choice of words takes."""
        return 0.0 if self.words is not None else _CHOICE_DELTA * self.delta

    @property
    def scale(self) -> float:
        """The scale of the Gaussian mechanism that a whole period is."""
        return gaussian_scale(self.epsilon, self.delta - self.slack)

    @property
    def series(self) -> SeriesNoise:
        """The noise of a period's versions."""
        share = 1.0 if self.words is not None else 1 - _CHOICE
        return SeriesNoise(self.versions, self.scale / math.sqrt(share))

    @property
    def rules(self) -> dict[str, Any]:
        """What must not change within a period, by the names of settings."""
        words = None if self.words is None else hashlib.sha256("\n".join(self.words).encode()).hexdigest()
        fields = asdict(self) | {"words": words}
        return {f"private.{name}": value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class Series:
    """The versions of a model in private mode, as records and ledger have them.

    earlier: version and commitment of each version of the period, the oldest first.
    before: scale and slack of each earlier period.
    """

    earlier: tuple[tuple[int, str], ...]
    before: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, versions: Iterable[Envelope], base: int, version: int) -> Self:
        """Find a version's place among others.

        versions: in any order, with those of other modes.
        base: the first version of its period.
        version: its number.
        """
        before = (one for one in versions if one.guarantee == "private" and one.version < version)
        private = sorted(before, key=lambda one: one.version)
        own = tuple((one.version, one.commitment) for one in private if one.base == base)
        periods = {one.base: (one.scale, one.slack) for one in private if one.base != base}
        return cls(own, tuple(periods.values()))


def kept_words(stored: StoredBase | None) -> tuple[str, ...]:
    """Return the words of a period, ascending, which its base model keeps.

    Raises CannotLearn if that is gone, StateCorrupt if it was kept in another mode.
    """
    if stored is None:
        raise CannotLearn("base", "the words of its period are not kept any more")
    return tuple(json.loads(kept_of(stored, "private").decode("utf-8", "surrogatepass")))


class PrivateModeller(Modeller):
    """Makes models whose noise is drawn before anything is learned. It keeps nothing between versions.

    options: of the learner.
    rule: the settings of this mode.
    stored: reads the kept base model; it returns None before the first.
    series: returns the versions of a period before a version, given both numbers.
    """

    guarantee = "private"

    def __init__(
        self,
        options: LearnerOptions,
        rule: PrivateRule,
        stored: Callable[[], StoredBase | None],
        series: Callable[[int, int], Series],
    ) -> None:
        super().__init__(options)
        self.rule = rule
        self.most_versions = rule.versions
        self._stored = stored
        self._series = series

    @property
    def scale(self) -> float:
        """The scale of a whole period."""
        return self.rule.scale

    @property
    def rules(self) -> dict[str, Any]:
        """The choices that must not change within a period."""
        return {**self.options.rules, **self.rule.rules}

    def retrain(self, counts: DocumentCounts, capacity: MeasureCapacity) -> tuple[Made, int]:  # noqa: ARG002 -- see Modeller
        """Begin a period."""
        return self._made(counts, None, None), 0

    def unlearn(self, counts: DocumentCounts, base: Base) -> Made | NotVerified:
        """Make the next version of a period from the documents that remain.

        Raises StateCorrupt if the kept base model is damaged, CannotLearn if it was replaced meanwhile.
        """
        stored = self._stored()
        if stored is None or stored.version != base.version:
            raise CannotLearn("base", "the base model was replaced meanwhile")
        return self._made(counts, kept_words(stored), base.version)

    def again(self, found: FromLog, stored: StoredBase | None, key: NoiseKey) -> PayloadPlan:
        """Noise the counts of the log again. Raises CannotLearn, StateCorrupt."""
        envelope = found.envelope
        words, batch = found.documents()

        def over(wanted: Sequence[str] | None) -> tuple[Sequence[str], DocumentBatch]:
            return (words, batch) if wanted is None else (wanted, _over(batch, words, wanted))

        series = Series.of(found.versions, envelope.base, envelope.version)
        # A first version chooses its words again; the others have those of the period.
        words_kept = None if envelope.version == envelope.base else kept_words(stored)
        return self._payload(over, words_kept, series, key, envelope.model, envelope.version)

    def _made(self, counts: DocumentCounts, words: tuple[str, ...] | None, base: int | None) -> Made:
        """Return a model that is still to be made: its noise comes first."""

        def documents(wanted: Sequence[str] | None) -> tuple[Sequence[str], DocumentBatch]:
            over = counts.words if wanted is None else wanted
            return over, read_documents(counts, over).batch

        def draw(_sample: Sample, key: NoiseKey, model: str, version: int, _data: TaskData) -> PayloadPlan:
            series = self._series(version if base is None else base, version)
            return self._payload(documents, words, series, key, model, version)

        return Made(
            counts,
            documents=counts.documents,
            # Chosen or named with the noise, so nobody knows them yet.
            words=(),
            anchors=(),
            tolerance=0.0,
            certificate=math.inf,
            draw=draw,
        )

    def _payload(
        self,
        documents: Documents,
        words: tuple[str, ...] | None,
        series: Series,
        key: NoiseKey,
        model: str,
        version: int,
    ) -> PayloadPlan:
        """Noise the counts once, and derive everything from the noised numbers.

        documents: returns the documents over some words, or over all of theirs.
        words: of the period, ascending; None for its first version, which fixes them.
        series: the versions before this one.

        Raises CannotLearn, also if noise hides the topics.
        """
        rule = self.rule
        words = words or _vocabulary(documents, rule, key, model, version)
        _, batch = documents(words)
        exact = document_matrices(batch, len(words))
        # Noise is keyed by what it is added to, so a crash or a restored state draws the same bytes again.
        digest = _digest(exact, [repr(self.options), repr(rule), *words], key)
        of_versions = [*series.earlier, (version, key.commitment(model, version, digest))]
        seeds = [key.seed(model, number, commitment, "series") for number, commitment in of_versions]
        noise = rule.series
        deviation = noise.deviation(len(seeds))
        noised = noised_matrix(exact, noise, seeds)
        # From here on only noised numbers are used: that is post-processing.
        fit, counts, ratio = topics_of_noised(words, noised, deviation, self.options)
        A = fit.A.astype(np.float32)
        evidence = WordEvidence.of(fit, counts.frequency_of(fit.words))
        related, order = correlations_and_words(fit, A.astype(np.float64), evidence, TOP_WORDS)
        names, shares = fit.topic_names, related.shares
        payload, _ = topics_payload(fit.words, names, A, related.R, shares, order, no_sample, TaskData())
        spent = Composition.of([*series.before, (rule.scale, rule.slack)]).epsilon(rule.delta)
        shown = {
            "epsilon": rule.epsilon,
            "delta": rule.delta,
            "sigma": deviation,
            "scale": rule.scale,
            "slack": rule.slack,
            "ratio": float(f"{ratio:.3g}"),
            # No exact number, the number of documents and of deletions included.
            "m": counts.documents,
            "n": len(fit.words),
            "r": len(fit.topic_names),
            "counted": 0,
            "forgotten": 0,
            "capacity": 0,
            "cumulative_epsilon": spent,
        }
        return PayloadPlan(
            payload,
            shown,
            digest,
            noise.grid,
            kept=json.dumps(words).encode("utf-8", "surrogatepass"),
            facts={"period": {"versions": len(seeds), "of": rule.versions}},
        )


def _vocabulary(documents: Documents, rule: PrivateRule, key: NoiseKey, model: str, version: int) -> tuple[str, ...]:
    """Return the words of a period: those of the settings, or the heaviest by noised weights."""
    if rule.words is not None:
        return rule.words
    words, batch = documents(None)
    exact, whole = word_weights(batch, len(words))
    values = np.append(exact, whole)
    seed = key.seed(model, version, _digest(values, [repr(rule), *words], key), "vocabulary")
    noise = SeriesNoise(1, rule.scale / math.sqrt(_CHOICE))
    noised = noise.add(values / UNIT, np.full(len(values), _LENGTH), [seed])
    least = word_threshold(noise.sigma * _LENGTH, rule.slack)
    found = chosen_words(words, noised[:-1], float(noised[-1]), least, rule.max_df, rule.size)
    return tuple(found)


def _digest(numbers: Int64, texts: Sequence[str], key: NoiseKey) -> str:
    """Return a hex digest of exact numbers and settings under the key of counts."""
    state = hmac.new(key.counts_key, b"streamtopic private 1\0", hashlib.sha256)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    state.update(np.ascontiguousarray(numbers, "<i8").tobytes())
    return state.hexdigest()


def _over(batch: DocumentBatch, words: Sequence[str], wanted: Sequence[str]) -> DocumentBatch:
    """Return documents over other words, both ascending."""
    place = {word: k for k, word in enumerate(wanted)}
    return narrowed(batch, np.array([place.get(word, -1) for word in words], np.int32))
