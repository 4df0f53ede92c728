"""Reading the releases topic: releases, statements and key lists, each verified, none taken at its word."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed.key_ring import KeyRing
from streamtopic.signed.release import Release
from streamtopic.signed.release_chunks import Assembled, Assembler, Removed
from streamtopic.signed.release_codec import open_sealed_release
from streamtopic.signed.statement import KEYS_KEY, STATEMENT_KEY, Statement, open_statement
from streamtopic.streams import EventLog, Record, TopicNames, pages

__all__ = ["Opened", "Refused", "ReleaseReader", "follow_keys", "newest_statement"]

T = TypeVar("T")

logger = logging.getLogger("streamtopic.signed")


@dataclass(frozen=True, slots=True)
class Opened:
    """A release that verifies, the first of its number. chunks: records that it is spread over."""

    release: Release
    data: bytes
    chunks: int

    @property
    def version(self) -> int:
        """Its number."""
        return self.release.version

    @property
    def digest(self) -> str:
        """SHA-256 of its sealed bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Refused:
    """Bytes that are not taken for the release of this number. rival: where they verify, as another one did before."""

    version: int
    reason: InvalidRelease
    rival: Release | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """Who signed a version that was opened, and the digest of its bytes."""

    key: str
    digest: str


class ReleaseReader:
    """Follows a model's releases topic; what it needs in memory is bounded (Assembler).

    keys: what signatures are verified with; lists that the topic holds are taken in. statement: that with the highest
    number, None before the first; last: number of the one that came last, which compaction will keep.
    discredited: digests of releases that were opened, of a key that was revoked since, and do not count any more.
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
        # Where to read again once a newer key list is there: at something that is signed with an unknown key.
        self._unknown: tuple[int, int] | None = None
        self.offset: int | None = None

    @property
    def skipped(self) -> int:
        """Records that were passed over, since they are part of no release, statement or list that is possible."""
        return self._assembler.skipped

    def digest(self, version: int) -> str | None:
        """Return the digest of a version that was opened, None for others."""
        held = self._held.get(version)
        return None if held is None else held.digest

    def signed_with(self, key_id: str) -> dict[int, str]:
        """Return the versions that this key signed, of those that were opened, with their digests."""
        return {version: held.digest for version, held in self._held.items() if held.key == key_id}

    def read(self) -> Iterator[Opened | Refused | Removed]:
        """Yield what came since, up to the end of the log. Raises ComponentUnreachable."""
        if self._log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self.offset = self._log.begin(self._topic, 0)
        while True:
            while records := self._log.read(self._topic, 0, self.offset):
                for record in records:
                    yield from self._take(record)
                self.offset = records[-1].next_offset
            if self._unknown is None or self.keys.sequence <= self._unknown[1]:
                return
            self._assembler.counted = self.offset
            self.offset = max(self._unknown[0], self._log.begin(self._topic, 0))
            self._unknown = None

    def _take(self, record: Record) -> Iterator[Opened | Refused | Removed]:
        if record.key == STATEMENT_KEY:
            self._state(record)
            return
        if record.key == KEYS_KEY:
            self._list(record)
            return
        match self._assembler.take(record):
            case Assembled() as whole:
                if (found := self._open(whole)) is not None:
                    yield found
            case Removed() as removed:
                yield removed

    def _open(self, whole: Assembled) -> Opened | Refused | None:
        version, digest = whole.version, hashlib.sha256(whole.data).hexdigest()
        held = self._held.get(version)
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
            return Refused(version, InvalidRelease(f"it says to be version {envelope.version} of {envelope.model}"))
        if held is not None:
            reason = InvalidRelease("another release with this version is signed as well")
            return Refused(version, reason, release)
        self._held[version] = _Held(signer, digest)
        return Opened(release, whole.data, whole.chunks)

    def _state(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            found = open_statement(record.value, self.keys)
        except InvalidRelease as error:
            if isinstance(error, UnknownKey):
                self._note_unknown(record.offset)
            self._assembler.skip(record, f"no statement of this model: {error}")
            return
        if found.model != self._model:
            self._assembler.skip(record, f"it is a statement of model {found.model}")
            return
        self.last = found.sequence
        if self.statement is None or found.sequence > self.statement.sequence:
            self.statement = found

    def _list(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            newer = self.keys.take(record.value)
        except InvalidRelease as error:
            self._assembler.skip(record, f"no key list of this model: {error}")
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
                # What counts under that number may have been refused since the other was there first.
                self._unknown = (0, self.keys.sequence - 1)

    def _note_unknown(self, offset: int) -> None:
        first, sequence = self._unknown or (offset, self.keys.sequence)
        self._unknown = (min(offset, first), sequence)


def follow_keys(log: EventLog, model: str, keys: KeyRing) -> bool:
    """Take in the key lists of a model's releases topic; whether one was newer. Raises ComponentUnreachable.

    For readers of what is signed elsewhere, such as receipts.
    """
    newer = False
    for taken in _under(log, model, KEYS_KEY, keys.take):
        newer |= taken
    return newer


def newest_statement(log: EventLog, model: str, keys: KeyRing) -> Statement | None:
    """Return the statement with the highest number in a model's releases topic, None where none verifies.

    keys: with the topic's key lists taken in (`follow_keys`). No release is put together. Raises ComponentUnreachable.
    """
    statements = _under(log, model, STATEMENT_KEY, lambda value: open_statement(value, keys))
    own = (statement for statement in statements if statement.model == model)
    return max(own, key=lambda statement: statement.sequence, default=None)


def _under(log: EventLog, model: str, key: bytes, take: Callable[[bytes], T]) -> Iterator[T]:
    """Yield what `take` makes of each record of the releases topic under a key; one that it refuses is passed over."""
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
