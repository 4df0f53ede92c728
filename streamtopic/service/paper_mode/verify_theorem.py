"""Check a version of theorem mode: run Algorithm 1 again, on counts of the log alone, with the same noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, StateCorrupt, UsageError
from streamtopic.paper.algorithm1 import remaining_counts
from streamtopic.service.paper_mode.theorem_modeller import Run, TheoremBase, theorem_payload

if TYPE_CHECKING:
    import numpy.typing as npt

    from streamtopic.counts import Counts
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.paper_mode.theorem_modeller import TheoremRule
    from streamtopic.service.schedule.payload import PayloadPlan
    from streamtopic.signed import Payload, Release
    from streamtopic.state import StoredBase
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["TheoremCheck"]

# A grid is fine below this share of a number's size: only then is rounding likely to carry a number to the next point.
_FINE = 1e-3
_AGREES = 1e-12
_CLOSE = 1e-6
# Name of a constant in the release record to the setting that decides it.
_SETTINGS = {
    "c": "theorem_constant",
    "epsilon_each": "epsilon",
    "eps0": "accuracy",
    "a": "imbalance",
    "gamma": "conditioning",
    "p": "separability",
}


@dataclass(frozen=True, slots=True)
class TheoremCheck:
    """Compares versions of theorem mode with Algorithm 1. It is handed to `verify`, which does not know the paper.

    rule: the settings of theorem mode, None in certified mode.
    learner: the learner's settings.
    model: name of the model.
    """

    rule: TheoremRule | None
    learner: LearnerOptions
    model: str

    @property
    def expected(self) -> bool:
        """Return whether the settings ask for theorem mode."""
        return self.rule is not None

    def differs(
        self, release: Release, counts: Counts, stored: StoredBase, record: Mapping[str, Any], key: NoiseKey
    ) -> tuple[str | None, PayloadPlan | None]:
        """Make a version's payload again; say how the version differs from it, and return it.

        counts: of the base model's documents that are left.
        stored: the kept base model.
        record: the release record of the version.
        key: the secret that noise is drawn from.

        The difference is None where there is none. The payload is None where it cannot be made again.
        """
        if self.rule is None:
            return "settings say certified", None
        # Abar is the same from any start, so a wrong C^S could not hide; a wrong constant would show as other noise.
        try:
            base = TheoremBase.parse(stored)
            statistics = remaining_counts(base.statistics, counts, self.learner)
            run = Run.of(statistics, base, self.rule, self.learner)
        except (CannotLearn, StateCorrupt, UsageError) as error:
            return str(error), None
        plan = theorem_payload(run, counts, None, key, self.model, release.version)
        other = _other_constants(record.get("constants", {}), plan.facts["constants"])
        if other is not None:
            return other, plan
        payload = plan.payload
        if payload.words != release.words or payload.A is None or payload.A.shape != release.A.shape:
            return "the documents in the log give other words or topics", plan
        noise, sent = run.examined.plan, release.payload
        problem = _apart("topics", sent.A, payload.A, noise.topics.grid)
        problem = problem or _apart("covariance", sent.R, payload.R, noise.covariance.grid)
        # Shares are made from the noised R.
        problem = problem or _apart("shares", sent.shares, payload.shares, noise.covariance.grid)
        problem = problem or _top_words(sent, payload)
        return problem, plan

    def kept_differs(self, stored: StoredBase, fit: TopicFit, counts: Counts) -> str | None:
        """Say how the kept facts of a base model differ from those of a base model learned cold; None: not at all.

        stored: the kept base model.
        fit, counts: the base model learned again from the log, and the counts that it was learned from.
        """
        # Certified mode keeps no such facts.
        if "theorem" not in stored.fields:
            return None
        kept = TheoremBase.parse(stored)
        again = TheoremBase.of(fit, counts, stored.fields["capacity"])
        gap = float(np.abs(kept.statistics.C - again.statistics.C).max())
        if gap > _AGREES:
            return f"its C is more than {_AGREES:g} from that of a base model learned from the log"
        have, want = kept.fields, again.fields
        for name in want:
            pairs = zip(_flat(have[name]), _flat(want[name]), strict=True)
            if not all(math.isclose(one, other, rel_tol=_CLOSE) for one, other in pairs):
                return f"its {name} differ from those of a base model learned from the log"
        return None


def _other_constants(made: Mapping[str, float], again: Mapping[str, float]) -> str | None:
    """Say which setting has changed since a version was made, None where none has."""
    for name, setting in _SETTINGS.items():
        # A version that was read back from the log has no record of its constants.
        if name in made and not math.isclose(made[name], again[name], rel_tol=_CLOSE):
            said = f"{made[name]:.6g}, settings and base model give {again[name]:.6g}"
            return f"it was made with {name} = {said}: verify with --set {setting}={made[name]:.6g}"
    return None


def _top_words(sent: Payload, made: Payload) -> str | None:
    """Compare top words, where the topics are the same to the bit."""
    # Where rounding moved a number, top words may differ with it.
    same = sent.A is not None and made.A is not None and np.array_equal(sent.A, made.A)
    if same and sent.top_words != made.top_words:
        return "top words are not those of the topics"
    return None


def _flat(value: float | Mapping[str, float]) -> list[float]:
    """Return the numbers of a field."""
    return list(value.values()) if isinstance(value, Mapping) else [value]


def _apart(
    what: str, sent: npt.NDArray[np.floating] | None, made: npt.NDArray[np.floating] | None, grid: float
) -> str | None:
    """Compare published numbers with those made again."""
    if sent is None or made is None:
        return f"{what} are missing"
    gap = float(np.abs(sent.astype(float) - made).max())
    size = float(np.abs(made).max())
    # Published numbers are float32. Rounding may carry one to the next point of a fine grid, hardly of a coarse one.
    allowed = 2.0**-20 * size
    if grid < _FINE * size:
        allowed += 4 * grid
    return f"{what} differ by {gap:.3g}, more than {allowed:.3g}" if gap > allowed else None
