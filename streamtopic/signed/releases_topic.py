"""The topic of releases: versions in chunks, each with the proof that it is in the ledger."""

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from streamtopic.errors import CannotLearn, InvalidRelease
from streamtopic.signed.ledger import Ledger
from streamtopic.signed.release import Release
from streamtopic.streams import EventLog, Message, Record, TopicNames, pages

__all__ = [
    "CHUNK_BYTES",
    "RELEASE_BYTES",
    "Assembled",
    "Assembler",
    "Opened",
    "Refused",
    "ReleaseReader",
    "Removed",
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
MAX_PENDING = 8
MAX_PROOFS = 10_000
# Anybody who can write junk can write much of it: after these many lines only every thousandth record is logged.
LOGGED = 20
# One spelling for each number: with "01" and "1" a release would have two sets of keys. 18 digits fit into 64 bits.
KEY = re.compile(rb"([1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8}|proof)\Z")
PROOF = b"proof"
# A proof has 63 hashes at most, and an entry and a checkpoint of a few kilobytes.
PROOF_BYTES = 64 << 10
RETIRED = "st-retired"
NUMBER = re.compile(rb"(0|[1-9][0-9]{0,17})\Z")
DIGEST = re.compile(rb"[0-9a-f]{64}\Z")

logger = logging.getLogger("streamtopic.signed")


@dataclass(frozen=True, slots=True)
class Assembled:
    """Bytes of a release whose chunks are all there, fit their digest and have a proof. Nothing is verified yet.

    version: number in the keys of its records.
    proof: as it is next to its chunks.
    chunks: number of chunks.
    """

    version: int
    data: bytes
    proof: str
    chunks: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Removed:
    """A version with a tombstone for one of its chunks.

    Anybody may have written the tombstone: it erases bytes and withdraws nothing. Only the ledger withdraws.

    retired: whether the tombstone says that the version was erased for its age; such a version may still be used.
    """

    version: int
    retired: bool = False


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
    shared = (("version", b"%d" % version), ("chunks", b"%d" % len(pieces)), ("sha256", digest))
    messages = []
    for chunk, piece in enumerate(pieces):
        headers = (*shared, ("chunk", b"%d" % chunk))
        messages.append(Message(_key(version, chunk), piece, headers, partition=0))
    return messages


def proof_message(version: int, proof: str) -> Message:
    """Return the record of the proof that a version is in the ledger. A newer proof takes its place."""
    return Message(b"%d/%s" % (version, PROOF), proof.encode(), partition=0)


def tombstones(version: int, chunks: int, *, retired: bool = False) -> list[Message]:
    """Return the records that erase a version from the compacted topic.

    chunks: number of its chunks.
    retired: whether it is erased for its age and not withdrawn.
    """
    headers = ((RETIRED, b""),) if retired else ()
    keys = [*(_key(version, chunk) for chunk in range(chunks)), b"%d/%s" % (version, PROOF)]
    return [Message(key, None, headers, partition=0) for key in keys]


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
    pieces: chunk to its bytes.
    size: of all pieces, in bytes.
    """

    chunks: int
    pieces: dict[int, bytes]
    size: int = 0


class Assembler:
    """Takes records in the order of the log and returns whole releases with their proof, never half ones.

    Memory is bounded: at most 8 unfinished releases with RELEASE_BYTES together are kept. The oldest is dropped first.

    skipped: number of records that were passed over and of unfinished releases that were dropped.
    """

    def __init__(self) -> None:
        self._pending: dict[_Key, _Pending] = {}
        self._size = 0
        self._proofs: dict[int, str] = {}
        self.skipped = 0

    def take(self, record: Record) -> list[Assembled] | Removed:
        """Return the releases that the record completes; or the one that it removes.

        A record that is neither chunk nor proof is passed over.
        """
        place = KEY.match(record.key or b"")
        if place is None:
            self.skip(record, "its key does not belong to a release")
            return []
        version = int(place[1])
        if record.value is None:
            for key in [key for key in self._pending if key[0] == version]:
                self._drop(key)
            self._proofs.pop(version, None)
            return Removed(version, retired=record.header(RETIRED) is not None)
        if place[2] == PROOF:
            return self._prove(record, record.value, version)
        chunk = int(place[2])
        wrong = _wrong(record, record.value, place[1], chunk)
        if wrong is not None:
            self.skip(record, wrong)
            return []
        digest = record.header("sha256") or b""
        chunks = int(record.header("chunks") or b"1")
        key = (version, digest, chunks)
        pending = self._pending.setdefault(key, _Pending(chunks, {}))
        self._keep(pending, chunk, record.value)
        whole = self._whole(key)
        if not whole:
            self._bound(record, key)
        return whole

    def _prove(self, record: Record, proof: bytes, version: int) -> list[Assembled]:
        """Keep the proof of a version; return the releases of its number that are whole."""
        if len(proof) > PROOF_BYTES or (not proof.isascii() and not _is_text(proof)):
            self.skip(record, f"its value is not the proof of version {version}")
            return []
        self._proofs[version] = proof.decode()
        if len(self._proofs) > MAX_PROOFS:
            del self._proofs[next(iter(self._proofs))]
        return [one for key in list(self._pending) if key[0] == version for one in self._whole(key)]

    def proof(self, version: int) -> str | None:
        """Return the newest proof of a version, None without one. Nothing in it is verified."""
        return self._proofs.get(version)

    def _whole(self, key: _Key) -> list[Assembled]:
        """Return the release of this key if all its chunks and its proof are there; it is forgotten then."""
        version, digest, chunks = key
        pending = self._pending[key]
        proof = self._proofs.get(version)
        if len(pending.pieces) < chunks or proof is None:
            return []
        self._drop(key)
        data = b"".join(pending.pieces[number] for number in range(chunks))
        if hashlib.sha256(data).hexdigest().encode() != digest:
            self.skipped += 1
            return []
        return [Assembled(version, data, proof, chunks)]

    def skip(self, record: Record, reason: str) -> None:
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


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _wrong(record: Record, value: bytes, version: bytes, chunk: int) -> str | None:
    """Return why `to_messages` cannot have made this record, None if it may have."""
    chunks = record.header("chunks") or b""
    digest = record.header("sha256") or b""
    named = record.header("version") == version and record.header("chunk") == b"%d" % chunk
    if not named or not NUMBER.match(chunks) or not DIGEST.match(digest):
        return "its headers are not those of a chunk"
    if not chunk < int(chunks) <= MAX_CHUNKS:
        return "its headers are not those of a chunk"
    if len(value) > CHUNK_BYTES:
        return f"its value has {len(value)} bytes, and a chunk has at most {CHUNK_BYTES}"
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
            elif _wrong(record, record.value, place[1], int(place[2])) is None:
                sent.keys.add(place[0])
                sent.chunks = max(sent.chunks, int(record.header("chunks") or b"1"))
    return {version: sent for version, sent in found.items() if sent.keys}


@dataclass(frozen=True, slots=True)
class Opened:
    """A version that verifies.

    data: its bytes.
    chunks: number of records over which they are spread.
    """

    release: Release
    data: bytes
    chunks: int

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.release.version


@dataclass(frozen=True, slots=True)
class Refused:
    """Bytes that are not accepted as the release of this number. reason: why not."""

    version: int
    reason: InvalidRelease


@dataclass(frozen=True, slots=True)
class _Tried:
    """A version that was refused. sequence: number of the list of keys by which it was."""

    whole: Assembled
    sequence: int


class ReleaseReader:
    """Follows a model's releases topic in bounded memory (Assembler).

    A version that is refused is tried again once another proof of it or a newer list of keys has come: the newest of
    them are kept, 8 with RELEASE_BYTES together.

    ledger: read to its end before each `read`; it decides which bytes count.
    offset: where to continue; None before the first read.
    """

    def __init__(self, log: EventLog, model: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self.offset: int | None = None
        self._log = log
        self._topic = TopicNames(model).releases
        self._assembler = Assembler()
        self._held: dict[int, str] = {}
        self._refused: dict[tuple[int, str], _Tried] = {}

    @property
    def skipped(self) -> int:
        """Number of records that were passed over, because they cannot belong to a release."""
        return self._assembler.skipped

    def digest(self, version: int) -> str | None:
        """Return the digest of a version that was opened, None for any other."""
        return self._held.get(version)

    def read(self) -> Iterator[Opened | Refused | Removed]:
        """Yield the news since the last call, up to the end of the log. Raises ComponentUnreachable."""
        if self._log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self.offset = self._log.begin(self._topic, 0)
        while records := self._log.read(self._topic, 0, self.offset):
            for record in records:
                found = self._assembler.take(record)
                if isinstance(found, Removed):
                    self._forget(found.version)
                    yield found
                else:
                    for whole in found:
                        yield from self._open(whole)
            self.offset = records[-1].next_offset
        yield from self._try_again()

    def _try_again(self) -> Iterator[Opened | Refused]:
        """Open what was refused, if its proof or the keys are others by now."""
        for name, tried in list(self._refused.items()):
            proof = self._assembler.proof(tried.whole.version)
            if proof is not None and (proof, self.ledger.keys.sequence) != (tried.whole.proof, tried.sequence):
                del self._refused[name]
                yield from self._open(replace(tried.whole, proof=proof))

    def _open(self, whole: Assembled) -> Iterator[Opened | Refused]:
        digest = hashlib.sha256(whole.data).hexdigest()
        # Written again by a service that was killed.
        if self._held.get(whole.version) == digest:
            return
        try:
            release = self.ledger.open_release(whole.version, whole.data, whole.proof)
        except InvalidRelease as error:
            self._keep(digest, whole)
            yield Refused(whole.version, error)
            return
        self._held[whole.version] = release.digest
        yield Opened(release, whole.data, whole.chunks)

    def _keep(self, digest: str, whole: Assembled) -> None:
        """Keep a version that was refused, and forget the oldest ones beyond the bounds."""
        self._refused.pop((whole.version, digest), None)
        self._refused[whole.version, digest] = _Tried(whole, self.ledger.keys.sequence)
        while (
            len(self._refused) > MAX_PENDING
            or sum(len(one.whole.data) for one in self._refused.values()) > RELEASE_BYTES
        ):
            del self._refused[next(iter(self._refused))]

    def _forget(self, version: int) -> None:
        for name in [name for name in self._refused if name[0] == version]:
            del self._refused[name]
