"""Records of one partition, decoded, the next ones while those before them are being counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
        self._ready: tuple[int, Decoded] | None = None

    def at(self, offset: int, lexicon: Lexicon, max_records: int) -> Decoded | None:
        """Return at least one record from `offset` on; None at the end of the log."""
        if self._ready is None or self._ready[0] != offset:
            self._ready = self._now(offset, lexicon, max_records)
        elif self._ready[1].lexicon is not lexicon:
            self._ready = offset, decode_all(self._ready[1].records, lexicon, self._partitions)
        return None if self._ready is None else self._ready[1]

    @contextmanager
    def beyond(self, used: Decoded, rest: Decoded | None, max_records: int) -> Iterator[None]:
        """Have what follows the used records at hand, read meanwhile where it is not the rest of what was read.

        If what is done meanwhile fails, the used records stay at hand instead.
        """
        if rest is not None or self._thread is None or not self._goes_on(used, max_records):
            yield
            self._ready = None if rest is None else (used.next_offset, rest)
            return
        future = self._thread.submit(self._read, used.next_offset, used.lexicon, max_records)
        try:
            yield
            # Whatever goes wrong in reading ahead will go wrong again when it is read in turn, and is reported then.
            self._ready = None if isinstance(future.exception(), StreamtopicError) else future.result()
        finally:
            future.exception()

    def _now(self, offset: int, lexicon: Lexicon, max_records: int) -> tuple[int, Decoded] | None:
        if self._thread is None:
            return self._read(offset, lexicon, max_records)
        return self._thread.submit(self._read, offset, lexicon, max_records).result()

    def _read(self, offset: int, lexicon: Lexicon, max_records: int) -> tuple[int, Decoded] | None:
        records = self._log.read(self._topic, self._partition, offset, max_records, _BYTES)
        return (offset, decode_all(records, lexicon, self._partitions)) if records else None

    def _goes_on(self, used: Decoded, max_records: int) -> bool:
        """Whether the read that ended with these was as large as it may be, so that there is likely more."""
        return len(used.records) >= max_records or used.bytes >= _BYTES // 2
