"""The service's own check of an update before it leaves: learned again from the counts alone, and compared.

Only an update that was carried over in memory is checked: one that was learned cold is what the check compares with.
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
    """When updates are checked: never, each one, or the first after `interval_ms` since the last check."""

    when: Literal["off", "version", "interval"] = "interval"
    interval_ms: int = 43_200_000

    def due(self, last: Mapping[str, Any] | None, now_ms: int) -> bool:
        """Whether the next update is checked. last: fields of the last check; one that did not pass is made again."""
        if self.when != "interval":
            return self.when == "version"
        return last is None or not last["passed"] or now_ms - last["at"] >= self.interval_ms


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a check. passed None: it could not be made; detail: in words, without figures before noise."""

    passed: bool | None
    detail: str
    seconds: float

    def fields(self, version: int, now_ms: int, suspects: tuple[int, ...]) -> dict[str, Any]:
        """Return what Redis keeps of it. suspects: versions made since the last model that was known to be right."""
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
    """Learn an update's snapshot cold, and compare it with the update's fit. key: that counts are digested under.

    Two models of the same counts lie at most the sum of both certificates apart. While this runs, both are in memory.
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
    if fit.words != cold.words:
        return "its words are not those of a model learned from the counts alone"
    if fit.anchors != cold.anchors:
        return "its anchors are not those of a model learned from the counts alone"
    one, other = (fingerprint(model, [], [], key) for model in (fit, cold))
    if one != other:
        return "the counts that it was carried over to are not those in Redis"
    if not float(np.linalg.norm(fit.A - cold.A)) <= fit.certificate.bound + cold.certificate.bound:
        return "its topics lie farther from those learned from the counts alone than both certificates allow"
    return None
