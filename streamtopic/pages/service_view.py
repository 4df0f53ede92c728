"""Reads of a service for many browsers: one at a time, and each answer serves all who ask within a few seconds."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamtopic.errors import ComponentUnreachable
from streamtopic.service.opened import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings

__all__ = ["Answer", "ServiceView"]

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds that a request waits for its turn."""
_MOST_ANSWERS = 64
# An instance that no service runs is opened for each read, with a Redis of its own that starts and stops.
_RESTING = 30.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a read found.

    at: when it was read, seconds since 1970.
    """

    value: T
    at: float


class ServiceView:
    """Opens the service when something is read, and keeps what was read for a short time. Safe with several threads.

    ticks: seconds that only grow.
    """

    def __init__(self, settings: Settings, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._ticks = ticks
        self._mutex = threading.Lock()
        self._stack = ExitStack()
        self._service: Opened | None = None
        self._answers: dict[Hashable, tuple[float, Answer[Any]]] = {}
        self._apart: ServiceView | None = None

    def read(self, name: Hashable, work: Callable[[Opened], T], seconds: float = 2.0) -> Answer[T]:
        """Return what `work` finds, or what it found up to `seconds` ago under this name.

        Raises as `work`, and ComponentUnreachable if earlier reads take too long.
        """
        with self._turn():
            kept = self._answers.get(name)
            if kept is not None and self._ticks() < kept[0]:
                return kept[1]
            with self._opened() as service:
                answer = Answer(work(service), time.time())
                lasts = max(seconds, _RESTING if service.leads else 0.0)
            self._answers.pop(name, None)
            self._answers[name] = self._ticks() + lasts, answer
            # Whoever asks for many versions in turn must not fill the memory.
            while len(self._answers) > _MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            return answer

    def apart(self) -> ServiceView:
        """Return a view with a reader of its own, for what takes long. A folder has one process, so it has this one."""
        if self.settings.dir is not None:
            return self
        if self._apart is None:
            self._apart = ServiceView(self.settings, ticks=self._ticks)
        return self._apart

    def close(self) -> None:
        """Close the service, if it is open."""
        if self._apart is not None:
            self._apart.close()
        with self._turn():
            self._give_up()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # Kafka's and Redis's clients are for one thread at a time.
        if not self._mutex.acquire(timeout=PATIENCE):
            raise ComponentUnreachable(
                f"another look at the service has taken more than {PATIENCE:.0f} s: `streamtopic doctor` says which "
                "server is slow"
            )
        try:
            yield
        finally:
            self._mutex.release()

    @contextmanager
    def _opened(self) -> Iterator[Opened]:
        if self._service is None:
            self._service = self._stack.enter_context(opened(self.settings))
        try:
            yield self._service
        except BaseException:
            # The next read opens everything again: a connection of a server that was away may stay broken.
            self._give_up()
            raise
        # A folder belongs to one process at a time, so other commands would wait as long as it stays open.
        if self.settings.dir is not None:
            self._give_up()

    def _give_up(self) -> None:
        self._service = None
        self._stack.close()
