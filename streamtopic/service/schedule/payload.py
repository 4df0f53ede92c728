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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, DocumentBatch, WordSets
from streamtopic.counts.arrays import Positions
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.head_noise import HeadConstants, head_constants, release_task_weights
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import NoisedMatrix, release_matrix
from streamtopic.settings import Settings
from streamtopic.signed import Head, Payload
from streamtopic.state import DocumentCounts
from streamtopic.state.documents import read_documents
from streamtopic.topics.display import COHERENT, WordEvidence, correlations_and_words, diversity, heap, named, npmi
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.heads import HeadTask, LabelledDocuments, TopicHead, TopicMatrix, fit_head, unlearn_head
from streamtopic.topics.learner import learn

__all__ = [
    "Guarded",
    "PayloadPlan",
    "ReleaseNoise",
    "Sample",
    "TaskData",
    "TaskOptions",
    "displayed",
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
]


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
    before: heads of the last version, to start from; empty unless topics are withheld.
    cold: whether the model was learned from counts alone, so that it has the same bits on every path.
    """

    options: TaskOptions = field(default_factory=TaskOptions)
    labelled: Mapping[str, LabelledDocuments] = field(default_factory=dict)
    before: Mapping[str, TopicHead] = field(default_factory=dict)
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
    heads, unfitted = {}, {}
    for name, task in data.options.tasks.items():
        documents = data.labelled[name]
        try:
            heads[name] = head_of(fit_head(model, documents, task), documents)
        except CannotLearn as error:
            unfitted[name] = str(error)
    return heads, unfitted


def head_of(fitted: TopicHead, data: LabelledDocuments, B: npt.NDArray[np.float64] | None = None) -> Head:
    """Return a head as a release carries it: with its w, or with a noised B (n, classes) in place of w."""
    documents = len(data)
    if B is None:
        return Head(fitted.topics, fitted.classes, documents, fitted.w)
    return Head(fitted.topics, fitted.classes, documents, None, B.astype(np.float32))


def _measured(
    model: TopicMatrix,
    labelled: LabelledDocuments,
    task: HeadTask,
    base_error: float,
    from_counts: Callable[[], TopicMatrix],
    *,
    cold: bool,
) -> HeadConstants:
    """Measure the constants that the noise of a head is calibrated to.

    Raises CannotLearn if rounding may keep the head from its tolerance.
    """
    constants = head_constants(model, labelled, task, base_error, cold=cold)
    # A model carried over differs in its last digits from one learned cold. If these would decide a constant, noise
    # would tell the two apart, so the constant is measured on the cold one.
    if not constants.settled:
        constants = head_constants(from_counts(), labelled, task, base_error, cold=True)
    constants.check_reach(task)
    return constants


def _fitted(before: TopicHead | None, model: TopicMatrix, labelled: LabelledDocuments, task: HeadTask) -> TopicHead:
    """Fit a head, by one step from the last version's head if there is one."""
    if before is None:
        return fit_head(model, labelled, task)
    try:
        return unlearn_head(before, model, labelled, task)
    # Topics may have changed too much for a step from the last head; from zero the optimum is the same.
    except CannotLearn:
        return fit_head(model, labelled, task)


@dataclass(frozen=True, slots=True)
class Guarded:
    """The guarantee that the noise of a version is calibrated to.

    epsilon, delta: a version and a retraining on the same documents are (epsilon, delta)-indistinguishable.
    tolerance: the greatest distance between both before noise.
    """

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class ReleaseNoise:
    """The noise of a whole version, of topics or of heads.

    epsilon, delta: of all its parts together.
    sigma: standard deviation of the noise on a number; the largest of its parts.
    scale, slack: by these it composes with other versions.
    grid: every noised number is a multiple of it; the largest of its parts.
    ratio: norm of the noise over norm of the model, in three digits. From 1 on the noise hides the model.
    covariance_grid: as `grid`, of R; None if R has no noise of its own, since it is made from the noised A.
    """

    epsilon: float
    delta: float
    sigma: float
    scale: float
    slack: float
    grid: float
    ratio: float
    covariance_grid: float | None = None

    @classmethod
    def of(cls, noised: NoisedMatrix) -> "ReleaseNoise":
        """Describe a version of one noised matrix."""
        plan = noised.plan
        # The norm is taken after noise: before noise it is secret.
        ratio = norm_ratio(plan.sigma, noised.matrix)
        return cls(plan.epsilon, plan.delta, plan.sigma, plan.scale, plan.slack, plan.grid, ratio)

    @classmethod
    def of_heads(cls, noised: Collection[NoisedMatrix]) -> "ReleaseNoise":
        """Describe a version of several heads that were noised jointly; its ratio is the largest of all heads."""
        plans = [one.plan for one in noised]
        together = Composition.of((plan.scale, plan.slack) for plan in plans)
        sigma = max(plan.sigma for plan in plans)
        grid = max(plan.grid for plan in plans)
        ratio = max(head_ratio(one) for one in noised)
        # Each head was noised for the epsilon and delta of all together.
        first = plans[0]
        return cls(first.epsilon, first.delta, sigma, 1 / together.mu, together.slack, grid, ratio)


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


Sample = Callable[[], WordSets | None]


def no_sample() -> None:
    """Return no sample of documents, so that a payload has no NPMI."""


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with its noise.

    payload: the published numbers and words.
    noise: the noise in it.
    digest: of the retained counts and settings, for which the noise was drawn.
    unfitted: for each task without a head, the reason.
    fitted: heads before noise where topics are withheld, secret.
    covered: whether every condition of the paper's proof held; None if the guarantee does not rest on them.
    facts: further fields of the release record, for the operator alone.
    shown: facts of the envelope in place of those that follow from the model and its counts.
    kept: what the mode keeps of a new base model.
    """

    payload: Payload
    noise: ReleaseNoise
    digest: str
    unfitted: Mapping[str, str] = field(default_factory=dict)
    fitted: Mapping[str, TopicHead] = field(default_factory=dict)
    covered: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)
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
    heads, unfitted = published_heads(A, fit.words, fit.topic_names, data)
    best, quality = displayed(order, fit.words, sample)
    R = related.R.astype(np.float32)
    payload = Payload(
        words=fit.words,
        A=A,
        R=R,
        shares=related.shares,
        top_words=best,
        quality=quality,
        heads=heads,
        anchors=fit.topic_names,
        guided=seeds_left(fit),
    )
    noise = ReleaseNoise.of(noised)
    return PayloadPlan(payload, noise, digest, unfitted, facts=head_facts(heads, data))


def remarks(plan: PayloadPlan) -> list[str]:
    """Return warnings for the operator about a version."""
    warnings = [f"task {task!r} has no head: {reason}" for task, reason in plan.unfitted.items()]
    if plan.payload.shares is not None:
        warnings += filter(None, [heap(plan.payload.shares, plan.payload.anchors)])
    if plan.noise.ratio >= 1:
        remedy = ""
        if plan.covered is not None:
            remedy = "; set `guarantee` to certified"
        elif plan.payload.A is None:
            remedy = "; lower `tolerance`, down to 1e-9, or raise `ridge` of the tasks"
        warnings.append(f"the noise outweighs the model, with {plan.noise.ratio:.3g} times its norm{remedy}")
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
    constants, fitted, unfitted = _all_fitted(fit, topics, source, guarded, data)
    noised: dict[str, NoisedMatrix] = {}
    # Only now: the noise of each head grows with the number of heads.
    for name, head in fitted.items():
        noised[name] = release_task_weights(
            head.task_weights(topics),
            constants[name],
            data.options.tasks[name],
            epsilon=guarded.epsilon,
            delta=guarded.delta,
            seed=key.seed(model, version, digest, f"head {name}"),
            together=len(fitted),
        )
    heads = {name: head_of(head, data.labelled[name], noised[name].matrix) for name, head in fitted.items()}
    facts = head_facts(heads, data)
    for name, one in noised.items():
        plan = one.plan
        more = {"sigma": plan.sigma, "sensitivity": plan.sensitivity, "grid": plan.grid, "ratio": head_ratio(one)}
        facts["heads"][name].update(more)
    noise = ReleaseNoise.of_heads(noised.values())
    payload = Payload(fit.words, heads=heads, anchors=fit.topic_names, guided=seeds_left(fit))
    return PayloadPlan(payload, noise, digest, unfitted, fitted, facts=facts)


def _all_fitted(
    fit: TopicFit, model: TopicMatrix, source: CountSource, guarded: Guarded, data: TaskData
) -> tuple[dict[str, HeadConstants], dict[str, TopicHead], dict[str, str]]:
    """Fit all heads, starting from those of the last version.

    source: the counts that `fit` was made from, of which `model` has the topics.

    Return by task the constants of its noise and its head before noise, and for each task without a head the reason.
    Raises CannotLearn if no task has a head.
    """

    # At most one model is learned from counts, whatever the number of tasks that ask for it.
    @cache
    def from_counts() -> TopicMatrix:
        cold = learn(source, fit.options)
        return TopicMatrix(cold.A, cold.words, cold.topic_names)

    constants: dict[str, HeadConstants] = {}
    fitted: dict[str, TopicHead] = {}
    unfitted: dict[str, str] = {}
    for name, task in data.options.tasks.items():
        labelled = data.labelled[name]
        try:
            constants[name] = _measured(model, labelled, task, guarded.tolerance, from_counts, cold=data.cold)
            fitted[name] = _fitted(data.before.get(name), model, labelled, task)
        except CannotLearn as error:
            unfitted[name] = str(error)
    if not fitted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unfitted.items())
        raise CannotLearn("tasks", f"topics are withheld and no task has a head ({reasons})")
    return constants, fitted, unfitted


def seeds_left(fit: TopicFit) -> dict[str, tuple[str, ...]]:
    """Return the seeds that are left of each guided topic, () for a topic that has ended."""
    left = {topic.name: topic.seeds for topic in fit.guided}
    return {topic.name: left.get(topic.name, ()) for topic in fit.options.guided}


def frequencies(words: Sequence[str], source: CountSource) -> npt.NDArray[np.int64]:
    """Return, for each of these words, the number of documents of a source that hold it, (n,)."""
    place = {word: k for k, word in enumerate(source.words)}
    found = [source.frequency[place[word]] for word in words]
    return np.array(found, np.int64)


def displayed(
    order: Positions, words: Sequence[str], sample: Sample
) -> tuple[tuple[tuple[str, ...], ...], dict[str, float]]:
    """Return the words of each topic as they are shown, and their quality.

    order: (r, TOP_WORDS) positions in `words`.
    words: (n,), the rows of A.
    sample: as in `make_payload`.

    Quality is measured on the first ten words of each topic: diversity, and NPMI if there is a sample.
    """
    first = order[:, :COHERENT]
    quality = {"diversity": diversity(first)}
    documents = sample()
    if documents is not None and len(documents):
        quality["npmi"] = npmi(first, documents)
    return named(order, words), quality
