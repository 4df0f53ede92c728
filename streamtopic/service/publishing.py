"""From a learned model to the bytes of a version: noise once, then everything else from what was noised."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, WordSets
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import NoisePlan, release_matrix
from streamtopic.release import Payload
from streamtopic.topics.display import diversity, npmi, top_words
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.released import topic_correlations

__all__ = ["Guarded", "PayloadPlan", "make_payload"]

TOP_WORDS = 20
_QUALITY_WORDS = 10


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the noise of a version is calibrated to."""

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with the noise it carries and the digest that its noise was drawn for."""

    payload: Payload
    noise: NoisePlan
    digest: str


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
    return PayloadPlan(payload, noised.plan, digest)


def _frequencies(fit: TopicFit, source: CountSource) -> npt.NDArray[np.int64]:
    place = {word: k for k, word in enumerate(source.words)}
    return np.array([source.frequency[place[word]] for word in fit.words], np.int64)


def _quality(order: npt.NDArray[np.intp], sample: WordSets | None) -> dict[str, float]:
    quality = {"diversity": diversity(order)}
    if sample is not None and len(sample):
        quality["npmi"] = npmi(order, sample)
    return quality
