"""Reads the releases topic: releases, statements and key lists, each of them verified before it counts."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed.key_ring import KeyRing
from streamtopic.signed.release import Release, open_sealed_release
from streamtopic.signed.release_chunks import Assembled, Assembler, Removed
from streamtopic.signed.statement import KEYS_KEY, STATEMENT_KEY, Statement, open_statement
from streamtopic.streams import EventLog, Record, TopicNames, pages

__all__ = ["Opened", "Refused", "ReleaseReader", "follow_keys", "newest_statement"]

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
        version, digest = whole.version, hashlib.sha256(whole.data).hexdigest()
        held = self._held.get(version)
        # Written again by a publisher that was killed, or read again for the sake of a newer key list.
        if held is not None and held.digest == digest:
            return None
        try:
            release, signer = open_sealed_release(whole.data, self.keys)
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
        self._held[version] = _Held(signer, digest)
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
