"""The deletion capacity of the current base model: by the paper's formulas, by trials, and by the rule in force."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.paper.capacity_formulas import (
    UTILITY,
    ModelConstants,
    base_capacity,
    general_head_terms,
    head_capacity_terms,
    implied_constant,
    precondition,
)
from streamtopic.service import assembly
from streamtopic.service.paper_mode.deletion_capacity import TRIALS, model_facts, try_deletions
from streamtopic.service.publish.published import finite
from streamtopic.service.schedule.version import kept_fields
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from streamtopic.service.app import Service
    from streamtopic.service.schedule.situation import Base
    from streamtopic.state import DocumentCounts
    from streamtopic.topics.heads import HeadTask

__all__ = ["CalibrationRequest", "capacity_of"]


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """A request to try deletions now.

    trials: number of random forget sets of each size; None for the number of the plan.
    """

    trials: int | None = None


def capacity_of(
    service: Service,
    request: CalibrationRequest | None = None,
    update: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Return the fields that `capacity --json` shows. Nothing is written, also not the result of trials.

    request: deletions to try now, None for no trials.
    update: told how many updates were made, of how many at most.

    Raises UsageError where there is no base model yet, CannotLearn where no model can be learned of the base model's
    documents that are left.
    """
    base = service.situation.base()
    if base is None:
        raise UsageError("there is no base model yet, so no capacity: `streamtopic status` gives the reason")
    tried: dict[str, Any] | None = None
    known: Mapping[str, Any] = {}
    stored = service.state.base()
    if stored is not None:
        known = kept_fields(stored)["calibration"]
    if "tried" in known:
        tried = {"of": f"the base model of version {base.version}", **known["tried"]}
    if request is not None:
        known, tried = _measured(service, base, request, update)
    elif "shares" not in known:
        # The bytes of the base model are gone, and its figures with them: they are measured on the documents left.
        known, _ = _measured(service, base, None, update)
    formulas = _formulas(known, service)
    if tried is not None:
        tried["implied_constant"] = _implied(tried["limit"], formulas)
    used = service.situation.read().forget_set
    left = max(base.capacity - used, 0)
    facts = {
        "version": base.version,
        "base_documents": base.documents,
        "rule": base.calibration["rule"],
        "rule_set": service.settings.capacity.rule,
        "capacity": base.capacity,
        "used": used,
        "left": left,
        **formulas,
        "tried": tried,
    }
    return finite(facts)


def _measured(
    service: Service, base: Base, request: CalibrationRequest | None, update: Callable[[int, int | None], None]
) -> tuple[Mapping[str, Any], dict[str, Any] | None]:
    """Learn a model of the base model's documents that are left, and try deletions of these if that is requested.

    Return the figures of the formulas, and the result of the trials.
    """
    settings = service.settings
    learner = assembly.learner_options(settings)

    def measure(counts: DocumentCounts) -> tuple[Mapping[str, Any], dict[str, Any] | None]:
        fit = learn(counts, learner)
        facts = model_facts(fit, counts, settings.epsilon, settings.delta)
        if request is None:
            return facts, None
        plan = TRIALS if request.trials is None else replace(TRIALS, trials=request.trials)
        _, tried = try_deletions(plan, counts, fit, update)
        # The trials are those of another model then, and a reader has to know it.
        changed = "" if fit.anchors == base.anchors else ", whose anchor words are others by now"
        return facts, {"of": f"the {fit.documents:,} documents of the base that are left{changed}", **tried}

    return service.reader.read(measure, before=base.start.offsets)


def _formulas(known: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """Return the paper's formulas for a model (Wei et al. 2025, theorems 1 and 3), with the settings' c.

    known: the figures of the model, as `model_facts` gives them.
    """
    settings = service.settings
    tasks = assembly.task_options(settings).tasks
    c = settings.capacity.constant
    m = known["documents"]
    n = known["words"]
    r = known["topics"]
    epsilon = settings.epsilon
    delta = settings.delta
    # JSON has no infinity, so None stands for it.
    given = known["constants"].items()
    figures = {name: math.inf if value is None else value for name, value in given}
    constants = ModelConstants(**figures)
    base = base_capacity(c, m, n, r, epsilon, delta)
    utility = c * UTILITY * m / r**2
    spread = math.sqrt(r * n * math.log(1 / delta))
    noise = c * m * epsilon / (r**2 * spread)
    binds = "noise" if noise < utility else "utility"
    heads = {name: _head(task, c, known, epsilon, delta, constants) for name, task in tasks.items()}
    holders = known["anchor_documents"]
    # By name among equals, so that the answer is the same each time.
    rarest = min(holders, key=lambda word: (holders[word], word))
    formula = {"limit": base, "noise": noise, "utility": utility, "binds": binds}
    return {
        "documents": m,
        "words": n,
        "topics": r,
        "epsilon": epsilon,
        "delta": delta,
        "constant": c,
        "constants": finite(asdict(constants)),
        "formula": formula,
        "heads": heads,
        "precondition": precondition(m, r, constants),
        "hard_limit": known["hard_limit"],
        "rarest_anchor": rarest,
    }


def _head(
    task: HeadTask, c: float, known: Mapping[str, Any], epsilon: float, delta: float, constants: ModelConstants
) -> dict[str, Any]:
    """Return the capacity of theorem 3 for a task, or the reason why it cannot be applied."""
    import numpy as np

    anchors = list(known["shares"])
    gone = [topic for topic in task.topics if topic not in anchors]
    values = list(known["shares"].values())
    shares: npt.NDArray[np.float64] = np.array(values)
    # A task names a topic by its anchor word, and an update or a retrain may have replaced that word.
    if gone:
        return {"topics": list(task.topics), "reason": f"no anchor word of the base model: {', '.join(gone)}"}
    if not (shares > 0).all():
        return {"topics": list(task.topics), "reason": "a topic has no share"}
    topics: Sequence[int] = [anchors.index(topic) for topic in task.topics]
    m = known["documents"]
    n = known["words"]
    r = known["topics"]
    head = head_capacity_terms(c, m, n, epsilon, delta, shares, topics)
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


def _implied(limit: float, formulas: Mapping[str, Any]) -> float | None:
    """Return the c at which theorem 1 gives this limit."""
    value = implied_constant(limit, formulas["formula"]["limit"] / formulas["constant"])
    return value if math.isfinite(value) else None
