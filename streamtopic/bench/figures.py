"""The figures that a benchmark reports, and how time, memory and processes of its own are measured."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.topics.fit import TopicFit

__all__ = ["Figure", "best_of", "certified", "cpu_timed", "peak_bytes", "printed_by", "timed"]

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
    whose = [resource.RUSAGE_SELF, *([resource.RUSAGE_CHILDREN] if children else [])]
    return max(resource.getrusage(who).ru_maxrss for who in whose) * (1 if sys.platform == "darwin" else 1024)


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Run once; (seconds, result)."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def cpu_timed(function: Callable[[], T]) -> tuple[float, T]:
    """Run once; (processor seconds of this process, its threads and the children that it waited for, result)."""
    before = _processor_seconds()
    result = function()
    return _processor_seconds() - before, result


def _processor_seconds() -> float:
    spans = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(span.ru_utime + span.ru_stime for span in spans)


def certified(fit: TopicFit) -> TopicFit:
    """Return a model with its certificate, which is computed on first use: its time belongs to the model's."""
    _ = fit.certificate.bound
    return fit


def printed_by(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a module as a program of its own, so that its memory is not counted here; return what it printed.

    environment: its variables; None for those of this process.

    Raises CheckFailed unless it ends with status 0.
    """
    program = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  ours
    if done.returncode != 0:
        raise CheckFailed(f"`{' '.join(program[1:4])}` ended with status {done.returncode}: see its output above")
    return done.stdout


def best_of(times: int, function: Callable[[], object]) -> float:
    """Return the least seconds of several runs: other work on the machine can only make a run longer."""
    return min(timed(function)[0] for _ in range(times))
