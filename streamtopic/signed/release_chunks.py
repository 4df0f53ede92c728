"""Releases as records of the releases topic: chunks under `version/chunk`, taken together by their digest."""

import hashlib
import logging
import re
from dataclasses import dataclass, field

from streamtopic.errors import CannotLearn
from streamtopic.signed.statement import KEYS_KEY, STATEMENT_KEY
from streamtopic.streams import Message, Record

__all__ = [
    "CHUNK_BYTES",
    "RELEASE_BYTES",
    "Assembled",
    "Assembler",
    "Removed",
    "to_messages",
    "tombstones",
    "version_of",
]

CHUNK_BYTES = 900 << 10
RELEASE_BYTES = 256 << 20
"""The longest release, and all that a reader keeps of unfinished ones: 60 million numbers, as of 60,000 words and
1,000 topics."""

MAX_CHUNKS = -(-RELEASE_BYTES // CHUNK_BYTES)
MAX_PENDING = 8
# Whoever can write junk can write much of it: after so many lines only every thousandth record is logged.
LOGGED = 20
KEY = re.compile(rb"([1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8})\Z")
RETIRED = "st-retired"
NUMBER = re.compile(rb"(0|[1-9][0-9]{0,17})\Z")
DIGEST = re.compile(rb"[0-9a-f]{64}\Z")

logger = logging.getLogger("streamtopic.signed")


@dataclass(frozen=True, slots=True)
class Assembled:
    """Bytes of a release whose chunks are all there and fit their digest; the signature is still to be checked.

    chunks: how many there were; offset: where the first of them came in the log.
    """

    version: int
    data: bytes
    chunks: int = field(default=1, compare=False)
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Removed:
    """A version of which a chunk was tombstoned; `retired`: for its age, while it may still be used.

    Anybody may have written that: it erases bytes, and withdraws nothing. A signed envelope or statement does.
    """

    version: int
    retired: bool = False


def to_messages(version: int, data: bytes) -> list[Message]:
    """Records of a sealed release, each value at most 900 KiB.

    Raises CannotLearn for one that is longer than any reader takes.
    """
    if len(data) > RELEASE_BYTES:
        raise CannotLearn(
            "release-size",
            f"version {version} has {len(data) / 2**20:,.0f} MiB, and readers take {RELEASE_BYTES >> 20}: lower "
            "`max_words` or `topics`",
        )
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


def version_of(key: bytes | None) -> int:
    """Version that a record with this key is a chunk of, 0 for a record that is not a chunk."""
    place = KEY.match(key or b"")
    return int(place[1]) if place else 0


_Key = tuple[int, bytes, int]
"""Version, digest and number of chunks: records that disagree on one of these belong to different releases."""


@dataclass(slots=True)
class _Pending:
    """Chunks of a release that is not whole yet. offset: where the first of them came."""

    chunks: int
    offset: int
    pieces: dict[int, bytes]
    size: int = 0


class Assembler:
    """Takes records in the order of the log and gives back whole releases, never half ones.

    Bounded: unfinished releases hold RELEASE_BYTES together, and are at most 8; the oldest goes first.
    skipped: records that were passed over, and unfinished releases that were dropped, each said in the program's log.
    counted: offset up to which the log was read before, where it is read again.
    """

    def __init__(self) -> None:
        self._pending: dict[_Key, _Pending] = {}
        self._size = 0
        self.skipped = 0
        self.counted = 0

    def take(self, record: Record) -> Assembled | Removed | None:
        """What the record completes or removes, None if nothing. A record that is not a chunk is passed over."""
        place = KEY.match(record.key or b"")
        if place is None:
            if record.key not in (STATEMENT_KEY, KEYS_KEY):
                self.skip(record, "its key does not belong to a release")
            return None
        version, chunk = int(place[1]), int(place[2])
        if record.value is None:
            for key in [key for key in self._pending if key[0] == version]:
                self._forget(key)
            return Removed(version, retired=record.header(RETIRED) is not None)
        wrong = _wrong(record, record.value, place[1], chunk)
        if wrong is not None:
            self.skip(record, wrong)
            return None
        key = (version, record.header("sha256") or b"", int(record.header("chunks") or b"1"))
        pending = self._pending.setdefault(key, _Pending(key[2], record.offset, {}))
        self._keep(pending, chunk, record.value)
        if len(pending.pieces) < pending.chunks:
            self._bound(record, key)
            return None
        self._forget(key)
        data = b"".join(pending.pieces[number] for number in range(pending.chunks))
        if hashlib.sha256(data).hexdigest().encode() == key[1]:
            return Assembled(version, data, pending.chunks, pending.offset)
        self.skip(record, f"the chunks of version {version} do not fit their digest")
        return None

    def skip(self, record: Record, reason: str) -> None:
        """Count a record that is passed over, and say which and why; one before `counted` was counted before."""
        if record.offset < self.counted:
            return
        self.skipped += 1
        if self.skipped <= LOGGED or self.skipped % 1_000 == 0:
            logger.warning(
                "record %d of %s/%d is passed over (%d so far): %s",
                record.offset,
                record.topic,
                record.partition,
                self.skipped,
                reason,
                extra={"event": "record_passed_over", "partition": record.partition, "offset": record.offset},
            )

    def _keep(self, pending: _Pending, chunk: int, piece: bytes) -> None:
        grown = len(piece) - len(pending.pieces.get(chunk, b""))
        pending.pieces[chunk] = piece
        pending.size += grown
        self._size += grown

    def _bound(self, record: Record, newest: _Key) -> None:
        """Drop the oldest unfinished releases until the others keep within the bounds."""
        while len(self._pending) > MAX_PENDING or self._size > RELEASE_BYTES:
            oldest = next(key for key in self._pending if key != newest or len(self._pending) == 1)
            self._forget(oldest)
            self.skip(
                record, f"it came before version {oldest[0]} was whole, which is dropped: too many are unfinished"
            )

    def _forget(self, key: _Key) -> None:
        self._size -= self._pending.pop(key).size


def _wrong(record: Record, value: bytes, version: bytes, chunk: int) -> str | None:
    """Say why `to_messages` cannot have made a record under the key of a chunk; None where it may have."""
    chunks, digest = record.header("chunks") or b"", record.header("sha256") or b""
    named = record.header("version") == version and record.header("chunk") == b"%d" % chunk
    if not named or not NUMBER.match(chunks) or not chunk < int(chunks) <= MAX_CHUNKS or not DIGEST.match(digest):
        return "its headers are not those of a chunk"
    if len(value) > CHUNK_BYTES:
        return f"its {len(value)} bytes are more than a chunk has"
    return None
