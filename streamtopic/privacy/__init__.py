"""Noise that makes a release safe, the random stream that noise comes from, and the account of several releases.

Names load what they need on first use.

gaussian_scale        the noise that a guarantee needs (gaussian_delta, gaussian_epsilon: its inverses)
Composition           the loss of privacy by several releases
NoiseKey              the secret that noise comes from; NoiseSeed: the secret of one matrix
release_matrix        A with noise, back on the simplex, as a NoisedMatrix; its parts are plan_noise, which gives a
                      NoisePlan, add_noise and project_columns
release_task_weights  B = A w with noise (HeadConstants, head_constants, head_sensitivity)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic import lazily

if TYPE_CHECKING:
    from streamtopic.privacy.accounting import Composition, gaussian_delta, gaussian_epsilon, gaussian_scale
    from streamtopic.privacy.head_noise import HeadConstants, head_constants, head_sensitivity, release_task_weights
    from streamtopic.privacy.keystream import NoiseKey, NoiseSeed
    from streamtopic.privacy.noise import (
        NoisedMatrix,
        NoisePlan,
        add_noise,
        plan_noise,
        project_columns,
        release_matrix,
    )

_HOMES = {
    "accounting": (
        "Composition",
        "gaussian_delta",
        "gaussian_epsilon",
        "gaussian_scale",
    ),
    "head_noise": (
        "HeadConstants",
        "head_constants",
        "head_sensitivity",
        "release_task_weights",
    ),
    "keystream": (
        "NoiseKey",
        "NoiseSeed",
    ),
    "noise": (
        "NoisePlan",
        "NoisedMatrix",
        "add_noise",
        "plan_noise",
        "project_columns",
        "release_matrix",
    ),
}

__all__ = [
    "Composition",
    "HeadConstants",
    "NoiseKey",
    "NoisePlan",
    "NoiseSeed",
    "NoisedMatrix",
    "add_noise",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_scale",
    "head_constants",
    "head_sensitivity",
    "plan_noise",
    "project_columns",
    "release_matrix",
    "release_task_weights",
]

__getattr__, __dir__ = lazily(__name__, _HOMES)
