"""A small model, as releases carry it."""

import dataclasses

import numpy as np
import pytest

from streamtopic.signed import Envelope, Payload, SigningKey


@pytest.fixture
def key():
    """A fixed signing key."""
    return SigningKey.from_bytes(bytes(range(32)))


@pytest.fixture
def make():
    """Payload and envelope of a version; keyword arguments change fields of the envelope."""

    def build(version=1, n=6, r=2, seed=0, **changes):
        rng = np.random.default_rng(seed)
        words = tuple(sorted(f"w{i:05d}" for i in range(n)))
        A = rng.dirichlet(np.ones(n), r).T.astype(np.float32)
        R = np.eye(r, dtype=np.float32) / r
        top = tuple(tuple(words[i] for i in np.argsort(-A[:, k])[:3]) for k in range(r))
        payload = Payload(words, A, R, np.full(r, 1 / r), top, {"npmi": 0.25, "diversity": 1.0})
        envelope = Envelope(
            model="news", version=version, kind="retrain", parent=version - 1, base=1, cut={0: 10, 1: 12}, m=20, n=n,
            r=r, guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8.5e-7, tolerance=1e-7, certificate=5e-11,
            anchors=words[:r], margin=0.01, forgotten=0, capacity=5, capacity_rule="fixed", cumulative_epsilon=1.0,
            withdrawn=(), created=1_700_000_000_000,
        )  # fmt: skip
        return payload, dataclasses.replace(envelope, **changes)

    return build
