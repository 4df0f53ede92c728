"""What a release may reveal: noise, accounting, deletion capacity, and the paper's guarantee with its conditions.

Names load what they need on first use.

gaussian_scale    noise for a guarantee (gaussian_delta, gaussian_epsilon: its inverses)
Composition       what several releases reveal together
NoiseKey          the secret that noise comes from; NoiseSeed: of one matrix
release_matrix    A with noise, back on the simplex, a NoisedMatrix (plan_noise, add_noise, project_columns: its parts;
                  NoisePlan: how much)
Capacity          how many deletions a base model bears; base_capacity: by theorem 1, head_capacity_terms: of a task, by
                  theorem 3 (HeadCapacity), precondition: of the proof, most_deletions: that leave every anchor,
                  implied_constant: the c that a measured capacity stands for
calibrate         the capacity found by deleting (CalibrationPlan, Calibration)
ModelConstants    a, p, gamma, eps0 of a model, by fit_constants
theorem_release   Algorithm 1 with the noise of its proof, a TheoremRelease (TheoremOptions, TheoremPlan, plan_theorem;
                  Vacuity: noise beside model)
assumption_checks what the proof asks of a Situation, a Check each (sample_size, guaranteed_error: of the learner)
release_task_weights  B = A w with noise (HeadConstants, head_constants, head_sensitivity)
AuditPlan         how the promise is tried by an Audit, which `streamtopic.privacy.audit.audit` makes
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopic.privacy.accounting import Composition
    from streamtopic.privacy.assumptions import Check, Situation, assumption_checks, guaranteed_error, sample_size
    from streamtopic.privacy.audit import Audit, AuditPlan
    from streamtopic.privacy.calibration import Calibration, CalibrationPlan, calibrate
    from streamtopic.privacy.capacity import (
        Capacity,
        ModelConstants,
        base_capacity,
        fit_constants,
        implied_constant,
        most_deletions,
        precondition,
    )
    from streamtopic.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_scale
    from streamtopic.privacy.head_capacity import HeadCapacity, head_capacity_terms
    from streamtopic.privacy.heads import HeadConstants, head_constants, head_sensitivity, release_task_weights
    from streamtopic.privacy.keystream import NoiseKey, NoiseSeed
    from streamtopic.privacy.noise import (
        NoisedMatrix,
        NoisePlan,
        add_noise,
        plan_noise,
        project_columns,
        release_matrix,
    )
    from streamtopic.privacy.theorem import TheoremRelease, theorem_release
    from streamtopic.privacy.theorem_noise import TheoremOptions, TheoremPlan, Vacuity, plan_theorem

_HOMES = {
    "accounting": ("Composition",),
    "assumptions": ("Check", "Situation", "assumption_checks", "guaranteed_error", "sample_size"),
    "audit": ("Audit", "AuditPlan"),
    "calibration": ("Calibration", "CalibrationPlan", "calibrate"),
    "capacity": (
        "Capacity",
        "ModelConstants",
        "base_capacity",
        "fit_constants",
        "implied_constant",
        "most_deletions",
        "precondition",
    ),
    "gaussian": ("gaussian_delta", "gaussian_epsilon", "gaussian_scale"),
    "head_capacity": ("HeadCapacity", "head_capacity_terms"),
    "heads": ("HeadConstants", "head_constants", "head_sensitivity", "release_task_weights"),
    "keystream": ("NoiseKey", "NoiseSeed"),
    "noise": ("NoisePlan", "NoisedMatrix", "add_noise", "plan_noise", "project_columns", "release_matrix"),
    "theorem": ("TheoremRelease", "theorem_release"),
    "theorem_noise": ("TheoremOptions", "TheoremPlan", "Vacuity", "plan_theorem"),
}

__all__ = [
    "Audit",
    "AuditPlan",
    "Calibration",
    "CalibrationPlan",
    "Capacity",
    "Check",
    "Composition",
    "HeadCapacity",
    "HeadConstants",
    "ModelConstants",
    "NoiseKey",
    "NoisePlan",
    "NoiseSeed",
    "NoisedMatrix",
    "Situation",
    "TheoremOptions",
    "TheoremPlan",
    "TheoremRelease",
    "Vacuity",
    "add_noise",
    "assumption_checks",
    "base_capacity",
    "calibrate",
    "fit_constants",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_scale",
    "guaranteed_error",
    "head_capacity_terms",
    "head_constants",
    "head_sensitivity",
    "implied_constant",
    "most_deletions",
    "plan_noise",
    "plan_theorem",
    "precondition",
    "project_columns",
    "release_matrix",
    "release_task_weights",
    "sample_size",
    "theorem_release",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562): noise and accounting must not load the learner."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
