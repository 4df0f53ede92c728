"""Checking a version of theorem mode: Algorithm 1 again, on counts of the log alone, with the same noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, StateCorrupt, UsageError
from streamtopic.service.assembly import learner_options, theorem_rule
from streamtopic.service.theorem import Run, theorem_payload
from streamtopic.service.theorem_base import TheoremBase
from streamtopic.topics.algorithm1 import remaining_counts

if TYPE_CHECKING:
    import numpy.typing as npt

    from streamtopic.counts import Counts
    from streamtopic.release import Payload
    from streamtopic.service.runner import Service
    from streamtopic.state import StoredBase
    from streamtopic.topics.fit import TopicFit

__all__ = ["kept_differs", "theorem_differs"]

_FINE = 1e-3
_AGREES = 1e-12
_CLOSE = 1e-6
_SETTINGS = {
    "c": "theorem_constant",
    "epsilon_each": "epsilon",
    "eps0": "accuracy",
    "a": "imbalance",
    "gamma": "conditioning",
    "p": "separability",
}


def theorem_differs(
    service: Service, counts: Counts, stored: StoredBase, version: int, record: Mapping[str, Any]
) -> str | None:
    """Return in what a version's topics and covariance differ from those made again; None: in nothing.

    counts: of the base model's documents that are left; stored: what is kept of the base; record: of the version. Abar
    is the same from any start, so a wrong C^S could not hide here; a wrong constant would show as other noise.
    """
    rule, learner = theorem_rule(service.settings), learner_options(service.settings)
    release = service.release(version)
    if rule is None:
        return "settings say certified"
    try:
        base = TheoremBase.parse(stored)
        run = Run.of(remaining_counts(base.statistics, counts, learner), base, rule, learner)
    except (CannotLearn, StateCorrupt, UsageError) as error:
        return str(error)
    plan = theorem_payload(run, counts, None, service.noise_key, service.settings.model, version)
    if (other := _other_constants(record.get("constants", {}), plan.facts["constants"])) is not None:
        return other
    payload = plan.payload
    if payload.words != release.words or payload.A is None or payload.A.shape != release.A.shape:
        return "the documents in the log give other words or topics"
    noise, sent = run.examined.plan, release.payload
    return (
        _apart("topics", sent.A, payload.A, noise.topics.grid)
        or _apart("covariance", sent.R, payload.R, noise.covariance.grid)
        or _apart("shares", sent.shares, payload.shares, noise.covariance.grid)
        or _top_words(sent, payload)
    )


def _other_constants(made: Mapping[str, float], again: Mapping[str, float]) -> str | None:
    """Say with which setting a version was made that is another now; a version read back from the log does not say."""
    for name, setting in _SETTINGS.items():
        if name in made and not math.isclose(made[name], again[name], rel_tol=_CLOSE):
            said = f"{made[name]:.6g}, settings and base model give {again[name]:.6g}"
            return f"it was made with {name} = {said}: verify with --set {setting}={made[name]:.6g}"
    return None


def _top_words(sent: Payload, made: Payload) -> str | None:
    """Compare top words where the topics are the same to the bit: where rounding moved a number they may differ."""
    same = sent.A is not None and made.A is not None and np.array_equal(sent.A, made.A)
    return "top words are not those of the topics" if same and sent.top_words != made.top_words else None


def kept_differs(stored: StoredBase, fit: TopicFit, counts: Counts) -> str | None:
    """Return in what that which is kept of a base model differs from the same of one learned cold; None: in nothing."""
    if "theorem" not in stored.fields:
        return None
    kept, again = TheoremBase.parse(stored), TheoremBase.of(fit, counts, stored.fields["capacity"])
    gap = float(np.abs(kept.statistics.C - again.statistics.C).max())
    if gap > _AGREES:
        return f"its C differs by {gap:.3g}"
    have, want = kept.fields, again.fields
    for name in want:
        pairs = zip(*(_flat(fields[name]) for fields in (have, want)), strict=True)
        if not all(math.isclose(one, other, rel_tol=_CLOSE) for one, other in pairs):
            return f"its {name} are {have[name]}, from the log {want[name]}"
    return None


def _flat(value: float | Mapping[str, float]) -> list[float]:
    return list(value.values()) if isinstance(value, Mapping) else [value]


def _apart(
    what: str, sent: npt.NDArray[np.floating] | None, made: npt.NDArray[np.floating] | None, grid: float
) -> str | None:
    """Compare published numbers; rounding may carry one to the next point of a fine grid, hardly of a coarse one."""
    if sent is None or made is None:
        return f"{what} are missing"
    gap, size = float(np.abs(sent.astype(float) - made).max()), float(np.abs(made).max())
    allowed = 2.0**-20 * size + (4 * grid if grid < _FINE * size else 0.0)
    return f"{what} differ by {gap:.3g}, more than {allowed:.3g}" if gap > allowed else None
