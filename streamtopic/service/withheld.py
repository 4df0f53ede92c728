"""Versions that withhold topics: each task's B = A w alone, noised, all of a version jointly.

With k heads in a version each gets sqrt(k) times the noise that it would need alone, so that together they are
(epsilon, delta)-indistinguishable from those of a retraining. Which tasks have a head is a function of the documents
that are left, and so is all that the noise is calibrated to. Source: streamtopic.privacy.heads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from streamtopic.counts import CountSource
from streamtopic.errors import CannotLearn
from streamtopic.privacy.heads import HeadConstants, head_constants, release_task_weights
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisedMatrix
from streamtopic.release import Head
from streamtopic.service.tasks import TaskData, head_of
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import TopicHead, fit_head, unlearn_head
from streamtopic.topics.learner import learn
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = ["WithheldHeads", "withheld_heads"]


@dataclass(frozen=True, slots=True, eq=False)
class WithheldHeads:
    """Heads of a version by task: as released; as fitted, secret, to start the next from; with their noise.

    unfitted: tasks without one, and why.
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

    source: the counts that `fit` was made from; base_error: bound that its certificate keeps. Raises CannotLearn where
    no task has a head.
    """
    model = TopicMatrix(fit.A, fit.words, fit.anchors)

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
    """Measure what noise depends on, the same numbers on every path to this model; refuse heads out of reach."""
    constants = head_constants(model, labelled, task, base_error, cold=cold)
    if not constants.settled:
        constants = head_constants(from_counts(), labelled, task, base_error, cold=True)
    constants.check_reach(task)
    return constants


def _fitted(before: TopicHead | None, model: TopicMatrix, labelled: LabelledDocuments, task: HeadTask) -> TopicHead:
    if before is None:
        return fit_head(model, labelled, task)
    try:
        return unlearn_head(before, model, labelled, task)
    except CannotLearn:
        return fit_head(model, labelled, task)
