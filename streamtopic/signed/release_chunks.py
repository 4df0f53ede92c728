"""Releases as records of the releases topic: chunks under keys `version/chunk`, put together by their digest."""

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

# Below the 1 MiB of the topic's `max.message.bytes`, with room for key and headers.
CHUNK_BYTES = 900 << 10
RELEASE_BYTES = 256 << 20
"""The longest release, and the memory of a reader for unfinished ones: 60 million numbers, which are 60,000 words and
1,000 topics."""

MAX_CHUNKS = -(-RELEASE_BYTES // CHUNK_BYTES)
MAX_PENDING = 8
# Anybody who can write junk can write much of it: after these many lines only every thousandth record is logged.
LOGGED = 20
# One spelling for each number: with "01" beside "1" a release would have two sets of keys. 18 digits fit into 64 bits.
KEY = re.compile(rb"([1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8})\Z")
RETIRED = "st-retired"
NUMBER = re.compile(rb"(0|[1-9][0-9]{0,17})\Z")
DIGEST = re.compile(rb"[0-9a-f]{64}\Z")

logger = logging.getLogger("streamtopic.signed")


@dataclass(frozen=True, slots=True)
class Assembled:
    """Bytes of a release whose chunks are all there and fit their digest. The signature is not yet checked.

    version: number in the keys of its chunks.
    chunks: number of chunks.
    offset: of the first of them in the log.
    """

    version: int
    data: bytes
    chunks: int = field(default=1, compare=False)
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Removed:
    """A version with a tombstone for one of its chunks.

    Anybody may have written the tombstone: it erases bytes and withdraws nothing. Only a signed envelope or statement
    withdraws.

    retired: whether the tombstone says that the version was erased for its age; such a version may still be used.
    """

    version: int
    retired: bool = False


def to_messages(version: int, data: bytes) -> list[Message]:
    """Return the records of a sealed release, each value at most 900 KiB.

    Raises CannotLearn for a release that is longer than readers accept.
    """
    if len(data) > RELEASE_BYTES:
        mebibytes = len(data) / 2**20
        raise CannotLearn(
            "release-size",
            f"version {version} has {mebibytes:,.0f} MiB, and readers accept {RELEASE_BYTES >> 20}: lower `max_words` "
            "or `topics`",
        )
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    digest = hashlib.sha256(data).hexdigest().encode()
    # In each record, so that a reader can tell from any of them which chunks belong together and when all are there.
    shared = (("version", b"%d" % version), ("chunks", b"%d" % len(pieces)), ("sha256", digest))
    messages = []
    for chunk, piece in enumerate(pieces):
        headers = (*shared, ("chunk", b"%d" % chunk))
        messages.append(Message(_key(version, chunk), piece, headers, partition=0))
    return messages


def tombstones(version: int, chunks: int, *, retired: bool = False) -> list[Message]:
    """Return the records that erase a version from the compacted topic.

    chunks: number of its chunks.
    retired: whether it is erased for its age and not withdrawn.
    """
    headers = ((RETIRED, b""),) if retired else ()
    return [Message(_key(version, chunk), None, headers, partition=0) for chunk in range(chunks)]


def _key(version: int, chunk: int) -> bytes:
    return b"%d/%d" % (version, chunk)


def version_of(key: bytes | None) -> int:
    """Return the version to which a record with this key belongs, 0 for a record that is not a chunk."""
    place = KEY.match(key or b"")
    return int(place[1]) if place else 0


# Version, digest and number of chunks: records that disagree on one of these belong to different releases.
_Key = tuple[int, bytes, int]


@dataclass(slots=True)
class _Pending:
    """Chunks of a release that is not whole yet.

    chunks: number of chunks of the whole release.
    offset: of the first record.
    pieces: chunk to its bytes.
    size: of all pieces, in bytes.
    """

    chunks: int
    offset: int
    pieces: dict[int, bytes]
    size: int = 0


class Assembler:
    """Takes records in the order of the log and returns whole releases, never half ones.

    Memory is bounded: at most 8 unfinished releases with RELEASE_BYTES together are kept. The oldest is dropped first.

    skipped: number of records that were passed over and of unfinished releases that were dropped.
    counted: offset before which records are already in `skipped`, where the log is read a second time.
    """

    def __init__(self) -> None:
        self._pending: dict[_Key, _Pending] = {}
        self._size = 0
        self.skipped = 0
        self.counted = 0

    def take(self, record: Record) -> Assembled | Removed | None:
        """Return the release that the record completes or removes, None if it does neither.

        A record that is not a chunk, and cannot be a statement or key list, is passed over.
        """
        place = KEY.match(record.key or b"")
        if place is None:
            if record.key not in (STATEMENT_KEY, KEYS_KEY):
                self.skip(record, "its key does not belong to a release")
            return None
        version, chunk = int(place[1]), int(place[2])
        if record.value is None:
            for key in [key for key in self._pending if key[0] == version]:
                self._drop(key)
            return Removed(version, retired=record.header(RETIRED) is not None)
        wrong = _wrong(record, record.value, place[1], chunk)
        if wrong is not None:
            self.skip(record, wrong)
            return None
        digest = record.header("sha256") or b""
        chunks = int(record.header("chunks") or b"1")
        key = (version, digest, chunks)
        pending = self._pending.setdefault(key, _Pending(chunks, record.offset, {}))
        self._keep(pending, chunk, record.value)
        if len(pending.pieces) < chunks:
            self._bound(record, key)
            return None
        self._drop(key)
        data = b"".join(pending.pieces[number] for number in range(chunks))
        if hashlib.sha256(data).hexdigest().encode() == digest:
            return Assembled(version, data, chunks, pending.offset)
        self.skip(record, f"the chunks of version {version} do not fit their digest")
        return None

    def skip(self, record: Record, reason: str) -> None:
        """Count and log a record that is passed over; one before `counted` was counted and logged already."""
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
            # The newest has just got a chunk. It goes only if it is too large by itself.
            oldest = next(key for key in self._pending if key != newest or len(self._pending) == 1)
            self._drop(oldest)
            self.skip(record, f"it came while version {oldest[0]} was unfinished, which is dropped: too many are")

    def _drop(self, key: _Key) -> None:
        self._size -= self._pending.pop(key).size


def _wrong(record: Record, value: bytes, version: bytes, chunk: int) -> str | None:
    """Return why `to_messages` cannot have made this record, None where it may have."""
    chunks, digest = record.header("chunks") or b"", record.header("sha256") or b""
    named = record.header("version") == version and record.header("chunk") == b"%d" % chunk
    if not named or not NUMBER.match(chunks) or not DIGEST.match(digest):
        return "its headers are not those of a chunk"
    if not chunk < int(chunks) <= MAX_CHUNKS:
        return "its headers are not those of a chunk"
    if len(value) > CHUNK_BYTES:
        return f"its value has {len(value)} bytes, and a chunk has at most {CHUNK_BYTES}"
    return None
