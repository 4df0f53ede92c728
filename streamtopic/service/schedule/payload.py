"""From a learned model to the bytes of a version: noise once, then everything else from the noised numbers.

    make_payload     topics, noised, with heads of downstream tasks on them; or heads alone
    read_labelled    the labelled documents that heads are fitted on
    published_heads  a head for each task from the published topics
    withheld_heads   heads in place of topics, noised jointly

Where topics are published, a head is fitted from zero on the noised A and the labelled documents that are left: the
paper's naive setting. Fitting it is post-processing, so it costs no epsilon and needs no bound. Labels ride on
documents, so a deleted document is in no head.

Where topics are withheld, each task publishes its B = A w alone. With k heads in a version each head gets sqrt(k) times
the noise that it would need alone, so that together they are (epsilon, delta)-indistinguishable from those of a
retraining. Which tasks have a head is a function of the documents that are left, and so are all numbers that the noise
is calibrated to. Source: streamtopic.privacy.head_noise.
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
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.head_noise import HeadConstants, head_constants, release_task_weights
from streamtopic.privacy.keystream import NoiseKey, NoiseSeed
from streamtopic.privacy.noise import NoisedMatrix, release_matrix
from streamtopic.signed import Head, Payload
from streamtopic.state import Connection, Snapshot
from streamtopic.state.documents import read_documents
from streamtopic.topics.display import COHERENT, WordEvidence, diversity, named, npmi, top_words, topic_correlations
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import TopicHead, fit_head, unlearn_head
from streamtopic.topics.learner import learn
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = [
    "Guarded",
    "Labelled",
    "PayloadPlan",
    "ReleaseNoise",
    "TaskData",
    "TaskOptions",
    "WithheldHeads",
    "displayed",
    "frequencies",
    "head_facts",
    "head_of",
    "head_ratio",
    "labelled_by_task",
    "labelled_digest",
    "make_payload",
    "norm_ratio",
    "published_heads",
    "read_labelled",
    "remarks",
    "withheld_heads",
]


TOP_WORDS = 20
"""So many words of each topic are published: the coherent ten, which quality is measured on, and ten more."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The downstream tasks of a service.

    tasks: by name; a document is of a task if it has a label of that name.
    withheld: whether heads go out in place of topics.
    """

    tasks: Mapping[str, HeadTask] = field(default_factory=dict)
    withheld: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """The labelled documents of each task, in the order of their ids; a document may be of several tasks.

    whole: whether no document was deleted between the cut of a version and this reading; such a one is in no head.
    """

    by_task: Mapping[str, LabelledDocuments] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class TaskData:
    """The data that heads of a version are made of, besides its model.

    options: the tasks.
    labelled: their documents.
    before: heads of the last version where topics are withheld, to start from.
    cold: whether the model was learned from counts, so that it has the same bits on every path.
    """

    options: TaskOptions = field(default_factory=TaskOptions)
    labelled: Labelled = field(default_factory=Labelled)
    before: Mapping[str, TopicHead] = field(default_factory=dict)
    cold: bool = True


def read_labelled(connection: Connection, snapshot: Snapshot, words: Sequence[str], options: TaskOptions) -> Labelled:
    """Read a snapshot's labelled documents, over `words`: a function of the documents that are left.

    Raises StateCorrupt, ComponentUnreachable.
    """
    if not options.tasks:
        return Labelled()
    stored = read_documents(connection, snapshot, words, labelled=options.tasks)
    return Labelled(labelled_by_task(stored.batch, stored.labels, words, options), stored.whole)


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
        rows = np.array([row for row, classes in enumerate(labels) if task in classes], np.intp)
        found[task] = LabelledDocuments(tuple(words), counts[rows], tuple(labels[row][task] for row in rows))
    return found


def labelled_digest(counted: str, data: TaskData) -> str:
    """Return a hex digest of all data that a release of heads is a function of.

    counted: the digest of the retained counts and settings.
    """
    # Counts do not say which document has which label, and two different heads must not get the same noise: their
    # difference would be free of it.
    state = hashlib.sha256(b"streamtopic heads 1\0" + counted.encode())
    for task in sorted(data.options.tasks):
        documents = data.labelled.by_task[task]
        for text in (task, repr(data.options.tasks[task]), *documents.labels):
            state.update(hashlib.sha256(text.encode()).digest())
        for array in (documents.counts.indptr, documents.counts.indices, documents.counts.data):
            state.update(np.asarray(array).astype("<i8").tobytes() + b"\0")
    return state.hexdigest()


def published_heads(
    A: npt.NDArray[np.float32], words: tuple[str, ...], anchors: tuple[str, ...], data: TaskData
) -> tuple[dict[str, Head], dict[str, str]]:
    """Fit a head for each task on A (n, r) as published; also tasks without a head, and why."""
    # Each starts from zero, so it is a function of A and the labelled documents alone, whatever was learned before.
    model = TopicMatrix(A.astype(np.float64), words, anchors)
    heads, unfitted = {}, {}
    for name, task in data.options.tasks.items():
        documents = data.labelled.by_task[name]
        try:
            heads[name] = head_of(fit_head(model, documents, task), documents)
        except CannotLearn as error:
            unfitted[name] = str(error)
    return heads, unfitted


def head_of(fitted: TopicHead, data: LabelledDocuments, B: npt.NDArray[np.float64] | None = None) -> Head:
    """Return a head as a release carries it: with its w, or with a noised B in place of w."""
    w = fitted.w if B is None else None
    return Head(fitted.topics, fitted.classes, len(data), w, None if B is None else B.astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class WithheldHeads:
    """Heads of a version, by task.

    heads: as released.
    fitted: before noise, secret; the next version starts from them.
    noised: with their noise.
    unfitted: tasks without a head, and why.
    """

    heads: Mapping[str, Head]
    fitted: Mapping[str, TopicHead]
    noised: Mapping[str, NoisedMatrix]
    unfitted: Mapping[str, str]


def withheld_heads(
    fit: TopicFit,
    source: CountSource,
    data: TaskData,
    *,
    base_error: float,
    epsilon: float,
    delta: float,
    seed_for: Callable[[str], NoiseSeed],
) -> WithheldHeads:
    """Fit all heads, warm from those of the last version, and noise them.

    source: the counts that `fit` was made from.
    base_error: the bound that its certificate keeps.
    seed_for: task to the seed of its noise.
    Raises CannotLearn where no task has a head.
    """
    model = TopicMatrix(fit.A, fit.words, fit.anchors)

    # At most one model is learned from counts, whatever the number of tasks that ask for it.
    @cache
    def from_counts() -> TopicMatrix:
        cold = learn(source, fit.options)
        return TopicMatrix(cold.A, cold.words, cold.anchors)

    constants: dict[str, HeadConstants] = {}
    fitted: dict[str, TopicHead] = {}
    unfitted: dict[str, str] = {}
    for name, task in data.options.tasks.items():
        labelled = data.labelled.by_task[name]
        try:
            constants[name] = _measured(model, labelled, task, base_error, from_counts, cold=data.cold)
            fitted[name] = _fitted(data.before.get(name), model, labelled, task)
        except CannotLearn as error:
            unfitted[name] = str(error)
    if not fitted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unfitted.items())
        raise CannotLearn("tasks", f"topics are withheld and no task has a head ({reasons})")
    noised = {
        name: release_task_weights(
            head.task_weights(model),
            constants[name],
            data.options.tasks[name],
            epsilon=epsilon,
            delta=delta,
            seed=seed_for(name),
            together=len(fitted),
        )
        for name, head in fitted.items()
    }
    heads = {name: head_of(head, data.labelled.by_task[name], noised[name].matrix) for name, head in fitted.items()}
    return WithheldHeads(heads, fitted, noised, unfitted)


def _measured(
    model: TopicMatrix,
    labelled: LabelledDocuments,
    task: HeadTask,
    base_error: float,
    from_counts: Callable[[], TopicMatrix],
    *,
    cold: bool,
) -> HeadConstants:
    """Measure the constants that noise is calibrated to; raise CannotLearn for a head out of reach."""
    constants = head_constants(model, labelled, task, base_error, cold=cold)
    # A model carried over differs in its last digits from one learned cold. Where these would decide a constant, noise
    # would tell the two apart, so the constant is measured on the cold one.
    if not constants.settled:
        constants = head_constants(from_counts(), labelled, task, base_error, cold=True)
    constants.check_reach(task)
    return constants


def _fitted(before: TopicHead | None, model: TopicMatrix, labelled: LabelledDocuments, task: HeadTask) -> TopicHead:
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

    epsilon, delta: that a version and one of a retraining are indistinguishable by.
    tolerance: the distance that both may lie apart before noise.
    """

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class ReleaseNoise:
    """The noise of a whole version, of topics or of heads.

    epsilon, delta: of all its parts together.
    sigma: standard deviation of the noise on a number, the largest where parts differ.
    scale, slack: with these it composes with other versions.
    grid: every noised number is a multiple of it, the largest where parts differ.
    ratio: norm of the noise over norm of the model in three digits; from 1 on only noise is left to see.
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
        """Describe a version of one noised matrix."""
        plan = noised.plan
        # The norm is taken after noise: that of the model before it is secret.
        ratio = norm_ratio(plan.sigma, noised.matrix)
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


def norm_ratio(sigma: float, matrix: npt.NDArray[Any]) -> float:
    """Return the norm of noise of this sigma over that of the matrix that is released, in three digits."""
    return _three_digits(sigma * math.sqrt(matrix.size) / float(np.linalg.norm(matrix)))


def head_ratio(noised: NoisedMatrix) -> float:
    """Return the norm of a head's noise over that of its B, in three digits, from released numbers alone."""
    size = noised.matrix.size
    noise = noised.plan.sigma**2 * size
    # ||B~||^2 less the expected share of the noise. Below three standard deviations of that share chance alone could
    # give it, so B is taken to be no larger than those.
    signal = float(np.square(noised.matrix).sum()) - noise
    least = 3 * math.sqrt(2 / size) * noise
    return _three_digits(math.sqrt(noise / max(signal, least)))


def _three_digits(ratio: float) -> float:
    # Two paths to one model may leave a released number on two neighbouring points of the grid. The digits of a norm
    # would repeat that in the envelope, beside the numbers that the noise is for.
    return float(f"{ratio:.3g}")


@dataclass(frozen=True, slots=True, eq=False)
class PayloadPlan:
    """A payload with the noise it carries and the digest that its noise was drawn for.

    unfitted: tasks without a head in it, and why.
    fitted: heads before noise where topics are withheld, secret.
    covered: whether every condition of the paper's proof held; None where the guarantee rests on no such condition.
    facts: further fields of the release record, for the operator alone.
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
    guarded: Guarded,
    sample: WordSets | None,
    key: NoiseKey,
    model: str,
    version: int,
    data: TaskData | None = None,
) -> PayloadPlan:
    """Return the payload of a version: a function of the retained documents, the settings and the noise key.

    source: the counts that `fit` was made from.
    guarded: the guarantee that noise is calibrated to.
    sample: words (positions in `fit.words`) of sampled documents, for NPMI; None leaves NPMI out.
    data: of downstream tasks.

    A crash, a retry or a restored state draws the same bytes again, because the noise is keyed by the digest of the
    numbers that it is added to. Raises CannotLearn where topics are withheld and no task has a head.
    """
    data = data or TaskData()
    frequency = frequencies(fit.words, source)
    digest = fingerprint(fit, frequency.tolist(), [repr(fit.options), repr(guarded)], key.counts_key)
    if data.options.withheld:
        return _heads_alone(fit, source, guarded, key, model, version, labelled_digest(digest, data), data)
    seed = key.seed(model, version, digest)
    noised = release_matrix(fit.A, tolerance=guarded.tolerance, epsilon=guarded.epsilon, delta=guarded.delta, seed=seed)
    # From here on only the published numbers and the retained documents are used.
    A = noised.matrix.astype(np.float32)
    related = topic_correlations(fit, A.astype(np.float64))
    heads, unfitted = published_heads(A, fit.words, fit.anchors, data)
    best, quality = displayed(A, fit.words, WordEvidence.of(fit, frequency), sample)
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
    """Return warnings for the operator about a version."""
    said = [f"task {task!r} has no head: {reason}" for task, reason in plan.unfitted.items()]
    if plan.noise.ratio >= 1:
        remedy = "; lower `tolerance`, down to 1e-9, or raise `ridge` of the tasks" if plan.payload.A is None else ""
        remedy = remedy if plan.covered is None else "; set `guarantee` to certified"
        said.append(f"the noise outweighs the model, with {plan.noise.ratio:.3g} times its norm{remedy}")
    return said


def head_facts(heads: Mapping[str, Head], data: TaskData) -> dict[str, Any]:
    """Return the fields of heads in the release record; none where there are no tasks."""
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
    evidence: WordEvidence,
    sample: WordSets | None,
) -> tuple[tuple[tuple[str, ...], ...], dict[str, float]]:
    """Return the top words of each topic of a published A (n, r), as they are shown, and their quality.

    words: (n,), the rows of A.
    evidence: of these words in the retained documents.
    sample: as in `make_payload`.
    Quality is that of the first ten words of each topic.
    """
    order = top_words(A.astype(np.float64), evidence, TOP_WORDS)
    first = order[:, :COHERENT]
    quality = {"diversity": diversity(first)}
    if sample is not None and len(sample):
        quality["npmi"] = npmi(first, sample)
    return named(order, words), quality
