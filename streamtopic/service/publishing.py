"""From a learned model to the bytes of a version: noise once, then everything else from what was noised."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, WordSets
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import NoisedMatrix, release_matrix
from streamtopic.release import Payload
from streamtopic.topics.display import diversity, npmi, top_words
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.released import topic_correlations

__all__ = ["Guarded", "PayloadPlan", "ReleaseNoise", "make_payload"]

TOP_WORDS = 20
_QUALITY_WORDS = 10


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the noise of a version is calibrated to."""

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class ReleaseNoise:
    """The noise of a whole version, whatever it is made of.

    epsilon, delta: of all its parts together; sigma: of its numbers, the largest where parts differ; scale, slack: what
    composes with other versions; grid: every noised number is a multiple of it, the largest where parts differ; ratio:
    norm of the noise over norm of the model, 1 and more where there is nothing but noise to see.
    """

    epsilon: float
    delta: float
    sigma: float
    scale: float
    slack: float
    grid: float
    ratio: float

    @classmethod
    def of(cls, noised: NoisedMatrix) -> "ReleaseNoise":
        """Describe a version of one noised matrix; its norm is taken after noise, so that nothing else is shown."""
        plan, size = noised.plan, float(np.linalg.norm(noised.matrix))
        ratio = plan.sigma * math.sqrt(noised.matrix.size) / size
        return cls(plan.epsilon, plan.delta, plan.sigma, plan.scale, plan.slack, plan.grid, ratio)


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with the noise it carries and the digest that its noise was drawn for.

    unfitted: tasks without a head in it, and why. covered: whether every condition of the paper's proof held, None
    where the guarantee rests on none. facts: what else the release record keeps, for the operator alone.
    """

    payload: Payload
    noise: ReleaseNoise
    digest: str
    unfitted: Mapping[str, str] = field(default_factory=dict)
    covered: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def make_payload(
    fit: TopicFit,
    source: CountSource,
    sample: WordSets | None,
    guarded: Guarded,
    key: NoiseKey,
    model: str,
    version: int,
) -> PayloadPlan:
    """Return the payload of a version: a function of the retained documents, the settings and the noise key.

    source: the counts that `fit` was made from; sample: words (positions in `fit.words`) of sampled documents, for
    NPMI, or None to leave it out. A crash, a retry or a restored state draws the same bytes again, because the noise is
    keyed by the digest of the retained counts.
    """
    frequency = _frequencies(fit, source)
    settings = [repr(fit.options), repr(guarded)]
    digest = fingerprint(fit, frequency.tolist(), settings)
    seed = key.seed(model, version, digest)
    noised = release_matrix(fit.A, tolerance=guarded.tolerance, epsilon=guarded.epsilon, delta=guarded.delta, seed=seed)
    # From here on only the published numbers and the retained counts are used.
    A = noised.matrix.astype(np.float32)
    related = topic_correlations(fit, A.astype(np.float64))
    order = top_words(A.astype(np.float64), frequency, fit.documents, TOP_WORDS)
    payload = Payload(
        words=fit.words,
        A=A,
        R=related.R.astype(np.float32),
        shares=related.shares,
        top_words=tuple(tuple(fit.words[k] for k in topic) for topic in order),
        quality=_quality(order[:, :_QUALITY_WORDS], sample),
    )
    return PayloadPlan(payload, ReleaseNoise.of(noised), digest)


def _frequencies(fit: TopicFit, source: CountSource) -> npt.NDArray[np.int64]:
    place = {word: k for k, word in enumerate(source.words)}
    return np.array([source.frequency[place[word]] for word in fit.words], np.int64)


def _quality(order: npt.NDArray[np.intp], sample: WordSets | None) -> dict[str, float]:
    quality = {"diversity": diversity(order)}
    if sample is not None and len(sample):
        quality["npmi"] = npmi(order, sample)
    return quality
