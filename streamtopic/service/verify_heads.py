"""Checking the heads of a version: fitted again on the labelled documents that the log alone gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.service.tasks import Labelled, TaskData, labelled_by_task, published_heads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.counts import Passage
    from streamtopic.release import Head, Release
    from streamtopic.service.publishing import PayloadPlan
    from streamtopic.service.recount import Numbering
    from streamtopic.service.tasks import TaskOptions

__all__ = ["heads_differ", "labelled_in_log", "withheld_differ"]


def labelled_in_log(
    alive: Mapping[tuple[int, str], Sequence[Passage]],
    labels: Mapping[tuple[int, str], Mapping[str, str]],
    numbering: Numbering,
    options: TaskOptions,
) -> Labelled:
    """Return the labelled documents of a log by id, over their own words, as they would be read from Redis.

    alive, labels: by partition and id; numbering: what the passages of `alive` were numbered by.
    """
    chosen = [key for key in alive if not options.tasks.keys().isdisjoint(labels.get(key, {}))]
    chosen.sort(key=lambda key: key[1].encode())
    words, batch = numbering.batch([alive[key] for key in chosen])
    return Labelled(labelled_by_task(batch, [labels[key] for key in chosen], words, options))


def heads_differ(release: Release, labelled: Labelled, options: TaskOptions) -> str | None:
    """Return in what heads beside published topics differ from heads fitted again on that A; None: in nothing.

    A head stops within its task's `distance` of the optimum, so two may lie twice that apart.
    """
    if release.payload.A is None:
        return "topics are withheld, settings say that they are published: verify with --set publish=tasks"
    data = TaskData(options, labelled)
    again, _ = published_heads(release.payload.A, release.words, release.envelope.anchors, data)
    sent = release.payload.heads
    for task in sorted({*sent, *again}):
        problem = _other(sent.get(task), again.get(task))
        if problem is None:
            gap = float(np.linalg.norm(np.asarray(sent[task].w) - np.asarray(again[task].w)))
            allowed = 2 * options.tasks[task].distance
            problem = _apart(gap, allowed)
        if problem is not None:
            return f"head of task {task!r}: {problem}"
    return None


def withheld_differ(release: Release, plan: PayloadPlan) -> str | None:
    """Return in what heads in place of topics differ from `plan`, made again from the log; None: in nothing.

    Before noise two may lie the sensitivity apart, and rounding adds a step of the noise's grid.
    """
    if release.payload.A is not None:
        return "topics are published, settings say that they are withheld: verify with --set publish=topics"
    if release.words != plan.payload.words:
        return "a model learned from scratch has other words"
    sent, again = release.payload.heads, plan.payload.heads
    facts: Mapping[str, Mapping[str, Any]] = plan.facts["heads"]
    for task in sorted({*sent, *again}):
        problem = _other(sent.get(task), again.get(task))
        if problem is None:
            B = np.asarray(sent[task].B, np.float64)
            gap = float(np.abs(B - np.asarray(again[task].B, np.float64)).max())
            allowed = facts[task]["sensitivity"] + facts[task]["grid"] + 2.0**-22 * float(np.abs(B).max())
            problem = _apart(gap, allowed)
        if problem is not None:
            return f"head of task {task!r}: {problem}"
    return None


def _apart(gap: float, allowed: float) -> str | None:
    if gap <= allowed:
        return None
    return f"weights differ by {gap:.3g}, more than {allowed:.3g}; retrain, if tasks were changed in the settings"


def _other(sent: Head | None, again: Head | None) -> str | None:
    """Return why two heads are not of the same topics, classes and documents."""
    if again is None:
        return "there is none from the log: verify with the tasks that the version was made with, or retrain"
    if sent is None:
        return "there is one from the log and none in the version: retrain, if the task is new in the settings"
    for name in ("topics", "classes", "documents"):
        if getattr(sent, name) != getattr(again, name):
            return f"other {name} from the log"
    return None
