"""Health of a process: each of its loops reports its progress, and a silence of `STALLED_AFTER` is a fault.

The loop of ingest makes progress with each partition in which it either counts records or finds the end of the log; the
loops of scheduler and publisher with each round that ends. So a process is not well because it answers, but because its
work moves. A partition that is left behind is seen by its lag.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["MARGIN", "STALLED_AFTER", "Health", "Verdict"]

STALLED_AFTER = 60.0
"""Seconds without progress after which work that waits is stalled: longer than a server takes to fail over, and than a
client of Kafka takes to give a request up."""

MARGIN = 5.0
"""Seconds beyond the limit: the last sign of life may be a little older than the stall."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a process is, at one moment.

    live: nothing has stood still for too long, or the process is exempt.
    ready: it is live, has begun its work, neither recovers nor waits for a server, and nothing is wrong with its log.
    findings: what has stopped, and for how long, in words; then what is wrong with the log.
    busy: why it is exempt, to seconds since then.
    waiting: why the work does not get on for now, "" while it does.
    """

    live: bool
    ready: bool
    findings: tuple[str, ...]
    busy: Mapping[str, float]
    waiting: str


class Health:
    """Keeps the last sign of life of each loop. Safe with several threads.

    stalled_after: seconds of silence that are too long.
    loops: names of the loops that this process has from its start on; the first one is meant where none is named.
    clock: seconds that only grow.
    """

    def __init__(
        self, stalled_after: float, loops: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = stalled_after + MARGIN
        self._clock = clock
        self._mutex = threading.RLock()
        self._signs: dict[str, float] = dict.fromkeys(loops, clock())
        self._begun = set[str]()
        self._main = loops[0]
        self._busy: dict[str, list[float]] = {}
        self._exempt_since = 0.0
        self._waiting: dict[str, str] = {}
        self._faults: tuple[str, ...] = ()

    def moved(self, loop: str = "") -> None:
        """Take that a loop has got on."""
        name = loop or self._main
        with self._mutex:
            self._signs[name] = self._clock()
            self._begun.add(name)
            self._waiting.pop(name, None)

    def waits(self, reason: str, loop: str = "") -> None:
        """Note that a loop does not get on for now, until a server answers again."""
        with self._mutex:
            self._waiting[loop or self._main] = reason

    def found(self, faults: Iterable[str]) -> None:
        """Take what is wrong with the log now, in words; nothing is wrong any more if it is empty."""
        with self._mutex:
            self._faults = tuple(faults)

    @contextmanager
    def exempt(self, reason: str) -> Iterator[None]:
        """Find nothing as long as the block runs; the time that it takes is no time without progress."""
        with self._mutex:
            if not self._busy:
                self._exempt_since = self._clock()
            self._busy.setdefault(reason, []).append(self._clock())
        try:
            yield
        finally:
            with self._mutex:
                self._busy[reason].pop()
                if not self._busy[reason]:
                    del self._busy[reason]
                if not self._busy:
                    # Not begun again: what has stopped would never be found if models are made again and again.
                    now = self._clock()
                    spent = now - self._exempt_since
                    self._signs = {name: min(at + spent, now) for name, at in self._signs.items()}

    @property
    def verdict(self) -> Verdict:
        """How the process is now."""
        with self._mutex:
            now = self._clock()
            idle = {name: now - at for name, at in sorted(self._signs.items())}
            busy = {reason: now - min(since) for reason, since in self._busy.items()}
            findings = tuple(
                _finding(name, seconds, self._waiting.get(name, ""))
                for name, seconds in idle.items()
                if seconds >= self._limit
            )
            live = bool(busy) or not findings
            waiting = next(iter(self._waiting.values()), "")
            hindered = waiting or self._faults
            ready = live and "recovering" not in busy and not hindered and self._signs.keys() <= self._begun
            findings = (() if live else findings) + self._faults
            return Verdict(live, ready, findings, busy, waiting)


def _finding(name: str, seconds: float, waiting: str) -> str:
    said = f"{name} has made no progress for {seconds:.0f} s"
    return f"{said}: {waiting}" if waiting else said
