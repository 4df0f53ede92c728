"""The paper to the letter, as pure functions: Algorithm 1, its noise, the conditions of its proof, deletion capacity.

Modules of `counts`, `topics` and `privacy` never import this wing. Names load their module on first use.

algorithm1         Statistics: the part of S that Algorithm 1 keeps; remaining: takes a forget set out of the counts;
                   unlearn_base: makes a BaseModel by the Newton step and the projection; retrain_rows: makes one by
                   the exact optimum; literal_head: the paper's own form of an unlearned head
theorem            theorem_release: Algorithm 1 with the noise of its proof, a TheoremRelease (TheoremOptions,
                   TheoremPlan, plan_theorem; Vacuity: noise over model); assumption_checks: the conditions of the
                   proof on a ProofSetting, one Condition each (sample_size, guaranteed_error: of the learner)
capacity_formulas  Capacity: how many deletions a base model bears; base_capacity: by theorem 1, head_capacity_terms: of
                   a task, by theorem 3 (HeadCapacity), precondition: of the proof, most_deletions: that leave every
                   anchor, implied_constant: the c that a measured capacity represents; fit_constants: measures a, p,
                   gamma, eps0 of a model as ModelConstants
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic import lazily

if TYPE_CHECKING:
    from streamtopic.paper.algorithm1 import BaseModel, Statistics, literal_head, remaining, retrain_rows, unlearn_base
    from streamtopic.paper.capacity_formulas import (
        Capacity,
        HeadCapacity,
        ModelConstants,
        base_capacity,
        fit_constants,
        head_capacity_terms,
        implied_constant,
        most_deletions,
        precondition,
    )
    from streamtopic.paper.theorem import (
        Condition,
        ProofSetting,
        TheoremOptions,
        TheoremPlan,
        TheoremRelease,
        Vacuity,
        assumption_checks,
        guaranteed_error,
        plan_theorem,
        sample_size,
        theorem_release,
    )

_HOMES = {
    "algorithm1": (
        "BaseModel",
        "Statistics",
        "literal_head",
        "remaining",
        "retrain_rows",
        "unlearn_base",
    ),
    "capacity_formulas": (
        "Capacity",
        "HeadCapacity",
        "ModelConstants",
        "base_capacity",
        "fit_constants",
        "head_capacity_terms",
        "implied_constant",
        "most_deletions",
        "precondition",
    ),
    "theorem": (
        "Condition",
        "ProofSetting",
        "TheoremOptions",
        "TheoremPlan",
        "TheoremRelease",
        "Vacuity",
        "assumption_checks",
        "guaranteed_error",
        "plan_theorem",
        "sample_size",
        "theorem_release",
    ),
}

__all__ = [
    "BaseModel",
    "Capacity",
    "Condition",
    "HeadCapacity",
    "ModelConstants",
    "ProofSetting",
    "Statistics",
    "TheoremOptions",
    "TheoremPlan",
    "TheoremRelease",
    "Vacuity",
    "assumption_checks",
    "base_capacity",
    "fit_constants",
    "guaranteed_error",
    "head_capacity_terms",
    "implied_constant",
    "literal_head",
    "most_deletions",
    "plan_theorem",
    "precondition",
    "remaining",
    "retrain_rows",
    "sample_size",
    "theorem_release",
    "unlearn_base",
]

__getattr__, __dir__ = lazily(__name__, _HOMES)
