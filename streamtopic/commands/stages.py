"""Stages of the demo: timed for its report, shown to a person as they pass."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamtopic.console import duration, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.console import Update

__all__ = ["Stages"]


class Stages:
    """Times each stage, and tells a person at the terminal as they pass."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @property
    def total(self) -> float:
        """Seconds since the first stage began."""
        return round(time.perf_counter() - self._start, 4)

    @contextmanager
    def stage(self, name: str, unit: str = "documents") -> Iterator[Update]:
        """Time a stage under this name; yields `update(done, total)` for its progress bar."""
        start = time.perf_counter()
        with progress(name, unit, quiet=self.quiet) as update:
            yield update
        self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Record a stage that was timed elsewhere."""
        key = name.replace(" ", "_")
        self.seconds[key] = round(self.seconds.get(key, 0.0) + seconds, 4)
        if not self.quiet:
            sys.stdout.write(f"  {name:28} {duration(seconds):>8}\n")
            sys.stdout.flush()
