"""The figures that a benchmark reports."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Figure", "best_of", "timed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value with its unit; `target` says what it has to reach, where something is promised."""

    name: str
    value: float
    unit: str
    target: str = ""


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Run once; (seconds, result)."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def best_of(times: int, function: Callable[[], object]) -> float:
    """Return the least seconds of several runs: what the machine can do, less what else it was doing."""
    return min(timed(function)[0] for _ in range(times))
