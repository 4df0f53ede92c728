"""Merging beside ingest: a little at a time, the larger merges by a thread of their own."""

import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Event, Thread

from streamtopic.state.compaction import Group, Merged, due, fold, merge, swap
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.outcomes import AlreadyApplied, Applied, Outcome, Stale
from streamtopic.state.partition import PartitionState

__all__ = ["Compactor"]

# Pairs that are merged at once, in about a tenth of a second.
_AT_ONCE = 1 << 21
# Beyond so many segments, ingest waits for the merge: otherwise Redis would fill up with what is not yet merged.
_MOST_SEGMENTS = 64
_LEAST_ROOM = 256 << 20
_JOIN_SECONDS = 3.0


class Compactor:
    """Keeps the segments of a partition few, and what was replaced small, for its one writer."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        # In a list, so that a thread that adds to it does not keep this object alive.
        self._spent = [0.0]
        self._stopped = Event()
        self._threads: list[Thread] = []
        # A merge in the background ends early with the program, and when the partition is given up.
        weakref.finalize(self, _stop, self._stopped, self._threads)
        self._running: Future[Merged | Stale] | None = None
        self._replaced: deque[ManifestEntry] = deque()

    @property
    def spent(self) -> float:
        """Processor seconds that merges have taken so far, in any thread."""
        return self._spent[0]

    def step(self, base_epoch: int | None) -> bool:
        """Fold, merge or take over what was merged, at most one of them; return whether anything was changed.

        base_epoch: epoch of the base model, None before the first; epochs up to it become one. Raises as `merge`, and
        TakenOver where another writer has the partition.
        """
        result = self._advance(base_epoch)
        if isinstance(result, Stale):
            self._state.reload()
        return isinstance(result, Applied)

    def _advance(self, base_epoch: int | None) -> Outcome:
        folded = fold(self._state, base_epoch)
        if not isinstance(folded, AlreadyApplied):
            return folded
        merged = self._next()
        if merged is None or isinstance(merged, Stale):
            return merged or AlreadyApplied()
        result = swap(self._state, merged, early=self._early(merged))
        if isinstance(result, Applied):
            self._replaced.extend(merged.group)
        return result

    def _next(self) -> Merged | Stale | None:
        """Return a merge that is done, None where there is none yet."""
        if self._running is None:
            group = due(self._state)
            if group is None:
                return None
            if sum(entry.pairs for entry in group) <= _AT_ONCE:
                return _timed(self._spent, lambda: merge(self._state, group))
            self._running = self._start(group)
        if not self._running.done() and len(self._state.manifest) < _MOST_SEGMENTS:
            return None
        running, self._running = self._running, None
        return running.result()

    def _start(self, group: Group) -> Future[Merged | Stale]:
        found = Future[Merged | Stale]()
        state, stopped, spent = self._state, self._stopped, self._spent
        work = partial(_timed, spent, lambda: merge(state, group, stopped.is_set))
        thread = Thread(target=_settle, args=(found, work), daemon=True)
        self._threads[:] = [thread]
        thread.start()
        return found

    def _early(self, merged: Merged) -> list[ManifestEntry]:
        """Return replaced segments, the oldest, that take room which those that count would not."""
        here = {entry.name for entry in self._state.manifest}
        room = max(_LEAST_ROOM, sum(entry.size for entry in self._state.manifest))
        size = sum(entry.size for entry in (*self._replaced, *merged.group))
        early = []
        while self._replaced and (size > room or len(self._replaced) > 16 * _MOST_SEGMENTS):
            entry = self._replaced.popleft()
            size -= entry.size
            # One that was replaced counts again where Redis was set back to before.
            if entry.name not in here:
                early.append(entry)
        return early


def _timed(spent: list[float], work: Callable[[], Merged | Stale]) -> Merged | Stale:
    start = time.thread_time()
    try:
        return work()
    finally:
        spent[0] += time.thread_time() - start


def _settle(found: Future[Merged | Stale], work: Callable[[], Merged | Stale]) -> None:
    try:
        found.set_result(work())
    except BaseException as error:  # noqa: BLE001 -- whoever asks for the result gets it
        found.set_exception(error)


def _stop(stopped: Event, threads: list[Thread]) -> None:
    stopped.set()
    for thread in threads:
        thread.join(_JOIN_SECONDS)
