"""The deletion capacity of the current base model: by the paper's formulas, and by the rule in force."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.paper.capacity_formulas import (
    UTILITY,
    base_capacity,
    fit_constants,
    general_head_terms,
    head_capacity_terms,
    most_deletions,
    precondition,
)
from streamtopic.service import assembly
from streamtopic.service.publish.published import finite
from streamtopic.service.schedule.payload import task_options
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.paper.capacity_formulas import ModelConstants
    from streamtopic.service.schedule.situation import SituationReader
    from streamtopic.settings import Settings
    from streamtopic.state import DocumentCounts, Reader
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.heads import HeadTask

__all__ = ["capacity_of"]


def capacity_of(settings: Settings, reader: Reader, situation: SituationReader) -> dict[str, Any]:
    """Return the fields that `capacity --json` shows. Nothing is written.

    The formulas are about a model of the base model's documents that are left, which is learned for them.

    Raises UsageError if there is no base model yet, CannotLearn if no model can be learned of these documents.
    """
    base = situation.base()
    if base is None:
        raise UsageError("there is no base model yet, so no capacity: `streamtopic status` gives the reason")
    learner = assembly.learner_options(settings)
    formulas = reader.read(
        lambda counts: _formulas(learn(counts, learner), counts, settings), before=base.start.offsets
    )
    used = situation.read().forget_set
    facts = {
        "version": base.version,
        "base_documents": base.documents,
        "rule": base.capacity_rule,
        "rule_set": settings.capacity.rule,
        "capacity": base.capacity,
        "used": used,
        "left": max(base.capacity - used, 0),
        **formulas,
    }
    return finite(facts)


def _formulas(fit: TopicFit, counts: DocumentCounts, settings: Settings) -> dict[str, Any]:
    """Return the paper's formulas for a model (Wei et al. 2025, theorems 1 and 3), with the settings' c.

    counts: that the model was learned from.
    """
    c, epsilon, delta = settings.capacity.constant, settings.epsilon, settings.delta
    m, (n, r) = fit.documents, fit.A.shape
    constants = fit_constants(fit)
    utility = c * UTILITY * m / r**2
    noise = c * m * epsilon / (r**2 * math.sqrt(r * n * math.log(1 / delta)))
    formula = {
        "limit": base_capacity(c, m, n, r, epsilon, delta),
        "noise": noise,
        "utility": utility,
        "binds": "noise" if noise < utility else "utility",
    }
    tasks = task_options(settings).tasks
    place = {word: k for k, word in enumerate(counts.words)}
    holders = counts.frequency[[place[word] for word in fit.anchors]]
    return {
        "documents": m,
        "words": n,
        "topics": r,
        "epsilon": epsilon,
        "delta": delta,
        "constant": c,
        "constants": finite(asdict(constants)),
        "formula": formula,
        "heads": {name: _head(task, fit, settings, constants) for name, task in tasks.items()},
        "precondition": precondition(m, r, constants),
        "hard_limit": most_deletions(holders),
        # By name among equals, so that the answer is the same each time.
        "rarest_anchor": min(zip(holders.tolist(), fit.anchors, strict=True))[1],
    }


def _head(task: HeadTask, fit: TopicFit, settings: Settings, constants: ModelConstants) -> dict[str, Any]:
    """Return the capacity of theorem 3 for a task, or the reason why it cannot be applied."""
    anchors = list(fit.topic_names)
    gone = [topic for topic in task.topics if topic not in anchors]
    shares = fit.topic_masses
    # A task names a topic by its anchor word, and an update or a retrain may have replaced that word.
    if gone:
        return {"topics": list(task.topics), "reason": f"no anchor word of the base model: {', '.join(gone)}"}
    if not (shares > 0).all():
        return {"topics": list(task.topics), "reason": "a topic has no share"}
    topics: Sequence[int] = [anchors.index(topic) for topic in task.topics]
    c, m, (n, r) = settings.capacity.constant, fit.documents, fit.A.shape
    head = head_capacity_terms(c, m, n, settings.epsilon, settings.delta, shares, topics)
    general = general_head_terms(c, m, n, r, constants, head.q)
    # The term that binds: a capacity is the smallest of them.
    least = min(general, key=lambda name: general[name])
    by_term = {"terms": general, "limit": general[least], "binds": least}
    return {
        "topics": list(task.topics) or anchors,
        "q": head.q,
        "worst_q": head.worst_q,
        "ratio": head.ratio,
        "limit": head.formula,
        "noise": head.noise,
        "utility": head.utility,
        "binds": head.binds,
        "gain": head.gain,
        "every_topic": head.every_topic,
        "general": by_term,
    }
