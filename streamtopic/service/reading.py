"""Records of one partition, decoded, the next ones while those before them are being counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from streamtopic.errors import StreamtopicError
from streamtopic.service.decoding import decode_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.service.decoding import Decoded
    from streamtopic.state import Lexicon
    from streamtopic.streams import EventLog

__all__ = ["ReadAhead"]

_BYTES = 8 << 20
_threads: WeakKeyDictionary[EventLog, ThreadPoolExecutor] = WeakKeyDictionary()


def _thread_of(log: EventLog) -> ThreadPoolExecutor:
    thread = _threads.get(log)
    if thread is None:
        thread = _threads[log] = ThreadPoolExecutor(1, "read")
    return thread


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records from `offset` on; more: whether they were as many as one read gives, so that there are likely more."""

    offset: int
    decoded: Decoded
    more: bool


class ReadAhead:
    """Reads a partition of a topic that has so many `partitions`.

    What is held is bounded: the records of one read, of 8 MiB, beside those that are being counted. ahead: whether to
    use a second thread at all. It is one for all partitions of a log, since a log may keep a connection for each
    thread that reads; and it reads only within calls, so nobody else need know of it.
    """

    def __init__(self, log: EventLog, topic: str, partition: int, partitions: int, *, ahead: bool = True) -> None:
        self._log = log
        self._topic = topic
        self._partition = partition
        self._partitions = partitions
        self._thread = _thread_of(log) if ahead else None
        self._ready: _Batch | None = None

    def at(self, offset: int, lexicon: Lexicon, max_records: int) -> Decoded | None:
        """Return at least one record from `offset` on; None at the end of the log."""
        ready = self._ready
        if ready is None or ready.offset != offset:
            ready = self._now(offset, lexicon, max_records)
        elif ready.decoded.lexicon is not lexicon:
            ready = _Batch(offset, decode_all(ready.decoded.records, lexicon, self._partitions), ready.more)
        self._ready = ready
        return None if ready is None else ready.decoded

    @contextmanager
    def beyond(self, used: Decoded, rest: Decoded | None, max_records: int) -> Iterator[None]:
        """Have what follows the used records, the first of those that `at` gave, at hand; read it meanwhile if need be.

        If what is done meanwhile fails, the used records stay at hand instead.
        """
        more = self._ready is not None and self._ready.more
        if rest is not None or self._thread is None or not more:
            yield
            self._ready = None if rest is None else _Batch(used.next_offset, rest, more)
            return
        future = self._thread.submit(self._read, used.next_offset, used.lexicon, max_records)
        try:
            yield
            # Whatever goes wrong in reading ahead will go wrong again when it is read in turn, and is reported then.
            self._ready = None if isinstance(future.exception(), StreamtopicError) else future.result()
        finally:
            future.exception()

    def _now(self, offset: int, lexicon: Lexicon, max_records: int) -> _Batch | None:
        if self._thread is None:
            return self._read(offset, lexicon, max_records)
        return self._thread.submit(self._read, offset, lexicon, max_records).result()

    def _read(self, offset: int, lexicon: Lexicon, max_records: int) -> _Batch | None:
        records = self._log.read(self._topic, self._partition, offset, max_records, _BYTES)
        if not records:
            return None
        size = sum(len(record.value or b"") for record in records)
        more = len(records) >= max_records or size >= _BYTES // 2
        return _Batch(offset, decode_all(records, lexicon, self._partitions), more)
