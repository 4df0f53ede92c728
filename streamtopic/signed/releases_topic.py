"""The topic of releases: its signed statement, versions in chunks, and reading them in order."""

import dataclasses
import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from streamtopic.errors import CannotLearn, InvalidRelease, UnknownKey
from streamtopic.formats import STATEMENT, refusal
from streamtopic.signed.key_ring import KeyRing
from streamtopic.signed.release import Release, open_release
from streamtopic.signed.sealed import open_sealed, pack, reading_fields, seal, unpack_fields
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import EventLog, Message, Record, TopicNames, pages

__all__ = [
    "CHUNK_BYTES",
    "KEYS_KEY",
    "RELEASE_BYTES",
    "STATEMENT_KEY",
    "Assembled",
    "Assembler",
    "Opened",
    "Refused",
    "ReleaseReader",
    "Removed",
    "Statement",
    "follow_keys",
    "foreign_key_lists",
    "keys_message",
    "newest_statement",
    "open_statement",
    "seal_statement",
    "statement_message",
    "to_messages",
    "tombstones",
    "version_of",
]


FORMAT = STATEMENT.written
KIND = "statement"
# One key for all statements and one for all key lists, so that compaction keeps the newest of each.
STATEMENT_KEY = b"st:statement"
KEYS_KEY = b"st:keys"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about a releases topic that the service has read to its end.

    sequence: number of the statement; it only grows.
    made: milliseconds since 1970.
    interval: milliseconds within which the service promises the next statement; 0 if it promises no other.
    newest: number of the newest version; 0 before the first.
    digest: SHA-256 of its sealed bytes, hexadecimal; "" before the first.
    withdrawn: versions that must not be used.
    """

    model: str
    sequence: int
    made: int
    interval: int
    newest: int
    digest: str
    withdrawn: tuple[int, ...] = ()
    format: int = FORMAT


def seal_statement(statement: Statement, key: SigningKey) -> bytes:
    """Return the signed bytes of a statement."""
    return seal(KIND, {"statement": pack(dataclasses.asdict(statement))}, key)


def open_statement(data: bytes, key: Verifier) -> Statement:
    """Return the statement in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    sealed = open_sealed(KIND, data, key)
    with reading_fields("statement"):
        fields = unpack_fields(sealed.parts["statement"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(refusal(STATEMENT, fields["format"]))
        found = Statement(
            model=str(fields["model"]),
            sequence=int(fields["sequence"]),
            made=int(fields["made"]),
            interval=int(fields["interval"]),
            newest=int(fields["newest"]),
            digest=str(fields["digest"]),
            withdrawn=tuple(int(version) for version in fields["withdrawn"]),
        )
    # Only now is the number known that a revoked key is asked about.
    key.admit(sealed.key, KIND, found.sequence, sealed.digest)
    return found


def statement_message(data: bytes) -> Message:
    """Return the record of a sealed statement, for the releases topic."""
    return Message(STATEMENT_KEY, data, partition=0)


def keys_message(data: bytes) -> Message:
    """Return the record of a sealed key list, for the releases topic."""
    return Message(KEYS_KEY, data, partition=0)


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
        version = int(place[1])
        chunk = int(place[2])
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


T = TypeVar("T")

logger = logging.getLogger("streamtopic.signed")


@dataclass(frozen=True, slots=True)
class Opened:
    """A release that verifies, the first with its number.

    data: its signed bytes.
    chunks: number of records over which it is spread.
    """

    release: Release
    data: bytes
    chunks: int

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.release.version

    @property
    def digest(self) -> str:
        """SHA-256 of its signed bytes, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Refused:
    """Bytes that are not accepted as the release of this number.

    reason: why not.
    rival: the release in them, if they verify and another release has the number already.
    """

    version: int
    reason: InvalidRelease
    rival: Release | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """A version that was opened: id of the key that signed it, SHA-256 of its signed bytes."""

    key: str
    digest: str


class ReleaseReader:
    """Follows a model's releases topic in bounded memory (Assembler).

    keys: verifies signatures; key lists in the topic are taken in.
    statement: the one with the highest number; None before the first.
    last: number of the statement that came last, which compaction will keep.
    discredited: digests of opened releases whose key was revoked since, so that they do not count any more.
    offset: where to continue; None before the first read.
    """

    def __init__(self, log: EventLog, model: str, keys: KeyRing) -> None:
        self.keys = keys
        self.statement: Statement | None = None
        self.last = 0
        self.discredited: set[str] = set()
        self._log = log
        self._model = model
        self._topic = TopicNames(model).releases
        self._assembler = Assembler()
        self._held: dict[int, _Held] = {}
        # Offset of the first record with an unknown key, and the number of the key list then: compaction keeps the last
        # list only, so the list that names the key may stand behind what the key has signed.
        self._unknown: tuple[int, int] | None = None
        self.offset: int | None = None

    def anew(self) -> "ReleaseReader":
        """Return a reader of the same log that begins at its beginning and still knows what was discredited."""
        reader = ReleaseReader(self._log, self._model, self.keys)
        reader.discredited = self.discredited
        return reader

    @property
    def skipped(self) -> int:
        """Number of records that were passed over, because they cannot belong to a release, statement or key list."""
        return self._assembler.skipped

    def digest(self, version: int) -> str | None:
        """Return the digest of a version that was opened, None for any other."""
        held = self._held.get(version)
        return None if held is None else held.digest

    def signed_with(self, key_id: str) -> dict[int, str]:
        """Return the opened versions that this key signed, with their digests."""
        return {version: held.digest for version, held in self._held.items() if held.key == key_id}

    def read(self) -> Iterator[Opened | Refused | Removed]:
        """Yield the news since the last call, up to the end of the log. Raises ComponentUnreachable."""
        if self._log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self.offset = self._log.begin(self._topic, 0)
        while True:
            while records := self._log.read(self._topic, 0, self.offset):
                for record in records:
                    yield from self._take(record)
                self.offset = records[-1].next_offset
            if self._unknown is None:
                return
            offset, sequence = self._unknown
            if self.keys.sequence <= sequence:
                return
            self._assembler.counted = self.offset
            self.offset = max(offset, self._log.begin(self._topic, 0))
            self._unknown = None

    def catch_up(self) -> None:
        """Read to the end of the log without the news: all else is then that of now. Raises ComponentUnreachable."""
        for _ in self.read():
            pass

    def _take(self, record: Record) -> Iterator[Opened | Refused | Removed]:
        if record.key == STATEMENT_KEY:
            self._take_statement(record)
            return
        if record.key == KEYS_KEY:
            self._take_keys(record)
            return
        match self._assembler.take(record):
            case Assembled() as whole:
                found = self._open(whole)
                if found is not None:
                    yield found
            case Removed() as removed:
                yield removed

    def _open(self, whole: Assembled) -> Opened | Refused | None:
        version = whole.version
        digest = hashlib.sha256(whole.data).hexdigest()
        held = self._held.get(version)
        # Written again by a publisher that was killed, or read again for the sake of a newer key list.
        if held is not None and held.digest == digest:
            return None
        try:
            release = open_release(whole.data, self.keys)
        except UnknownKey as error:
            self._note_unknown(whole.offset)
            return Refused(version, error)
        except InvalidRelease as error:
            return Refused(version, error)
        envelope = release.envelope
        if (envelope.model, envelope.version) != (self._model, version):
            return Refused(version, InvalidRelease(f"it is signed as version {envelope.version} of {envelope.model}"))
        # The first release of a number is the one that subscribers hold.
        if held is not None:
            reason = InvalidRelease("another release with this version number is signed as well")
            return Refused(version, reason, release)
        self._held[version] = _Held(release.key, digest)
        return Opened(release, whole.data, whole.chunks)

    def _take_statement(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            found = open_statement(record.value, self.keys)
        except InvalidRelease as error:
            # The topic may bring the list with this key later; then the record is read again.
            if isinstance(error, UnknownKey):
                self._note_unknown(record.offset)
            self._assembler.skip(record, f"it is not a statement of this model: {error}")
            return
        if found.model != self._model:
            self._assembler.skip(record, f"it is a statement of model {found.model}")
            return
        self.last = found.sequence
        # Anybody may write an old statement again.
        if self.statement is None or found.sequence > self.statement.sequence:
            self.statement = found

    def _take_keys(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            newer = self.keys.take(record.value)
        except InvalidRelease as error:
            self._assembler.skip(record, f"it is not a key list of this model: {error}")
            return
        if not newer:
            return
        logger.info("%s follows key list %d", self._model, self.keys.sequence, extra={"event": "keys_followed"})
        for version, held in list(self._held.items()):
            try:
                self.keys.admit(held.key, "release", version, held.digest)
            except InvalidRelease as error:
                extra = {"event": "release_discredited", "version": version}
                logger.warning("release %d of %s no longer counts: %s", version, self._model, error, extra=extra)
                self.discredited.add(held.digest)
                del self._held[version]
                # The release that counts under this number may have been refused, because this one was there first.
                self._unknown = (0, self.keys.sequence - 1)

    def _note_unknown(self, offset: int) -> None:
        first, sequence = self._unknown or (offset, self.keys.sequence)
        self._unknown = (min(offset, first), sequence)


def follow_keys(log: EventLog, model: str, keys: KeyRing) -> bool:
    """Take in the key lists of a model's releases topic, and return whether one was newer.

    Readers of other topics with signed records, such as receipts, use it. Raises ComponentUnreachable.
    """
    newer = False
    # Not any(), which would stop at the first newer list.
    for taken in _under(log, model, KEYS_KEY, keys.take):
        newer |= taken
    return newer


def foreign_key_lists(log: EventLog, model: str, keys: KeyRing) -> int:
    """Return how many key lists a model's releases topic holds where the ring follows none of them.

    keys: with the topic's key lists taken in (`follow_keys`).

    Such lists have another root key than the ring's, or somebody without a root key wrote them. Raises
    ComponentUnreachable.
    """
    topic = TopicNames(model).releases
    if keys.keys is not None or log.partitions(topic) == 0:
        return 0
    records = (record for page in pages(log, topic, 0, log.begin(topic, 0)) for record in page)
    return sum(record.key == KEYS_KEY and record.value is not None for record in records)


def newest_statement(log: EventLog, model: str, keys: KeyRing) -> Statement | None:
    """Return the statement with the highest number in a model's releases topic, None if no statement verifies.

    keys: with the topic's key lists taken in (`follow_keys`).

    It does not put releases together. Raises ComponentUnreachable.
    """
    statements = _under(log, model, STATEMENT_KEY, lambda value: open_statement(value, keys))
    own = (statement for statement in statements if statement.model == model)
    return max(own, key=lambda statement: statement.sequence, default=None)


def _under(log: EventLog, model: str, key: bytes, take: Callable[[bytes], T]) -> Iterator[T]:
    """Yield the result of `take` for each record of the releases topic under a key; refused records are passed over."""
    topic = TopicNames(model).releases
    if log.partitions(topic) == 0:
        return
    for page in pages(log, topic, 0, log.begin(topic, 0)):
        for record in page:
            if record.key != key or record.value is None:
                continue
            try:
                taken = take(record.value)
            except InvalidRelease as error:
                extra = {"event": "record_passed_over", "offset": record.offset}
                logger.warning("record %d of %s is passed over: %s", record.offset, topic, error, extra=extra)
                continue
            yield taken
