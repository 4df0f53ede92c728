"""From a learned model to the bytes of a version: noise once, then everything else from what was noised."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, WordSets
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import NoisedMatrix, release_matrix
from streamtopic.release import Head, Payload
from streamtopic.service.tasks import TaskData, labelled_digest, published_heads
from streamtopic.service.withheld import withheld_heads
from streamtopic.topics.display import diversity, npmi, top_words
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import TopicHead
from streamtopic.topics.released import topic_correlations

__all__ = [
    "Guarded",
    "PayloadPlan",
    "ReleaseNoise",
    "displayed",
    "frequencies",
    "head_facts",
    "head_ratio",
    "make_payload",
    "remarks",
]

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

    @classmethod
    def of_heads(cls, noised: Collection[NoisedMatrix]) -> "ReleaseNoise":
        """Describe a version of several heads that were noised jointly; its ratio is the largest of a head."""
        plans = [one.plan for one in noised]
        together = Composition.of((plan.scale, plan.slack) for plan in plans)
        return cls(
            epsilon=plans[0].epsilon,
            delta=plans[0].delta,
            sigma=max(plan.sigma for plan in plans),
            scale=1 / together.mu,
            slack=together.slack,
            grid=max(plan.grid for plan in plans),
            ratio=max(head_ratio(one) for one in noised),
        )


def head_ratio(noised: NoisedMatrix) -> float:
    """Return the norm of a head's noise over that of its B, estimated from what is released.

    ||B~||^2 less the noise's expected share; below three standard deviations of that share B is taken to be no larger.
    """
    size = noised.matrix.size
    noise = noised.plan.sigma**2 * size
    signal = float(np.square(noised.matrix).sum()) - noise
    return math.sqrt(noise / max(signal, 3 * math.sqrt(2 / size) * noise))


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with the noise it carries and the digest that its noise was drawn for.

    unfitted: tasks without a head in it, and why. fitted: heads before noise where topics are withheld, secret.
    covered: whether every condition of the paper's proof held, None where the guarantee rests on none. facts: what else
    the release record keeps, for the operator alone.
    """

    payload: Payload
    noise: ReleaseNoise
    digest: str
    unfitted: Mapping[str, str] = field(default_factory=dict)
    fitted: Mapping[str, TopicHead] = field(default_factory=dict)
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
    data: TaskData | None = None,
) -> PayloadPlan:
    """Return the payload of a version: a function of the retained documents, the settings and the noise key.

    source: the counts that `fit` was made from; sample: words (positions in `fit.words`) of sampled documents, for
    NPMI, or None to leave it out; data: of downstream tasks. A crash, a retry or a restored state draws the same bytes
    again, because the noise is keyed by the digest of what is noised. Raises CannotLearn where topics are withheld and
    no task has a head.
    """
    data = data or TaskData()
    frequency = frequencies(fit.words, source)
    digest = fingerprint(fit, frequency.tolist(), [repr(fit.options), repr(guarded)])
    if data.options.withheld:
        return _heads_alone(fit, source, guarded, key, model, version, labelled_digest(digest, data), data)
    seed = key.seed(model, version, digest)
    noised = release_matrix(fit.A, tolerance=guarded.tolerance, epsilon=guarded.epsilon, delta=guarded.delta, seed=seed)
    # From here on only the published numbers and the retained documents are used.
    A = noised.matrix.astype(np.float32)
    related = topic_correlations(fit, A.astype(np.float64))
    heads, unfitted = published_heads(A, fit.words, fit.anchors, data)
    best, quality = displayed(A, fit.words, frequency, fit.documents, sample)
    payload = Payload(
        words=fit.words,
        A=A,
        R=related.R.astype(np.float32),
        shares=related.shares,
        top_words=best,
        quality=quality,
        heads=heads,
    )
    return PayloadPlan(payload, ReleaseNoise.of(noised), digest, unfitted, facts=head_facts(heads, data))


def remarks(plan: PayloadPlan) -> list[str]:
    """Return what an operator should hear about a version."""
    said = [f"task {task!r} has no head: {reason}" for task, reason in plan.unfitted.items()]
    if plan.noise.ratio >= 1:
        remedy = "; lower `tolerance`, down to 1e-9, or raise `ridge` of the tasks" if plan.payload.A is None else ""
        remedy = remedy if plan.covered is None else "; set `guarantee` to certified"
        said.append(f"the noise outweighs the model, with {plan.noise.ratio:.3g} times its norm{remedy}")
    return said


def head_facts(heads: Mapping[str, Head], data: TaskData) -> dict[str, Any]:
    """Return what the release record keeps of heads; nothing where there are no tasks."""
    if not data.options.tasks:
        return {}
    about = {
        name: {"topics": list(head.topics), "classes": list(head.classes), "documents": head.documents}
        for name, head in heads.items()
    }
    return {"heads": about, "labelled_whole": data.labelled.whole}


def _heads_alone(
    fit: TopicFit,
    source: CountSource,
    guarded: Guarded,
    key: NoiseKey,
    model: str,
    version: int,
    digest: str,
    data: TaskData,
) -> PayloadPlan:
    found = withheld_heads(
        fit,
        source,
        data,
        base_error=guarded.tolerance,
        epsilon=guarded.epsilon,
        delta=guarded.delta,
        seed_for=lambda task: key.seed(model, version, digest, f"head {task}"),
    )
    facts = head_facts(found.heads, data)
    for task, noised in found.noised.items():
        plan = noised.plan
        facts["heads"][task] |= {"sigma": plan.sigma, "sensitivity": plan.sensitivity, "grid": plan.grid}
        facts["heads"][task]["ratio"] = head_ratio(noised)
    noise = ReleaseNoise.of_heads(found.noised.values())
    return PayloadPlan(Payload(fit.words, heads=found.heads), noise, digest, found.unfitted, found.fitted, facts=facts)


def frequencies(words: Sequence[str], source: CountSource) -> npt.NDArray[np.int64]:
    """Return in how many documents of a source each of these words is, (n,)."""
    place = {word: k for k, word in enumerate(source.words)}
    return np.array([source.frequency[place[word]] for word in words], np.int64)


def displayed(
    A: npt.NDArray[np.float32],
    words: Sequence[str],
    frequency: npt.NDArray[np.int64],
    documents: int,
    sample: WordSets | None,
) -> tuple[tuple[tuple[str, ...], ...], dict[str, float]]:
    """Return the top words of each topic of a published A (n, r), in display order, and their quality."""
    order = top_words(A.astype(np.float64), frequency, documents, TOP_WORDS)
    quality = {"diversity": diversity(order[:, :_QUALITY_WORDS])}
    if sample is not None and len(sample):
        quality["npmi"] = npmi(order[:, :_QUALITY_WORDS], sample)
    return tuple(tuple(words[k] for k in topic) for topic in order), quality
