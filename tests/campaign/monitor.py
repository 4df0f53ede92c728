"""Asks every process how it is all along, as a supervisor and a Prometheus would, and keeps the answers.

A process that is killed or stopped does not answer, which is no finding. One that answers must say that it lives,
unless everything that it waits for has stood still for a minute.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from campaign.processes import Worker

__all__ = ["LATEST", "SCRAPE_EVERY", "SOONEST", "Monitor", "Red", "Scrape", "Series", "ask", "owned", "shown", "total"]

SOONEST, LATEST = 60.0, 75.0
"""Seconds from the begin of a stall within which `/livez` must turn red, by `STALLED_AFTER`."""
SCRAPE_EVERY = 15.0
"""Seconds between two questions for `/metrics`, as the manual proposes."""
_PATIENCE = 5.0
# A look is late by its pause, and by what a busy machine adds to it.
_LATE = 2.0

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a series, and its labels with their values."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one process showed at one moment.

    time: seconds, of a monotonic clock.
    values: of its series; None where it did not answer.
    """

    time: float
    values: Mapping[Series, float] | None


@dataclass(slots=True)
class Red:
    """A time in which a process that answered said that it did not get on.

    name: of the process.
    first, last: times of the first and the last such answer.
    said: the first answer.
    """

    name: str
    first: float
    last: float
    said: str


class Monitor:
    """Asks processes for `/livez` and `/metrics`, each in a thread of its own, as long as the block runs.

    workers: to ask.
    every: seconds between two questions for `/livez`.
    scrape_every: seconds between two for `/metrics`.
    """

    def __init__(self, workers: Sequence[Worker], *, every: float = 1.0, scrape_every: float = SCRAPE_EVERY) -> None:
        self.begun = time.monotonic()
        self.scrapes: dict[str, list[Scrape]] = {worker.name: [] for worker in workers}
        self.reds: list[Red] = []
        self.asked: Counter[str] = Counter()
        self._workers = list(workers)
        self._every, self._scrape_every = every, scrape_every
        self._stalls: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(worker,), daemon=True) for worker in workers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def stalled(self, begin: float, end: float) -> list[str]:
        """Take that nothing could get on between two times, and return which processes did not say so in time."""
        self._stalls.append((begin, end))
        said = {red.name: red.first - begin for red in self.reds if begin <= red.first <= end}
        findings = []
        for worker in self._workers:
            after = said.get(worker.name)
            if worker.running and (after is None or not SOONEST <= after <= LATEST + _LATE):
                told = "never" if after is None else f"after {after:.0f} s"
                findings.append(
                    f"{worker.name} turned red {told} of a stall, not within {SOONEST:.0f} to {LATEST:.0f} s"
                )
        return findings

    def warmed(self) -> None:
        """Forgive every red until now: on a fresh machine every process compiles the kernels first, all at once."""
        self.reds.clear()

    def false_alarms(self) -> list[str]:
        """Return the findings about processes that said they stood still when nothing had stalled."""
        return [
            f"{red.name} was red for {red.last - red.first:.0f} s without a stall: {red.said}"
            for red in self.reds
            # Red goes on for a moment when a stall is over, and may begin then in a process that has just missed it.
            if not any(begin + SOONEST <= red.first <= end + _LATE for begin, end in self._stalls)
        ]

    def shown(self) -> list[Mapping[Series, float]]:
        """Return what each process that answers shows now."""
        return shown(self._workers)

    def _watch(self, worker: Worker) -> None:
        red: Red | None = None
        scrapes = self.scrapes[worker.name]
        while not self._done.is_set():
            answer = ask(worker, "/livez")
            red = self._judged(worker, answer, red)
            if self._turns() > len(scrapes):
                values = None if answer is None else _scraped(worker)
                # One for each turn, however long the answer took, so that all series have the same moments.
                turns = range(len(scrapes), self._turns())
                scrapes += [Scrape(self.begun + turn * self._scrape_every, values) for turn in turns]
            self._done.wait(self._every)

    def _turns(self) -> int:
        """Return how many scrapes there should be by now."""
        return 1 + int((time.monotonic() - self.begun) / self._scrape_every)

    def _judged(self, worker: Worker, answer: tuple[int, str] | None, red: Red | None) -> Red | None:
        """Return the red time that lasts after an answer to `/livez`, if one does. red: that of the answer before."""
        now = time.monotonic()
        if answer is None:
            return None
        self.asked[worker.name] += 1
        status, text = answer
        if status == HTTPStatus.OK:
            return None
        if red is None:
            red = Red(worker.name, now, now, text.strip())
            self.reds.append(red)
        red.last = now
        return red


def ask(worker: Worker, path: str) -> tuple[int, str] | None:
    """Return status and text of what a process answers, None where it does not answer."""
    if worker.metrics_port is None or not worker.running:
        return None
    connection = http.client.HTTPConnection("127.0.0.1", worker.metrics_port, timeout=_PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def shown(workers: Iterable[Worker]) -> list[Mapping[Series, float]]:
    """Return what each process that answers shows now."""
    return [values for worker in workers if (values := _scraped(worker)) is not None]


def total(shown: Iterable[Mapping[Series, float]], family: str, **labels: str) -> float:
    """Return the sum of a family over what several processes show. labels: with these values only."""
    found = 0.0
    for values in shown:
        for (name, have), value in values.items():
            found += value if name == family and labels.items() <= dict(have).items() else 0.0
    return found


def owned(worker: Worker) -> int:
    """Return how many partitions a process counts, 0 where it does not answer."""
    return int((_scraped(worker) or {}).get(("streamtopic_partitions_owned", ()), 0))


def _scraped(worker: Worker) -> dict[Series, float] | None:
    answer = ask(worker, "/metrics")
    if answer is None:
        return None
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(answer[1]):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found
