"""Segment strings on their way to Redis, ahead of the commit that makes them count."""

from collections.abc import Callable, Sequence
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
    """Encodes and sends the chunks of a large flush by a thread of its own, while the rest is being counted."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._thread: ThreadPoolExecutor | None = None
        self._sent: dict[tuple[str, int], Future[None]] = {}

    def begin(self) -> None:
        """Forget what was sent for flushes before."""
        self._sent.clear()

    def send(self, name: str, k: int, pairs: int, make: Callable[[], bytes]) -> Future[bytes]:
        """Begin to make and to send one string of a segment; one of few pairs is made at once and sent later."""
        if self._thread is None:
            if pairs < _WORTH_A_THREAD:
                made = Future[bytes]()
                made.set_result(make())
                return made
            self._thread = ThreadPoolExecutor(1, "upload")
        string = self._thread.submit(make)
        self._sent[name, k] = self._thread.submit(lambda: _put(self._connection, self._keys, name, k, string.result()))
        return string

    def finish(self, name: str, strings: Sequence[bytes]) -> None:
        """Return once all strings of a segment are there; a second time, all are sent again."""
        for k, string in enumerate(strings):
            sent = self._sent.pop((name, k), None)
            if sent is None or sent.exception() is not None:
                _put(self._connection, self._keys, name, k, string)
