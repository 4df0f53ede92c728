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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import StateCorrupt
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.private_counts import (
    UNIT,
    SeriesNoise,
    chosen_words,
    document_matrices,
    noised_matrix,
    topics_of_noised,
    word_threshold,
    word_weights,
)
from streamtopic.service.schedule.modeller import ModelBeforeNoise, Modeller
from streamtopic.service.schedule.payload import Ingredients, PayloadPlan, fitted_payload, frequencies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.counts import CountSource
    from streamtopic.counts.arrays import Int64
    from streamtopic.privacy.keystream import VersionNoise
    from streamtopic.signed import Envelope
    from streamtopic.state import Base, DocumentCounts
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["PrivateModeller", "PrivateRule"]

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


class PrivateModeller(Modeller):
    """Makes models whose noise is drawn before anything is learned. It keeps nothing between versions.

    options: of the learner.
    rule: the settings of this mode.
    stored: reads the base model in Redis.
    """

    guarantee = "private"

    def __init__(self, options: LearnerOptions, rule: PrivateRule, stored: Callable[[], Base | None]) -> None:
        super().__init__(options, stored)
        self.rule = rule
        self.most_versions = rule.versions

    @property
    def scale(self) -> float:
        """The scale of a whole period."""
        return self.rule.scale

    @property
    def rules(self) -> dict[str, Any]:
        """The choices that must not change within a period."""
        return {**self.options.rules, **self.rule.rules}

    def retrain(self, counts: DocumentCounts, capacity: int) -> ModelBeforeNoise:  # noqa: ARG002 -- see Modeller
        """Begin a period."""
        return self._made(counts, None)

    def unlearn(self, counts: DocumentCounts, base: Base) -> ModelBeforeNoise:
        """Make the next version of a period from the documents that remain.

        Raises StateCorrupt if the kept base model is damaged, CannotLearn if it was replaced meanwhile.
        """
        return self._made(counts, base.version)

    def again(self, counts: CountSource, envelope: Envelope, ingredients: Ingredients) -> PayloadPlan:
        """Noise the counts of the log again. Raises CannotLearn, StateCorrupt."""
        # A first version chooses its words again; the others have those of the period.
        base = None if envelope.version == envelope.base else envelope.base
        return self._payload(counts, base, self._words(base), ingredients)

    def _words(self, base: int | None) -> tuple[str, ...] | None:
        """Return the words of a period, ascending, which its base model keeps; None for a period that begins."""
        if base is None:
            return None
        _, kept = self.kept(base)
        try:
            return tuple(json.loads(kept.decode("utf-8", "surrogatepass")))
        except ValueError:
            raise StateCorrupt("the kept words are damaged: run `streamtopic unlearn --retrain`") from None

    def _made(self, counts: DocumentCounts, base: int | None) -> ModelBeforeNoise:
        """Return a model that is still to be made: its noise comes first. base: the first version of its period."""
        return ModelBeforeNoise(
            counts,
            # Chosen or named with the noise, so nobody knows them yet.
            words=(),
            anchors=(),
            tolerance=0.0,
            certificate=math.inf,
            draw=partial(self._payload, counts, base, self._words(base)),
        )

    def _payload(
        self, counts: CountSource, base: int | None, words: tuple[str, ...] | None, ingredients: Ingredients
    ) -> PayloadPlan:
        """Noise the counts once, and derive everything from the noised numbers.

        counts: of the documents that remain.
        base: the first version of the period; None for that version itself.
        words: of the period, ascending; None for its first version, which fixes them.

        Raises CannotLearn, also if noise hides the topics.
        """
        rule, own = self.rule, ingredients.noise
        words = words or _vocabulary(counts, rule, ingredients)
        exact = document_matrices(ingredients.read(words).batch, len(words))
        # Noise is keyed by what it is added to, so a crash or a restored state draws the same bytes again.
        digest = _digest(exact, [repr(self.options), repr(rule), *words], own)
        earlier = [one for one in ingredients.versions() if one.guarantee == "private" and one.version < own.version]
        period = sorted((one.version, one.commitment) for one in earlier if one.base == base)
        period.append((own.version, own.commitment(digest)))
        seeds = [own.key.of(own.model, version).seed(commitment, "series") for version, commitment in period]
        noise = rule.series
        deviation = noise.deviation(len(seeds))
        noised = noised_matrix(exact, noise, seeds)
        # From here on only noised numbers are used: that is post-processing.
        fit, shown_counts, ratio = topics_of_noised(words, noised, deviation, self.options)
        frequency = frequencies(fit.words, shown_counts)
        # Neither a sample nor tasks: they are of exact documents.
        bare = Ingredients(own, ingredients.read)
        payload, _ = fitted_payload(fit, frequency, fit.A.astype(np.float32), bare)
        periods = {one.base: (one.scale, one.slack) for one in earlier if one.base != base}
        spent = Composition.of([*periods.values(), (rule.scale, rule.slack)]).epsilon(rule.delta)
        shown = {
            "epsilon": rule.epsilon,
            "delta": rule.delta,
            "sigma": deviation,
            "scale": rule.scale,
            "slack": rule.slack,
            "ratio": float(f"{ratio:.3g}"),
            # No exact number, the number of documents and of deletions included.
            "m": shown_counts.documents,
            "n": len(fit.words),
            "r": len(fit.topic_names),
            "counted": 0,
            "forgotten": 0,
            "capacity": 0,
            "cumulative_epsilon": spent,
        }
        kept = json.dumps(words).encode("utf-8", "surrogatepass")
        return PayloadPlan(payload, shown, digest, noise.grid, kept=kept)


def _vocabulary(counts: CountSource, rule: PrivateRule, ingredients: Ingredients) -> tuple[str, ...]:
    """Return the words of a period: those of the settings, or the heaviest by noised weights."""
    if rule.words is not None:
        return rule.words
    words = counts.words
    exact, whole = word_weights(ingredients.read(words).batch, len(words))
    values = np.append(exact, whole)
    seed = ingredients.noise.seed(_digest(values, [repr(rule), *words], ingredients.noise), "vocabulary")
    noise = SeriesNoise(1, rule.scale / math.sqrt(_CHOICE))
    noised = noise.add(values / UNIT, np.full(len(values), _LENGTH), [seed])
    least = word_threshold(noise.sigma * _LENGTH, rule.slack)
    found = chosen_words(words, noised[:-1], float(noised[-1]), least, rule.max_df, rule.size)
    return tuple(found)


def _digest(numbers: Int64, texts: Sequence[str], noise: VersionNoise) -> str:
    """Return a hex digest of exact numbers and settings under the key of counts."""
    state = hmac.new(noise.counts_key, b"streamtopic private 1\0", hashlib.sha256)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    state.update(np.ascontiguousarray(numbers, "<i8").tobytes())
    return state.hexdigest()
