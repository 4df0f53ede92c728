"""Drawing noise: 250,000 Gaussian numbers from the keyed stream, and the noised release of a matrix of that size."""

from __future__ import annotations

import numpy as np

from streamtopic.bench.figures import Figure, timed

__all__ = ["CASES"]

REPEATS = 5


def draws() -> list[Figure]:
    """5,000 words by 50 topics."""
    from streamtopic.privacy.keystream import NoiseKey, standard_normals
    from streamtopic.privacy.noise import release_matrix

    seed = NoiseKey(bytes(32)).seed("bench", 1, "digest")
    A = np.random.default_rng(0).dirichlet(np.ones(5_000), 50).T

    def release() -> object:
        return release_matrix(A, tolerance=1e-7, epsilon=1.0, delta=1e-6, seed=seed)

    draw = min(timed(lambda: standard_normals(seed, A.size))[0] for _ in range(REPEATS))
    whole = min(timed(release)[0] for _ in range(REPEATS))
    return [Figure("draws", A.size / draw, "numbers/s"), Figure("release", whole, "s")]


CASES = {"draws": draws}
