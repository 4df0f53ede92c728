"""The topic of releases: versions in chunks, each with the proof that it is in the ledger."""

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamtopic.errors import CannotLearn, InvalidRelease
from streamtopic.signed.ledger import Ledger
from streamtopic.signed.release import Release
from streamtopic.streams import EventLog, Message, Record, TopicNames, pages

__all__ = [
    "CHUNK_BYTES",
    "RELEASE_BYTES",
    "Refused",
    "ReleaseReader",
    "SentRelease",
    "proof_message",
    "sent_releases",
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
MAX_PENDING = 16
MAX_PROOFS = 10_000
# Anybody who can write junk can write much of it: after these many lines only every thousandth record is logged.
LOGGED = 20
# One spelling for each number: with "01" and "1" a release would have two sets of keys. 18 digits fit into 64 bits.
KEY = re.compile(rb"([1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8}|proof)\Z")
PROOF = b"proof"
# A proof has 63 hashes at most, and an entry and a checkpoint of a few kilobytes.
PROOF_BYTES = 64 << 10
NUMBER = re.compile(rb"(0|[1-9][0-9]{0,17})\Z")
DIGEST = re.compile(rb"[0-9a-f]{64}\Z")

logger = logging.getLogger("streamtopic.signed")


def to_messages(version: int, data: bytes) -> list[Message]:
    """Return the records of a release's bytes, each value at most 900 KiB.

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
    headers = (("chunks", b"%d" % len(pieces)), ("sha256", digest))
    return [Message(_key(version, chunk), piece, headers, partition=0) for chunk, piece in enumerate(pieces)]


def proof_message(version: int, proof: str) -> Message:
    """Return the record of the proof that a version is in the ledger. A newer proof takes its place."""
    return Message(b"%d/%s" % (version, PROOF), proof.encode(), partition=0)


def tombstones(version: int, chunks: int) -> list[Message]:
    """Return the records that erase a version from the compacted topic. chunks: number of its chunks."""
    keys = [*(_key(version, chunk) for chunk in range(chunks)), b"%d/%s" % (version, PROOF)]
    return [Message(key, None, partition=0) for key in keys]


def _key(version: int, chunk: int) -> bytes:
    return b"%d/%d" % (version, chunk)


def version_of(key: bytes | None) -> int:
    """Return the version to which a record with this key belongs, 0 for a record that is not a chunk."""
    place = KEY.match(key or b"")
    return int(place[1]) if place else 0


def _wrong(record: Record, chunk: int) -> str | None:
    """Return why `to_messages` cannot have made this record, None if it may have."""
    chunks = record.header("chunks") or b""
    if not NUMBER.match(chunks) or not DIGEST.match(record.header("sha256") or b""):
        return "its headers are not those of a chunk"
    if not chunk < int(chunks) <= MAX_CHUNKS or len(record.value or b"") > CHUNK_BYTES:
        return f"it is not one of at most {MAX_CHUNKS} chunks of at most {CHUNK_BYTES} bytes"
    return None


@dataclass(slots=True)
class SentRelease:
    """The records of a version that its topic holds; nothing is verified.

    keys: of its chunks and its proof.
    chunks: number of chunks that it has by what they say.
    """

    keys: set[bytes] = field(default_factory=set)
    chunks: int = 0

    @property
    def complete(self) -> bool:
        """Whether all of them are there."""
        return bool(self.chunks) and len(self.keys) > self.chunks

    @property
    def has_chunks(self) -> bool:
        """Whether a chunk of it is there: a single one may hold words of forgotten documents."""
        return any(PROOF not in key for key in self.keys)


def sent_releases(log: EventLog, model: str) -> dict[int, SentRelease]:
    """Return version to its records, of those that have any in the topic. Raises ComponentUnreachable."""
    topic = TopicNames(model).releases
    found: dict[int, SentRelease] = {}
    for page in pages(log, topic, 0, log.begin(topic, 0), log.end(topic, 0)):
        for record in page:
            place = KEY.match(record.key or b"")
            if place is None:
                continue
            sent = found.setdefault(int(place[1]), SentRelease())
            if record.value is None:
                sent.keys.discard(place[0])
            elif place[2] == PROOF:
                sent.keys.add(place[0])
            elif _wrong(record, int(place[2])) is None:
                sent.keys.add(place[0])
                sent.chunks = max(sent.chunks, int(record.header("chunks") or b"1"))
    return {version: sent for version, sent in found.items() if sent.keys}


@dataclass(frozen=True, slots=True)
class Refused:
    """Bytes that are not accepted as the release of this number. reason: why not."""

    version: int
    reason: InvalidRelease


@dataclass(slots=True)
class _Pending:
    """Chunks of a version that was not opened yet.

    chunks: number of chunks of the whole release.
    pieces: chunk to its bytes.
    refused: proof and number of the list of keys by which it was refused, None before.
    """

    chunks: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    refused: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces.values()))


# Version, digest and number of chunks: records that disagree on one of these belong to different releases.
_Key = tuple[int, bytes, int]


class ReleaseReader:
    """Takes records of a model's releases topic in the order of the log, and opens versions that are whole.

    A version that is refused is tried again once another proof of it or a newer list of keys has come. Memory is
    bounded: at most 16 versions that are not opened are kept, with RELEASE_BYTES together. The oldest is dropped first.

    ledger: read to its end before each `read`; it decides which bytes count.
    offset: where to continue; None before the first read.
    skipped: number of records that were passed over and of unfinished releases that were dropped.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.offset: int | None = None
        self.skipped = 0
        self._topic = TopicNames(ledger.keys.model).releases
        self._pending: dict[_Key, _Pending] = {}
        self._proofs: dict[int, str] = {}
        self._held: dict[int, str] = {}

    def digest(self, version: int) -> str | None:
        """Return the digest of a version that was opened, None for any other."""
        return self._held.get(version)

    def read(self, log: EventLog) -> Iterator[Release | Refused]:
        """Yield the news since the last call, up to the end of the log. Raises ComponentUnreachable."""
        if log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self.offset = log.begin(self._topic, 0)
        while records := log.read(self._topic, 0, self.offset):
            for record in records:
                yield from self.take(record)
            self.offset = records[-1].next_offset
        for key in list(self._pending):
            yield from self._open(key)

    def take(self, record: Record) -> Iterator[Release | Refused]:
        """Yield what a record brings. One that is neither chunk nor proof is passed over."""
        place = KEY.match(record.key or b"")
        if place is None:
            self._skip(record, "its key does not belong to a release")
            return
        version = int(place[1])
        own = [key for key in self._pending if key[0] == version]
        if record.value is None:
            # Anybody may have written the tombstone: it erases bytes and withdraws nothing. Only the ledger withdraws.
            for key in own:
                del self._pending[key]
            self._proofs.pop(version, None)
        elif place[2] == PROOF:
            # Bytes that are no text prove nothing.
            self._proofs[version] = record.value[: PROOF_BYTES + 1].decode(errors="replace")
            if len(self._proofs) > MAX_PROOFS:
                del self._proofs[next(iter(self._proofs))]
            for key in own:
                yield from self._open(key)
        elif (wrong := _wrong(record, int(place[2]))) is not None:
            self._skip(record, wrong)
        else:
            chunks = int(record.header("chunks") or b"")
            key = version, record.header("sha256") or b"", chunks
            self._pending.setdefault(key, _Pending(chunks)).pieces[int(place[2])] = record.value
            yield from self._open(key)
            self._bound(record, key)

    def _open(self, key: _Key) -> Iterator[Release | Refused]:
        """Open a version if all its chunks and its proof are there, unless the same proof was refused before."""
        version, digest, chunks = key
        pending, proof = self._pending[key], self._proofs.get(version)
        attempt = (proof or "", self.ledger.keys.sequence)
        if len(pending.pieces) < chunks or proof is None or pending.refused == attempt:
            return
        data = b"".join(pending.pieces[number] for number in range(chunks))
        sound = hashlib.sha256(data).hexdigest().encode() == digest
        self.skipped += not sound
        # One that was opened may be written again by a service that was killed.
        if not sound or self._held.get(version) == digest.decode():
            del self._pending[key]
            return
        try:
            release = self.ledger.open_release(version, data, proof)
        except InvalidRelease as error:
            pending.refused = attempt
            yield Refused(version, error)
            return
        del self._pending[key]
        self._held[version] = release.digest
        yield release

    def _bound(self, record: Record, newest: _Key) -> None:
        """Drop the oldest versions until the others keep within the bounds."""
        while len(self._pending) > MAX_PENDING or sum(one.size for one in self._pending.values()) > RELEASE_BYTES:
            # The newest has just got a chunk. It goes only if it is too large by itself.
            oldest = next(key for key in self._pending if key != newest or len(self._pending) == 1)
            del self._pending[oldest]
            self._skip(record, f"it came while version {oldest[0]} was not opened, which is dropped: too many are")

    def _skip(self, record: Record, reason: str) -> None:
        """Count and log a record that is passed over."""
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
