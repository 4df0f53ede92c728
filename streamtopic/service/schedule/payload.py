"""Turn a learned model into the payload of a version: noise once, then everything else from the noised numbers.

    Ingredients      what a version is made of besides its model, from Redis or from the log
    make_payload     topics, noised, with heads of downstream tasks on them; or heads alone
    topics_payload   everything that follows from noised topics, in every mode
    published_heads  a head for each task from the published topics

Where topics are published, a head is fitted from zero on the noised A and the labelled documents that are left: the
paper's naive setting. Fitting it is post-processing, so it costs no epsilon and needs no bound. Labels are part of
documents, so a deleted document is not in any head.

If topics are withheld, each task publishes its B = A w alone. With k heads in a version each head gets sqrt(k) times
the noise that it would need alone, so that together they are (epsilon, delta)-indistinguishable from those of a
retraining. The documents that are left decide which tasks have a head, and all numbers that the noise is calibrated to.
Source: streamtopic.privacy.head_noise.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, DocumentBatch
from streamtopic.counts.arrays import Positions
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.head_noise import HeadConstants, head_constants, release_task_weights
from streamtopic.privacy.keystream import VersionNoise
from streamtopic.privacy.noise import CalibratedGuarantee, NoisedMatrix, NoisePlan, release_matrix
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, Head, Payload
from streamtopic.state.document_counts import StoredDocuments
from streamtopic.topics.display import (
    COHERENT,
    WordEvidence,
    correlations_and_words,
    diversity,
    heap,
    named,
    npmi,
)
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.heads import HeadTask, LabelledDocuments, TopicHead, TopicMatrix, fit_head

__all__ = [
    "Ingredients",
    "PayloadPlan",
    "TaskOptions",
    "fitted_payload",
    "frequencies",
    "head_facts",
    "labelled_digest",
    "make_payload",
    "norm_ratio",
    "published_heads",
    "remarks",
    "task_options",
    "topics_payload",
]


_Made = TypeVar("_Made")

TOP_WORDS = 20
"""Number of words published of each topic: the coherent ten, on which quality is measured, and ten more."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The downstream tasks of a service.

    tasks: by name; a document belongs to a task if it has a label of that name.
    withheld: whether heads are published in place of topics.
    """

    tasks: Mapping[str, HeadTask] = field(default_factory=dict)
    withheld: bool = False


def task_options(settings: Settings) -> TaskOptions:
    """Return the downstream tasks of the settings."""
    tasks = {name: HeadTask(**task.model_dump()) for name, task in settings.tasks.items()}
    return TaskOptions(tasks, withheld=settings.publish == "tasks")


Labelled = Mapping[str, LabelledDocuments]
"""Task to its documents, in the order of their ids. A document may belong to several tasks."""


class ReadDocuments(Protocol):
    """Reads the retained documents, as `read_documents` does."""

    def __call__(self, words: Sequence[str], *, labelled: Collection[str] = ()) -> StoredDocuments:
        """Return all documents over these words, or those with a label of one of these tasks."""


def _no_sample() -> None:
    """Return no sample of documents, so that a payload has no NPMI."""


@dataclass(frozen=True, slots=True, eq=False)
class Ingredients:
    """What the payload of a version is made of, besides its model and its counts.

    noise: from which all noise of the version is drawn.
    read: reads the retained documents. It may raise CutGone, StateCorrupt, ComponentUnreachable.
    tasks: that the version has heads for.
    sample: returns the words (positions in those of the model) of sampled documents, for NPMI; None leaves NPMI out. It
        is called once all else of a payload with topics is there.
    versions: returns all versions of the model that were made before.
    """

    noise: VersionNoise
    read: ReadDocuments
    tasks: TaskOptions = field(default_factory=TaskOptions)
    sample: Callable[[], DocumentBatch | None] = _no_sample
    versions: Callable[[], Iterable[Envelope]] = tuple

    def labelled(self, words: Sequence[str]) -> Labelled:
        """Read the documents of each task, as counts of `words`."""
        tasks = self.tasks.tasks
        if not tasks:
            return {}
        stored = self.read(words, labelled=tasks)
        counts = LabelledDocuments.of(stored.batch, words, [""] * len(stored)).counts
        found = {}
        for task in tasks:
            rows = [row for row, of_document in enumerate(stored.labels) if task in of_document]
            classes = tuple(stored.labels[row][task] for row in rows)
            # intp: an empty list would become an array of floats, which cannot index.
            own = counts[np.array(rows, np.intp)]
            found[task] = LabelledDocuments(tuple(words), own, classes)
        return found


def labelled_digest(counted: str, tasks: TaskOptions, labelled: Labelled) -> str:
    """Return a hex digest of all data that a release of heads is a function of.

    counted: the digest of the retained counts and settings.
    """
    # Counts do not say which document has which label, and two different heads must not get the same noise: their
    # difference would be free of it.
    state = hashlib.sha256(b"streamtopic heads 1\0" + counted.encode())
    for task in sorted(tasks.tasks):
        documents = labelled[task]
        counts = documents.counts
        # Each text by its own digest: texts one after the other could be divided in another way.
        for text in (task, repr(tasks.tasks[task]), *documents.labels):
            state.update(hashlib.sha256(text.encode()).digest())
        for array in (counts.indptr, counts.indices, counts.data):
            # One width and byte order: scipy chooses int32 or int64 by size, and machines differ.
            state.update(np.asarray(array).astype("<i8").tobytes() + b"\0")
    return state.hexdigest()


def _each(
    tasks: TaskOptions, labelled: Labelled, make: Callable[[HeadTask, LabelledDocuments], _Made]
) -> tuple[dict[str, _Made], dict[str, str]]:
    """Return by task what is made of its documents, and for each task that cannot have a head the reason."""
    made, unfitted = {}, {}
    for name, task in tasks.tasks.items():
        try:
            made[name] = make(task, labelled[name])
        except CannotLearn as error:
            unfitted[name] = str(error)
    return made, unfitted


def published_heads(
    A: npt.NDArray[np.float32], words: tuple[str, ...], names: tuple[str, ...], ingredients: Ingredients
) -> tuple[dict[str, Head], dict[str, str]]:
    """Fit a head for each task on the published A.

    A: (n, r), the topics with their noise.
    words: (n,), the rows of A.
    names: (r,), the name of each topic.

    Return the heads by task, and for each task without a head the reason.
    """
    if not ingredients.tasks.tasks:
        return {}, {}
    # Each starts from zero, so it is a function of A and the labelled documents alone, whatever was learned before.
    model = TopicMatrix(A.astype(np.float64), words, names)

    def made(task: HeadTask, documents: LabelledDocuments) -> Head:
        fitted = fit_head(model, documents, task)
        return Head(fitted.topics, fitted.classes, len(documents), fitted.w)

    return _each(ingredients.tasks, ingredients.labelled(words), made)


def norm_ratio(sigma: float, matrix: npt.NDArray[Any]) -> float:
    """Return the expected norm of noise of this sigma over the norm of the released matrix, in three digits."""
    noise = sigma * math.sqrt(matrix.size)
    norm = float(np.linalg.norm(matrix))
    return _three_digits(noise / norm)


def _head_ratio(noised: NoisedMatrix) -> float:
    """Return the norm of a head's noise over the norm of its B, in three digits, from released numbers alone."""
    size = noised.matrix.size
    noise = noised.plan.sigma**2 * size
    # ||B~||^2 less the expected share of the noise. Below three standard deviations of that share it could be chance,
    # so B is taken to be no larger than those.
    signal = float(np.square(noised.matrix).sum()) - noise
    least = 3 * math.sqrt(2 / size) * noise
    return _three_digits(math.sqrt(noise / max(signal, least)))


def _three_digits(ratio: float) -> float:
    """Return a ratio in three digits."""
    # Two paths to one model may leave a released number on two neighbouring points of the grid. The digits of a norm
    # would repeat that in the envelope, besides the numbers that the noise is for.
    return float(f"{ratio:.3g}")


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with its noise.

    payload: the published numbers and words.
    shown: facts of the envelope that the noise decides: epsilon, delta, sigma, scale, slack and ratio of all parts
        together, and others in place of those that follow from the model and its counts.
    digest: of the retained counts and settings, for which the noise was drawn.
    grid: every noised number is a multiple of it; the largest of its parts.
    covariance_grid: as `grid`, of R; None if R has no noise of its own, since it is made from the noised A.
    facts: further fields of the release record, for the operator alone.
    kept: what the mode keeps of a new base model.
    """

    payload: Payload
    shown: Mapping[str, Any]
    digest: str
    grid: float
    covariance_grid: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept: bytes = b""


def make_payload(
    fit: TopicFit, source: CountSource, guarded: CalibratedGuarantee, ingredients: Ingredients
) -> PayloadPlan:
    """Return the payload of a version: a function of the retained documents, the settings and the noise key.

    source: the counts that `fit` was made from.
    guarded: the guarantee that noise is calibrated to.

    Raises CannotLearn if topics are withheld and no task has a head, and as `Ingredients.read`.
    """
    frequency = frequencies(fit.words, source)
    # The noise is keyed by the digest of the numbers that it is added to. So a crash, a retry or a restored state draws
    # the same bytes again, and nobody can average over several draws.
    settings = [repr(fit.options), repr(guarded)]
    if fit.options.guided:
        settings.append(repr(fit.options.guided))
    digest = fingerprint(fit, frequency.tolist(), settings, ingredients.noise.counts_key)
    if ingredients.tasks.withheld:
        return _heads_alone(fit, guarded, digest, ingredients)
    noised = release_matrix(fit.A, guarded, ingredients.noise.seed(digest))
    # From here on only the published numbers and the retained documents are used: that is post-processing.
    payload, unfitted = fitted_payload(fit, frequency, noised.matrix.astype(np.float32), ingredients)
    # The norm is taken after noise: before noise it is secret.
    shown = _shown([noised.plan], norm_ratio(noised.plan.sigma, noised.matrix))
    facts = head_facts(payload.heads, unfitted, ingredients.tasks)
    return PayloadPlan(payload, shown, digest, noised.plan.grid, facts=facts)


def fitted_payload(
    fit: TopicFit, frequency: npt.NDArray[np.int64], A: npt.NDArray[np.float32], ingredients: Ingredients
) -> tuple[Payload, dict[str, str]]:
    """Return the payload of noised topics whose R and shares follow from them and the counts; see `topics_payload`.

    frequency: (n,) number of documents that hold each of `fit.words`.
    A: (n, r), with its noise.
    """
    evidence = WordEvidence.of(fit, frequency)
    related, order = correlations_and_words(fit, A.astype(np.float64), evidence, TOP_WORDS)
    names, guided = fit.topic_names, _seeds_left(fit)
    return topics_payload(fit.words, names, A, related.R, related.shares, order, ingredients, guided)


def topics_payload(
    words: tuple[str, ...],
    names: tuple[str, ...],
    A: npt.NDArray[np.float32],
    R: npt.NDArray[np.float64],
    shares: npt.NDArray[np.float64],
    order: Positions,
    ingredients: Ingredients,
    guided: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[Payload, dict[str, str]]:
    """Return the payload of published topics with the heads on them, and for each task without a head the reason.

    words: (n,), the rows of A.
    names: (r,), the name of each topic.
    A: (n, r), with its noise.
    R, shares: (r, r) and (r,), of published numbers.
    order: (r, TOP_WORDS) positions in `words`, of the words that are shown.
    guided: the seeds that are left of guided topics.

    Quality is measured on the first ten words of each topic: diversity, and NPMI if there is a sample.
    """
    heads, unfitted = published_heads(A, words, names, ingredients)
    first = order[:, :COHERENT]
    quality = {"diversity": diversity(first)}
    documents = ingredients.sample()
    if documents is not None and documents.documents:
        quality["npmi"] = npmi(first, documents)
    best, R32 = named(order, words), R.astype(np.float32)
    return Payload(words, A, R32, shares, best, quality, heads, names, dict(guided)), unfitted


def _shown(plans: Sequence[NoisePlan], ratio: float) -> dict[str, float]:
    """Return the facts of noise on parts that were noised jointly, each for the epsilon and delta of all together.

    ratio: norm of the noise over norm of the model, in three digits. From 1 on the noise hides the model.
    """
    first, sigma = plans[0], max(plan.sigma for plan in plans)
    scale = first.scale if len(plans) == 1 else 1 / Composition.of((plan.scale, 0.0) for plan in plans).mu
    noise = {"epsilon": first.epsilon, "delta": first.delta, "sigma": sigma, "scale": scale}
    # Sums are rounded exactly, so that floating point takes no part of delta.
    return noise | {"slack": 0.0, "ratio": ratio}


def remarks(plan: PayloadPlan) -> list[str]:
    """Return warnings for the operator about a version."""
    warnings = [f"task {task!r} has no head: {reason}" for task, reason in plan.facts.get("unfitted", {}).items()]
    if plan.payload.shares is not None:
        warnings += filter(None, [heap(plan.payload.shares, plan.payload.anchors)])
    ratio = plan.shown["ratio"]
    if ratio >= 1:
        remedy = ""
        if "covered" in plan.shown:
            remedy = "; set `guarantee` to certified"
        elif plan.payload.A is None:
            remedy = "; lower `tolerance`, down to 1e-9, or raise `ridge` of the tasks"
        warnings.append(f"the noise outweighs the model, with {ratio:.3g} times its norm{remedy}")
    return warnings


def head_facts(heads: Mapping[str, Head], unfitted: Mapping[str, str], tasks: TaskOptions) -> dict[str, Any]:
    """Return the fields of heads in the release record, {} for a service without tasks.

    unfitted: for each task without a head, the reason.
    """
    if not tasks.tasks:
        return {}
    about = {}
    for name, head in heads.items():
        topics, classes = list(head.topics), list(head.classes)
        about[name] = {"topics": topics, "classes": classes, "documents": head.documents}
    return {"heads": about, "unfitted": dict(unfitted)}


def _heads_alone(fit: TopicFit, guarded: CalibratedGuarantee, counted: str, ingredients: Ingredients) -> PayloadPlan:
    """Return the payload of a version of heads in place of topics. counted: as in `labelled_digest`.

    Raises CannotLearn if no task has a head.
    """
    tasks, labelled = ingredients.tasks, ingredients.labelled(fit.words)
    digest = labelled_digest(counted, tasks, labelled)
    topics = TopicMatrix(fit.A, fit.words, fit.topic_names)

    def measured(task: HeadTask, documents: LabelledDocuments) -> tuple[HeadConstants, TopicHead]:
        constants = head_constants(topics, documents, task, guarded.tolerance)
        return constants, fit_head(topics, documents, task)

    fitted, unfitted = _each(tasks, labelled, measured)
    if not fitted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unfitted.items())
        raise CannotLearn("tasks", f"topics are withheld and no task has a head ({reasons})")
    heads, about, plans = {}, {}, []
    # Only now: the noise of each head grows with the number of heads.
    for name, (constants, head) in fitted.items():
        noised = release_task_weights(
            head.task_weights(topics),
            constants,
            tasks.tasks[name],
            guarded,
            ingredients.noise.seed(digest, f"head {name}"),
            together=len(fitted),
        )
        plan = noised.plan
        B = noised.matrix.astype(np.float32)
        heads[name] = Head(head.topics, head.classes, len(labelled[name]), None, B)
        about[name] = {"sigma": plan.sigma, "sensitivity": plan.sensitivity, "grid": plan.grid}
        about[name]["ratio"] = _head_ratio(noised)
        plans.append(plan)
    facts = head_facts(heads, unfitted, tasks)
    for name, more in about.items():
        facts["heads"][name].update(more)
    payload = Payload(fit.words, heads=heads, anchors=fit.topic_names, guided=_seeds_left(fit))
    shown = _shown(plans, max(one["ratio"] for one in about.values()))
    return PayloadPlan(payload, shown, digest, max(plan.grid for plan in plans), facts=facts)


def _seeds_left(fit: TopicFit) -> dict[str, tuple[str, ...]]:
    """Return the seeds that are left of each guided topic, () for a topic that has ended."""
    left = {topic.name: topic.seeds for topic in fit.guided}
    return {topic.name: left.get(topic.name, ()) for topic in fit.options.guided}


def frequencies(words: Sequence[str], source: CountSource) -> npt.NDArray[np.int64]:
    """Return, for each of these words, the number of documents of a source that hold it, (n,)."""
    place = {word: k for k, word in enumerate(source.words)}
    found = [source.frequency[place[word]] for word in words]
    return np.array(found, np.int64)
