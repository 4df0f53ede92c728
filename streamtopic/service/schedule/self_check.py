"""The service's own check of an update before it is staged: learn it again from the counts alone, and compare.

Only an update that was carried over in memory is checked: one that was learned cold would be compared with itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamtopic.errors import CannotLearn
from streamtopic.state import Snapshot, SnapshotExpired
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn

__all__ = ["Checked", "SelfCheckRule", "check_update"]

_SAME = "words, anchors and counts are those of a model learned from the counts alone, and so are topics, as certified"


@dataclass(frozen=True, slots=True)
class SelfCheckRule:
    """When updates are checked.

    when: `off`, each `version`, or the first update after each `interval`.
    interval_ms: milliseconds since the last check after which the next update is checked.
    """

    when: Literal["off", "version", "interval"] = "interval"
    interval_ms: int = 43_200_000

    def due(self, last: Mapping[str, Any] | None, now_ms: int) -> bool:
        """Return whether the next update is checked.

        last: fields of the last check, None before the first.
        now_ms: milliseconds since 1970.
        """
        if self.when != "interval":
            return self.when == "version"
        # After a failure every update is checked until one passes.
        if last is None or not last["passed"]:
            return True
        return bool(now_ms - last["at"] >= self.interval_ms)


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check.

    passed: None where the check could not be made.
    detail: in words. It is shown to people, so it has no figure of a model before noise.
    seconds: how long the check took.
    """

    passed: bool | None
    detail: str
    seconds: float

    def fields(self, version: int, now_ms: int, suspects: tuple[int, ...]) -> dict[str, Any]:
        """Return the fields that Redis keeps.

        version: the version that was checked.
        now_ms: time of the check, milliseconds since 1970.
        suspects: versions made since the last model that was known to be right.
        """
        return {
            "version": version,
            "passed": self.passed,
            "detail": self.detail,
            "at": now_ms,
            "seconds": self.seconds,
            "suspects": list(suspects),
        }


def check_update(
    fit: TopicFit, snapshot: Snapshot, key: bytes, clock: Callable[[], float] = time.perf_counter
) -> Checked:
    """Learn an update's snapshot cold, and compare the result with the update's fit.

    fit: the update. While this runs, both models are in memory.
    snapshot: the counts that it was carried over to.
    key: the secret of the digest of counts.
    clock: seconds, for the duration.
    """
    start = clock()
    try:
        cold = learn(snapshot, fit.options)
    except SnapshotExpired:
        return Checked(None, "its counts were merged away before they were read again", clock() - start)
    except CannotLearn as error:
        return Checked(passed=False, detail=f"its counts allow no model: {error}", seconds=clock() - start)
    problem = _difference(fit, cold, key)
    return Checked(problem is None, problem or _SAME, clock() - start)


def _difference(fit: TopicFit, cold: TopicFit, key: bytes) -> str | None:
    """Say how a carried-over fit differs from one learned cold, None where it does not."""
    if fit.words != cold.words:
        return "its words are not those of a model learned from the counts alone"
    if fit.anchors != cold.anchors:
        return "its anchors are not those of a model learned from the counts alone"
    carried = fingerprint(fit, [], [], key)
    again = fingerprint(cold, [], [], key)
    if carried != again:
        return "the counts that it was carried over to are not those in Redis"
    # Both lie within their certificates of the exact model. Written so that a nan counts as a difference.
    apart = float(np.linalg.norm(fit.A - cold.A))
    if not apart <= fit.certificate.bound + cold.certificate.bound:
        return "its topics lie farther from those learned from the counts alone than both certificates allow"
    return None
