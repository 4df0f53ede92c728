"""Releases as records of the releases topic: chunks under `version/chunk`, taken together by their digest."""

import hashlib
import re
from dataclasses import dataclass

from streamtopic.streams import Message, Record

__all__ = ["CHUNK_BYTES", "Assembled", "Assembler", "Removed", "to_messages", "tombstones"]

CHUNK_BYTES = 900 << 10
MAX_CHUNKS = 4_096
MAX_PENDING = 8
KEY = re.compile(rb"([1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8})\Z")
RETIRED = "st-retired"
NUMBER = re.compile(rb"(0|[1-9][0-9]{0,17})\Z")


@dataclass(frozen=True, slots=True)
class Assembled:
    """Bytes of a release whose chunks are all there and fit their digest; the signature is still to be checked."""

    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Removed:
    """A version of which a chunk was tombstoned; `retired`: for its age, while it may still be used."""

    version: int
    retired: bool = False


def to_messages(version: int, data: bytes) -> list[Message]:
    """Records of a sealed release, each value at most 900 KiB."""
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    digest = hashlib.sha256(data).hexdigest().encode()
    shared = (("version", b"%d" % version), ("chunks", b"%d" % len(pieces)), ("sha256", digest))
    return [
        Message(b"%d/%d" % (version, chunk), piece, (*shared, ("chunk", b"%d" % chunk)), partition=0)
        for chunk, piece in enumerate(pieces)
    ]


def tombstones(version: int, chunks: int, *, retired: bool = False) -> list[Message]:
    """Records that erase a version of `chunks` chunks from a compacted topic: a withdrawn one, or one past its time."""
    headers = ((RETIRED, b""),) if retired else ()
    return [Message(b"%d/%d" % (version, chunk), None, headers, partition=0) for chunk in range(chunks)]


class Assembler:
    """Takes records in the order of the log and gives back whole releases, never half ones.

    Bounded: a version has at most 4,096 chunks, and at most 8 unfinished ones are kept, the oldest going first.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[int, bytes, int], dict[int, bytes]] = {}

    def take(self, record: Record) -> Assembled | Removed | None:
        """What the record completes or removes, None if nothing. A record that is no chunk is passed over."""
        place = KEY.match(record.key or b"")
        if place is None:
            return None
        version, chunk = int(place[1]), int(place[2])
        if record.value is None:
            self._forget(version)
            return Removed(version, retired=record.header(RETIRED) is not None)
        chunks, digest = record.header("chunks") or b"", record.header("sha256") or b""
        named = record.header("version") == place[1] and record.header("chunk") == place[2]
        if not named or not NUMBER.match(chunks) or not chunk < int(chunks) <= MAX_CHUNKS:
            return None
        key = (version, digest, int(chunks))
        pieces = self._pending.setdefault(key, {})
        pieces[chunk] = record.value
        if len(pieces) < int(chunks):
            if len(self._pending) > MAX_PENDING:
                del self._pending[next(iter(self._pending))]
            return None
        del self._pending[key]
        data = b"".join(pieces[place] for place in range(int(chunks)))
        return Assembled(version, data) if hashlib.sha256(data).hexdigest().encode() == digest else None

    def _forget(self, version: int) -> None:
        self._pending = {key: pieces for key, pieces in self._pending.items() if key[0] != version}
