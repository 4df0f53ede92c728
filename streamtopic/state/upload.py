"""Segment strings on their way to Redis, ahead of the commit that makes them count."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from streamtopic.state.connection import Connection
from streamtopic.state.keys import PartitionKeys

__all__ = ["Uploads", "upload"]

_SECONDS = 600
_WORTH_A_THREAD = 1 << 16


def upload(connection: Connection, keys: PartitionKeys, name: str, strings: Sequence[bytes], *, first: int = 0) -> None:
    """Put strings of a segment, from the one numbered `first` on, under a fresh id, to expire unless they are kept."""
    for k, string in enumerate(strings, first):
        _put(connection, keys, name, k, string)


def _put(connection: Connection, keys: PartitionKeys, name: str, k: int, string: bytes) -> None:
    # `NX`: a repetition must not touch strings that a commit has kept meanwhile, nor a zombie overwrite any.
    connection.call("SET", keys.segment(name, k), string, "NX", "EX", _SECONDS)


class Uploads:
    """Sends long strings of a flush by a thread of its own while the rest of the flush is being counted."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._thread: ThreadPoolExecutor | None = None
        self._sent: dict[tuple[str, int], Future[None]] = {}

    def begin(self) -> None:
        """Forget what was sent for flushes before."""
        self._sent.clear()

    def send(self, name: str, k: int, string: bytes) -> None:
        """Begin to send one string of a segment, if it is long."""
        if len(string) < _WORTH_A_THREAD:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "upload")
        self._sent[name, k] = self._thread.submit(_put, self._connection, self._keys, name, k, string)

    def finish(self, name: str, strings: Sequence[bytes]) -> None:
        """Return once all strings of a segment are there; a second time, all are sent again."""
        for k, string in enumerate(strings):
            sent = self._sent.pop((name, k), None)
            if sent is None or sent.exception() is not None:
                _put(self._connection, self._keys, name, k, string)
