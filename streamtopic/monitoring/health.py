"""Health of a process: each loop and each partition reports its progress, and a silence of `STALLED_AFTER` is a fault.

A partition makes progress with each look that either counts records or finds the end of its log; the loops of scheduler
and publisher with each round that ends. So a process is not well because it answers, but because its work moves.

A partition waits for its turn while others are counted, which takes long if a process has many and all lag. So it is
found only once whole rounds have passed it by; while no round ends, its loop is found.
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
_TURNS = 2


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
    """Keeps the last sign of life of each loop and partition. Safe with several threads.

    stalled_after: seconds of silence that are too long.
    loops: names of the loops that this process has from its start on; partitions are counted in the first of them.
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
        self._rounds = 0
        self._last_round: dict[str, int] = {}
        self._main = loops[0]
        self._loops = frozenset(loops)
        self._busy: dict[str, list[float]] = {}
        self._exempt_since = 0.0
        self._waiting: dict[str, str] = {}
        self._faults: tuple[str, ...] = ()

    def moved(self, name: str) -> None:
        """Take that a loop has ended a round, or that a partition, watched from now on, has got on within one."""
        with self._mutex:
            self._signs[name] = self._clock()
            self._begun.add(name)
            self._waiting.pop(name if name in self._loops else self._main, None)
            if name == self._main:
                self._rounds += 1
            elif name not in self._loops:
                self._last_round[name] = self._rounds
                # Its loop gets on, although no round has ended.
                self._signs[self._main] = self._clock()

    def gave_up(self, name: str) -> None:
        """Watch a partition no longer."""
        with self._mutex:
            self._signs.pop(name, None)
            self._last_round.pop(name, None)

    def waits(self, reason: str, loop: str = "") -> None:
        """Note that a loop does not get on for now, until a server answers again. loop: "" for the first."""
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
            late = {name: seconds for name, seconds in idle.items() if seconds >= self._limit and self._had_turns(name)}
            findings = tuple(_finding(name, seconds, self._hindrance(name)) for name, seconds in late.items())
            live = bool(busy) or not findings
            waiting = next(iter(self._waiting.values()), "")
            hindered = waiting or self._faults
            ready = live and "recovering" not in busy and not hindered and self._loops <= self._begun
            findings = (() if live else findings) + self._faults
            return Verdict(live, ready, findings, busy, waiting)

    def _hindrance(self, name: str) -> str:
        """Return why a loop, or the loop of a partition, waits; "" if it does not."""
        return self._waiting.get(name if name in self._loops else self._main, "")

    def _had_turns(self, name: str) -> bool:
        """Whether a loop, or a partition that two rounds have passed by: one may have begun before its last sign."""
        return name in self._loops or self._rounds - self._last_round[name] >= _TURNS


def _finding(name: str, seconds: float, waiting: str) -> str:
    said = f"{name} has made no progress for {seconds:.0f} s"
    return f"{said}: {waiting}" if waiting else said
