"""Turn a learned model into the payload of a version: noise once, then everything else from the noised numbers.

    make_payload     topics, noised, with heads of downstream tasks on them; or heads alone
    read_labelled    the labelled documents that heads are fitted on
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, DocumentBatch
from streamtopic.counts.arrays import Positions
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.head_noise import HeadConstants, head_constants, release_task_weights
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import NoisedMatrix, NoisePlan, release_matrix
from streamtopic.settings import Settings
from streamtopic.signed import Head, Payload
from streamtopic.state import DocumentCounts
from streamtopic.state.document_counts import read_documents
from streamtopic.topics.display import COHERENT, WordEvidence, correlations_and_words, diversity, heap, named, npmi
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.heads import HeadTask, LabelledDocuments, TopicHead, TopicMatrix, fit_head
from streamtopic.topics.learner import learn

__all__ = [
    "Guarded",
    "PayloadPlan",
    "Sample",
    "TaskData",
    "TaskOptions",
    "frequencies",
    "head_facts",
    "head_of",
    "head_ratio",
    "labelled_by_task",
    "labelled_digest",
    "make_payload",
    "no_sample",
    "norm_ratio",
    "published_heads",
    "read_labelled",
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


@dataclass(frozen=True, slots=True, eq=False)
class TaskData:
    """The data that the heads of a version are made of, besides its model.

    options: the tasks.
    labelled: task to its documents, in the order of their ids; a document may belong to several tasks.
    cold: whether the model was learned from counts alone, so that it has the same bits on every path.
    """

    options: TaskOptions = field(default_factory=TaskOptions)
    labelled: Mapping[str, LabelledDocuments] = field(default_factory=dict)
    cold: bool = True


def task_options(settings: Settings) -> TaskOptions:
    """Return the downstream tasks of the settings."""
    tasks = {name: HeadTask(**task.model_dump()) for name, task in settings.tasks.items()}
    return TaskOptions(tasks, withheld=settings.publish == "tasks")


def read_labelled(counts: DocumentCounts, words: Sequence[str], options: TaskOptions) -> dict[str, LabelledDocuments]:
    """Read the documents of each task from those that are counted, as counts of `words`.

    Raises CutGone, StateCorrupt, ComponentUnreachable.
    """
    if not options.tasks:
        return {}
    stored = read_documents(counts, words, labelled=options.tasks)
    return labelled_by_task(stored.batch, stored.labels, words, options)


def labelled_by_task(
    batch: DocumentBatch, labels: Sequence[Mapping[str, str]], words: Sequence[str], options: TaskOptions
) -> dict[str, LabelledDocuments]:
    """Return the documents of each task.

    batch: over `words`, in the order of document ids.
    labels: task to class, for each document of the batch.
    """
    counts = LabelledDocuments.of(batch, words, [""] * batch.documents).counts
    found = {}
    for task in options.tasks:
        rows = [row for row, of_document in enumerate(labels) if task in of_document]
        classes = tuple(labels[row][task] for row in rows)
        # intp: an empty list would become an array of floats, which cannot index.
        own = counts[np.array(rows, np.intp)]
        found[task] = LabelledDocuments(tuple(words), own, classes)
    return found


def labelled_digest(counted: str, data: TaskData) -> str:
    """Return a hex digest of all data that a release of heads is a function of.

    counted: the digest of the retained counts and settings.
    """
    # Counts do not say which document has which label, and two different heads must not get the same noise: their
    # difference would be free of it.
    state = hashlib.sha256(b"streamtopic heads 1\0" + counted.encode())
    for task in sorted(data.options.tasks):
        documents = data.labelled[task]
        counts = documents.counts
        # Each text by its own digest: texts one after the other could be divided in another way.
        for text in (task, repr(data.options.tasks[task]), *documents.labels):
            state.update(hashlib.sha256(text.encode()).digest())
        for array in (counts.indptr, counts.indices, counts.data):
            # One width and byte order: scipy chooses int32 or int64 by size, and machines differ.
            state.update(np.asarray(array).astype("<i8").tobytes() + b"\0")
    return state.hexdigest()


def _each(
    data: TaskData, make: Callable[[HeadTask, LabelledDocuments], _Made]
) -> tuple[dict[str, _Made], dict[str, str]]:
    """Return by task what is made of its documents, and for each task that cannot have a head the reason."""
    made, unfitted = {}, {}
    for name, task in data.options.tasks.items():
        try:
            made[name] = make(task, data.labelled[name])
        except CannotLearn as error:
            unfitted[name] = str(error)
    return made, unfitted


def published_heads(
    A: npt.NDArray[np.float32], words: tuple[str, ...], names: tuple[str, ...], data: TaskData
) -> tuple[dict[str, Head], dict[str, str]]:
    """Fit a head for each task on the published A.

    A: (n, r), the topics with their noise.
    words: (n,), the rows of A.
    names: (r,), the name of each topic.

    Return the heads by task, and for each task without a head the reason.
    """
    if not data.options.tasks:
        return {}, {}
    # Each starts from zero, so it is a function of A and the labelled documents alone, whatever was learned before.
    model = TopicMatrix(A.astype(np.float64), words, names)
    return _each(data, lambda task, documents: head_of(fit_head(model, documents, task), documents))


def head_of(fitted: TopicHead, data: LabelledDocuments, B: npt.NDArray[np.float64] | None = None) -> Head:
    """Return a head as a release carries it: with its w, or with a noised B (n, classes) in place of w."""
    documents = len(data)
    if B is None:
        return Head(fitted.topics, fitted.classes, documents, fitted.w)
    return Head(fitted.topics, fitted.classes, documents, None, B.astype(np.float32))


@dataclass(frozen=True, slots=True)
class Guarded:
    """The guarantee that the noise of a version is calibrated to.

    epsilon, delta: a version and a retraining on the same documents are (epsilon, delta)-indistinguishable.
    tolerance: the greatest distance between both before noise.
    """

    epsilon: float
    delta: float
    tolerance: float


def norm_ratio(sigma: float, matrix: npt.NDArray[Any]) -> float:
    """Return the expected norm of noise of this sigma over the norm of the released matrix, in three digits."""
    noise = sigma * math.sqrt(matrix.size)
    norm = float(np.linalg.norm(matrix))
    return _three_digits(noise / norm)


def head_ratio(noised: NoisedMatrix) -> float:
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


Sample = Callable[[], DocumentBatch | None]


def no_sample() -> None:
    """Return no sample of documents, so that a payload has no NPMI."""


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with its noise.

    payload: the published numbers and words.
    shown: facts of the envelope that the noise decides: epsilon, delta, sigma, scale, slack and ratio of all parts
        together, and others in place of those that follow from the model and its counts.
    digest: of the retained counts and settings, for which the noise was drawn.
    grid: every noised number is a multiple of it; the largest of its parts.
    covariance_grid: as `grid`, of R; None if R has no noise of its own, since it is made from the noised A.
    unfitted: for each task without a head, the reason.
    facts: further fields of the release record, for the operator alone.
    kept: what the mode keeps of a new base model.
    """

    payload: Payload
    shown: Mapping[str, Any]
    digest: str
    grid: float
    covariance_grid: float | None = None
    unfitted: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept: bytes = b""


def make_payload(
    fit: TopicFit,
    source: CountSource,
    guarded: Guarded,
    sample: Sample,
    key: NoiseKey,
    model: str,
    version: int,
    data: TaskData | None = None,
) -> PayloadPlan:
    """Return the payload of a version: a function of the retained documents, the settings and the noise key.

    source: the counts that `fit` was made from.
    guarded: the guarantee that noise is calibrated to.
    sample: returns the words (positions in `fit.words`) of sampled documents, for NPMI; None leaves NPMI out. It is
        called once all else of a payload with topics is there.
    key: the secret that noise is drawn from.
    model: name of the model.
    version: number of the version.
    data: of downstream tasks.

    Raises CannotLearn if topics are withheld and no task has a head.
    """
    data = data or TaskData()
    frequency = frequencies(fit.words, source)
    # The noise is keyed by the digest of the numbers that it is added to. So a crash, a retry or a restored state draws
    # the same bytes again, and nobody can average over several draws.
    settings = [repr(fit.options), repr(guarded)]
    if fit.options.guided:
        settings.append(repr(fit.options.guided))
    digest = fingerprint(fit, frequency.tolist(), settings, key.counts_key)
    if data.options.withheld:
        digest = labelled_digest(digest, data)
        return _heads_alone(fit, source, guarded, key, model, version, digest, data)
    seed = key.seed(model, version, digest)
    noised = release_matrix(
        fit.A,
        tolerance=guarded.tolerance,
        epsilon=guarded.epsilon,
        delta=guarded.delta,
        seed=seed,
    )
    # From here on only the published numbers and the retained documents are used: that is post-processing.
    A = noised.matrix.astype(np.float32)
    evidence = WordEvidence.of(fit, frequency)
    related, order = correlations_and_words(fit, A.astype(np.float64), evidence, TOP_WORDS)
    names, seeds = fit.topic_names, seeds_left(fit)
    payload, unfitted = topics_payload(fit.words, names, A, related.R, related.shares, order, sample, data, seeds)
    # The norm is taken after noise: before noise it is secret.
    shown = _shown([noised.plan], norm_ratio(noised.plan.sigma, noised.matrix))
    facts = head_facts(payload.heads, data)
    return PayloadPlan(payload, shown, digest, noised.plan.grid, unfitted=unfitted, facts=facts)


def topics_payload(
    words: tuple[str, ...],
    names: tuple[str, ...],
    A: npt.NDArray[np.float32],
    R: npt.NDArray[np.float64],
    shares: npt.NDArray[np.float64],
    order: Positions,
    sample: Sample,
    data: TaskData,
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
    heads, unfitted = published_heads(A, words, names, data)
    first = order[:, :COHERENT]
    quality = {"diversity": diversity(first)}
    documents = sample()
    if documents is not None and documents.documents:
        quality["npmi"] = npmi(first, documents)
    best, R32 = named(order, words), R.astype(np.float32)
    return Payload(words, A, R32, shares, best, quality, heads, names, dict(guided)), unfitted


def _shown(plans: Sequence[NoisePlan], ratio: float) -> dict[str, float]:
    """Return the facts of noise on parts that were noised jointly, each for the epsilon and delta of all together.

    ratio: norm of the noise over norm of the model, in three digits. From 1 on the noise hides the model.
    """
    together = Composition.of((plan.scale, plan.slack) for plan in plans)
    first, sigma = plans[0], max(plan.sigma for plan in plans)
    scale = first.scale if len(plans) == 1 else 1 / together.mu
    noise = {"epsilon": first.epsilon, "delta": first.delta, "sigma": sigma, "scale": scale}
    return noise | {"slack": together.slack, "ratio": ratio}


def remarks(plan: PayloadPlan) -> list[str]:
    """Return warnings for the operator about a version."""
    warnings = [f"task {task!r} has no head: {reason}" for task, reason in plan.unfitted.items()]
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


def head_facts(heads: Mapping[str, Head], data: TaskData) -> dict[str, Any]:
    """Return the fields of heads in the release record, {} for a service without tasks."""
    if not data.options.tasks:
        return {}
    about = {}
    for name, head in heads.items():
        topics, classes = list(head.topics), list(head.classes)
        about[name] = {"topics": topics, "classes": classes, "documents": head.documents}
    return {"heads": about}


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
    """Return the payload of a version of heads in place of topics. digest: as in `labelled_digest`.

    Raises CannotLearn if no task has a head.
    """
    topics = TopicMatrix(fit.A, fit.words, fit.topic_names)

    # At most one model is learned from counts, whatever the number of tasks that ask for it.
    @cache
    def from_counts() -> TopicMatrix:
        cold = learn(source, fit.options)
        return TopicMatrix(cold.A, cold.words, cold.topic_names)

    def measured(task: HeadTask, documents: LabelledDocuments) -> tuple[HeadConstants, TopicHead]:
        constants = head_constants(topics, documents, task, guarded.tolerance, cold=data.cold)
        # A model carried over differs in its last digits from one learned cold. If these would decide a constant, noise
        # would tell the two apart, so the constant is measured on the cold one.
        if not constants.settled:
            constants = head_constants(from_counts(), documents, task, guarded.tolerance, cold=True)
        # Rounding may keep the head from its tolerance.
        constants.check_reach(task)
        return constants, fit_head(topics, documents, task)

    fitted, unfitted = _each(data, measured)
    if not fitted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unfitted.items())
        raise CannotLearn("tasks", f"topics are withheld and no task has a head ({reasons})")
    heads, about, plans = {}, {}, []
    # Only now: the noise of each head grows with the number of heads.
    for name, (constants, head) in fitted.items():
        noised = release_task_weights(
            head.task_weights(topics),
            constants,
            data.options.tasks[name],
            epsilon=guarded.epsilon,
            delta=guarded.delta,
            seed=key.seed(model, version, digest, f"head {name}"),
            together=len(fitted),
        )
        plan = noised.plan
        heads[name] = head_of(head, data.labelled[name], noised.matrix)
        about[name] = {"sigma": plan.sigma, "sensitivity": plan.sensitivity, "grid": plan.grid}
        about[name]["ratio"] = head_ratio(noised)
        plans.append(plan)
    facts = head_facts(heads, data)
    for name, more in about.items():
        facts["heads"][name].update(more)
    payload = Payload(fit.words, heads=heads, anchors=fit.topic_names, guided=seeds_left(fit))
    shown = _shown(plans, max(one["ratio"] for one in about.values()))
    return PayloadPlan(payload, shown, digest, max(plan.grid for plan in plans), unfitted=unfitted, facts=facts)


def seeds_left(fit: TopicFit) -> dict[str, tuple[str, ...]]:
    """Return the seeds that are left of each guided topic, () for a topic that has ended."""
    left = {topic.name: topic.seeds for topic in fit.guided}
    return {topic.name: left.get(topic.name, ()) for topic in fit.options.guided}


def frequencies(words: Sequence[str], source: CountSource) -> npt.NDArray[np.int64]:
    """Return, for each of these words, the number of documents of a source that hold it, (n,)."""
    place = {word: k for k, word in enumerate(source.words)}
    found = [source.frequency[place[word]] for word in words]
    return np.array(found, np.int64)
