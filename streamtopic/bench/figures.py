"""The figures that a benchmark reports."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Figure", "best_of", "peak_bytes", "timed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value with its unit; `target` is the value that it has to reach, empty if nothing is promised."""

    name: str
    value: float
    unit: str
    target: str = ""


def peak_bytes(*, children: bool = False) -> int:
    """Return the peak resident memory of this process in bytes; children: or of a child that it waited for."""
    import resource

    whose = [resource.RUSAGE_SELF, *([resource.RUSAGE_CHILDREN] if children else [])]
    return max(resource.getrusage(who).ru_maxrss for who in whose) * (1 if sys.platform == "darwin" else 1024)


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Run once; (seconds, result)."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def best_of(times: int, function: Callable[[], object]) -> float:
    """Return the least seconds of several runs: other work on the machine can only make a run longer."""
    return min(timed(function)[0] for _ in range(times))
