"""Asks every process how it is all along, as a supervisor would.

A process that is killed or stopped does not answer, which is no finding. One that answers must say that it lives.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from campaign.processes import Worker

__all__ = ["Monitor", "Red"]

_PATIENCE = 5.0


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
    """Asks processes for `/livez`, each in a thread of its own, as long as the block runs.

    workers: to ask.
    every: seconds between two questions.
    """

    def __init__(self, workers: Sequence[Worker], *, every: float = 1.0) -> None:
        self.reds: list[Red] = []
        self.asked: Counter[str] = Counter()
        self._every = every
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

    def warmed(self) -> None:
        """Forgive every red until now: on a fresh machine every process compiles the kernels first, all at once."""
        self.reds.clear()

    def false_alarms(self) -> list[str]:
        """Return the findings about processes that said they stood still."""
        return [f"{red.name} was red for {red.last - red.first:.0f} s: {red.said}" for red in self.reds]

    def _watch(self, worker: Worker) -> None:
        red: Red | None = None
        while not self._done.is_set():
            answer = _ask(worker, "/livez")
            red = self._judged(worker, answer, red)
            self._done.wait(self._every)

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


def _ask(worker: Worker, path: str) -> tuple[int, str] | None:
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
