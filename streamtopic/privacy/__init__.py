"""What a release may reveal: noise, accounting, deletion capacity.

gaussian_scale    noise for a guarantee (gaussian_delta, gaussian_epsilon: its inverses)
Composition       what several releases reveal together
NoiseKey          the secret that noise comes from
release_matrix    A with noise, back on the simplex (plan_noise, add_noise: its parts)
Capacity          how many deletions a base model bears
"""

from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.capacity import Capacity, base_capacity, head_capacity
from streamtopic.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_scale
from streamtopic.privacy.keystream import NoiseKey, NoiseSeed
from streamtopic.privacy.noise import NoisedMatrix, NoisePlan, add_noise, plan_noise, project_columns, release_matrix

__all__ = [
    "Capacity",
    "Composition",
    "NoiseKey",
    "NoisePlan",
    "NoiseSeed",
    "NoisedMatrix",
    "add_noise",
    "base_capacity",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_scale",
    "head_capacity",
    "plan_noise",
    "project_columns",
    "release_matrix",
]
