"""Deletions that wait for their receipts, in Redis.

    Forget, Forgets     applied deletions, which wait for their receipts
    SubjectIndex        the live documents of people
    Suppressed          what was said about suppressed ids and subjects, besides the log
    LinkKeys            the keys that tie receipts to request ids

Deletions are written with the counts, by the script that commits a flush. The keys are the publisher's.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from streamtopic.documents.subjects import subject_digest
from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Codec, Connection
from streamtopic.state.meta import require_keys
from streamtopic.state.redis_keys import MARK, ModelKeys, PartitionKeys

__all__ = [
    "Forget",
    "ForgetKind",
    "Forgets",
    "LinkKeys",
    "SubjectIndex",
    "Suppressed",
    "month_of",
    "months_before",
]

_KEY_BYTES = 32
_SECRET = b"secret"
# Subjects that are counted in one batch, and documents of one that are read at a time.
_SUBJECTS = 1_000
_MEMBERS = 1_000


class ForgetKind(StrEnum):
    """Why a document was taken out of the counts."""

    DELETED = "deleted"
    NOT_FOUND = "not_found"
    REPLACED = "replaced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Forget:
    """One deletion, with all facts of its receipt. Times are milliseconds since 1970.

    offset: of the delete's own record.
    document: id of the document, kept only until the receipt is published.
    kind: why the document was taken out.
    request: request id of the producer.
    salt: random bytes of the requester, who checks the receipt with them; b"" without one.
    document_offset: of the record that had added the document, -1 if not found.
    received_ms: time of the delete's record.
    applied_ms: time at which the document was counted out.
    trace: W3C `traceparent` of the request; b"" without one.

    Entries without a receipt: a replacement, which is kept so that its age is seen; a document that a refused change
    removed, unless its record names a request.
    """

    offset: int
    document: bytes
    kind: ForgetKind
    request: str
    salt: bytes
    document_offset: int
    received_ms: int
    applied_ms: int
    trace: bytes = b""

    @property
    def found(self) -> bool:
        """Whether there was a document to forget."""
        return self.kind is not ForgetKind.NOT_FOUND

    @property
    def wants_receipt(self) -> bool:
        """Whether somebody asked for the deletion."""
        if self.kind is ForgetKind.REFUSED:
            return bool(self.request)
        return self.kind in {ForgetKind.DELETED, ForgetKind.NOT_FOUND}

    @property
    def entry(self) -> str:
        """Id in the stream."""
        # A stream takes ascending ids only. Offsets ascend too, but 0-0 is not an id: hence the one more.
        return f"{self.offset + 1}-0"

    def pack(self) -> bytes:
        """Return the value of its stream entry."""
        return _FORGETS.pack(self)

    @classmethod
    def unpack(cls, value: bytes) -> "Forget":
        """Undo `pack`. Raises StateCorrupt."""
        return _FORGETS.unpack(value)


_FORGETS = Codec(Forget, "a deletion that waits for its receipt cannot be read: run `streamtopic rebuild`")


class Forgets:
    """A partition's stream of deletions. Its writer adds entries when it commits a flush."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._key = keys.forgets
        self._kept = keys.kept_forgets
        self._people = keys.subject_secret

    def __len__(self) -> int:
        return int(self._connection.call("XLEN", self._key))

    @property
    def incomplete(self) -> bool:
        """Whether the counts are being rebuilt: entries may then lack facts that the entries put aside have."""
        return bool(self._connection.call("EXISTS", self._kept))

    def require(self, partition: int) -> None:
        """Raise StateCorrupt if Redis has lost the stream: without entries it is there as well.

        For those who may not read what `meta.require_keys` reads. partition: number for the error.
        """
        # In this order: before the first claim of a partition there is neither, and it makes both at once.
        secret = self._connection.call("HGET", self._people, _SECRET)
        there = self._connection.call("EXISTS", self._key)
        if secret is not None and not there:
            raise StateCorrupt(
                f"Redis has lost the deletions of partition {partition} that wait for receipts: stop ingest and run "
                "`streamtopic rebuild`, which finds them in the log"
            )

    def read(self, from_offset: int = 0, count: int = 1000) -> list[Forget]:
        """Return the deletions of records from `from_offset` on, oldest first. count: number of entries."""
        rows = self._connection.call("XRANGE", self._key, f"{from_offset + 1}-0", "+", "COUNT", count)
        return [Forget.unpack(fields[b"forget"]) for _, fields in rows]

    def each(self, from_offset: int = 0) -> Iterator[Forget]:
        """Yield the deletions of records from `from_offset` on, oldest first, as many as there are."""
        while page := self.read(from_offset):
            yield from page
            from_offset = page[-1].offset + 1

    def oldest(self) -> Forget | None:
        """Return the deletion of the first record, None if none waits."""
        return next(iter(self.read(0, 1)), None)

    def mark(self) -> tuple[int, str]:
        """Return the number of entries and the id of the newest there ever was; equal if nothing has changed."""
        # XINFO is an error for a stream that does not exist.
        if not self._connection.call("EXISTS", self._key):
            return 0, "0-0"
        fields = self._connection.call("XINFO", "STREAM", self._key)
        # A flat list: redis-py knows this answer only under a command name of two words.
        facts = dict(zip(fields[::2], fields[1::2], strict=True))
        newest: str = facts[b"last-generated-id"].decode()
        return int(facts[b"length"]), newest

    def drop(self, forgets: Iterable[Forget]) -> None:
        """Remove entries whose receipts are published."""
        entries = [forget.entry for forget in forgets]
        for start in range(0, len(entries), 1000):
            some = entries[start : start + 1000]
            self._connection.call("XDEL", self._key, *some)


class SubjectIndex:
    """The live documents of people, as far as the partitions have counted, for those who do not write the partitions.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self._connection = connection
        keys = ModelKeys(model)
        self._partitions = [keys.partition(partition) for partition in range(partitions)]

    def count(self, subjects: Iterable[str]) -> dict[str, int]:
        """Return the number of live documents of each subject."""
        found = dict.fromkeys(subjects, 0)
        names = list(found)
        for start in range(0, len(names), _SUBJECTS):
            some = names[start : start + _SUBJECTS]
            for keys, secret in self._known():
                digests = [subject_digest(subject, secret) for subject in some]
                answers = self._connection.batch([_count_of(keys, digest) for digest in digests])
                for subject, documents in zip(some, answers, strict=True):
                    found[subject] += int(documents)
        return found

    def documents(self, subjects: Iterable[str], partition: int) -> list[bytes]:
        """Return the keys of the live documents of these subjects in one partition, each once.

        Raises StateCorrupt if Redis has lost keys of the partition: documents that a lost index no longer names would
        count as forgotten.
        """
        keys = self._partitions[partition]
        secret = self._connection.call("HGET", keys.subject_secret, _SECRET)
        if secret is None:
            require_keys(self._connection, keys)
            return []
        found: dict[bytes, None] = {}
        for subject in subjects:
            for page in self._pages(keys, subject_digest(subject, secret)):
                found.update(dict.fromkeys(page))
        require_keys(self._connection, keys)
        return list(found)

    def _pages(self, keys: PartitionKeys, digest: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a subject's documents, some at a time: no call may hold Redis up."""
        key, (first, last) = keys.subjects(keys.bucket(digest)), _span(digest)
        while members := self._connection.call("ZRANGEBYLEX", key, first, last, "LIMIT", 0, _MEMBERS):
            yield [member[len(digest) :] for member in members]
            first = b"(" + members[-1]

    def _known(self) -> list[tuple[PartitionKeys, bytes]]:
        """Return the partitions that have a state, each with its secret."""
        secrets_found = self._connection.batch([("HGET", keys.subject_secret, _SECRET) for keys in self._partitions])
        return [(keys, secret) for keys, secret in zip(self._partitions, secrets_found, strict=True) if secret]


def _span(digest: bytes) -> tuple[bytes, bytes]:
    """Return the ends of a subject's range in the index."""
    # No id has a byte that sorts after 0xff, since ids are UTF-8.
    return b"[" + digest, b"(" + digest + b"\xff"


def _count_of(partition: PartitionKeys, digest: bytes) -> tuple[str | bytes, ...]:
    """Return the command that counts the documents of a subject in the index of a partition."""
    return "ZLEXCOUNT", partition.subjects(partition.bucket(digest)), *_span(digest)


class Suppressed:
    """A copy of the records about suppressions: whoever writes over them in the log must not lift any.

    The fingerprint of the key that they were made with is in it as well.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("suppressed")

    def fingerprint(self, own: str = "") -> str:
        """Return the fingerprint of the model's key, "" without one. own: becomes it if there is none."""
        if own:
            self._connection.call("HSETNX", self._key, MARK, own)
        return (self._connection.call("HGET", self._key, MARK) or b"").decode(errors="replace")

    def records(self) -> dict[bytes, bytes]:
        """Return key and value of each record."""
        found: dict[bytes, bytes] = self._connection.call("HGETALL", self._key)
        return {key: value for key, value in found.items() if key != MARK}

    def keep(self, key: bytes, value: bytes) -> None:
        """Keep a record in place of the one with the same key."""
        self._connection.call("HSET", self._key, key, value)

    def clear(self) -> None:
        """Forget all of it, the fingerprint too."""
        self._connection.call("DEL", self._key)


def month_of(seconds: float) -> str:
    """Return the month of a time, as "2026-11"; such names sort by time. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m")


def months_before(month: str, count: int) -> str:
    """Return the month that lies `count` months before another one."""
    year, number = (int(part) for part in month.split("-"))
    months = year * 12 + number - 1 - count
    years, rest = divmod(months, 12)
    return f"{years:04d}-{rest + 1:02d}"


class LinkKeys:
    """A model's keys by month, which tie receipts to request ids."""

    # Random, and only in Redis: a key that is destroyed there cannot be derived again from anything.

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("links")

    def all(self) -> dict[str, bytes]:
        """Return all keys: month to key."""
        fields = self._connection.call("HGETALL", self._key)
        return {month.decode(): key for month, key in fields.items()}

    def of(self, month: str) -> bytes:
        """Return the key of a month, made on first use."""
        # Of two processes that make one, one decides: both read the same key afterwards.
        drawn = secrets.token_bytes(_KEY_BYTES)
        self._connection.call("HSETNX", self._key, month, drawn)
        return bytes(self._connection.call("HGET", self._key, month))

    def destroy(self, before: str) -> int:
        """Destroy the keys of the months before this one; return their number."""
        names = self._connection.call("HKEYS", self._key)
        months = [name for name in names if name.decode() < before]
        if months:
            self._connection.call("HDEL", self._key, *months)
        return len(months)
