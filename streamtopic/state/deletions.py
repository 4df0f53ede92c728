"""Deletions that wait: applied ones for their receipts, misplaced ones to be sent to the partition of their key.

Both are written with the counts, by the script that commits a flush.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgpack

from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import PartitionKeys

__all__ = ["Forget", "ForgetKind", "Forgets", "Forward"]


class ForgetKind(StrEnum):
    """Why a document went."""

    DELETED = "deleted"
    NOT_FOUND = "not_found"
    REPLACED = "replaced"
    REFUSED = "refused"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Forget:
    """One deletion, with all that its receipt says about what was done.

    offset: of the delete's own record; document: its id, kept only until the receipt is published; request: the
    producer's request id; salt: what the requester drew to check the receipt with, b"" for none; document_offset,
    epoch: of the record that had added it, -1 if not found; received_ms: time of the delete's record; applied_ms: when
    it was counted out.
    A replacement leaves an entry too, so that its age is seen; nobody asked for it, so it gets no receipt. Nor does a
    document that a refused change removed, unless its record names a request; nor a deletion that was missed: its
    record had left the log, so offset is that of the record before those that were not read yet, and part, from 1,
    tells such deletions apart.
    """

    offset: int
    document: bytes
    kind: ForgetKind
    request: str
    salt: bytes
    document_offset: int
    epoch: int
    received_ms: int
    applied_ms: int
    part: int = 0

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
        """Id in the stream: offsets only grow, so the order of the stream is that of the log."""
        return f"{self.offset + 1}-{self.part}"

    def pack(self) -> bytes:
        """Return the value of its stream entry."""
        fields = [self.document, self.kind.value, self.request, self.salt, self.document_offset, self.epoch]
        return bytes(msgpack.packb([*fields, self.received_ms, self.applied_ms]))

    @classmethod
    def unpack(cls, entry: bytes, value: bytes) -> "Forget":
        """Undo `pack`. Raises StateCorrupt."""
        try:
            document, kind, request, salt, document_offset, epoch, received_ms, applied_ms = msgpack.unpackb(value)
            first, part = (int(number) for number in entry.split(b"-"))
            return cls(
                first - 1,
                document,
                ForgetKind(kind),
                request,
                salt if isinstance(salt, bytes) else b"",  # before 0.2 the document's length stood here
                document_offset,
                epoch,
                received_ms,
                applied_ms,
                part,
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(
                f"deletion entry {entry!r} cannot be read ({error}): run `streamtopic rebuild`"
            ) from None


class Forgets:
    """A partition's stream of deletions, as its readers see it."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._key = keys.forgets
        self._kept = keys.kept_forgets

    def __len__(self) -> int:
        return int(self._connection.call("XLEN", self._key))

    @property
    def incomplete(self) -> bool:
        """Whether the counts are being made anew, so that entries may say less than those put aside."""
        return bool(self._connection.call("EXISTS", self._kept))

    def read(self, from_offset: int = 0, count: int = 1000) -> list[Forget]:
        """Return entries of records at or after `from_offset`, oldest first: `count`, and all of the last offset."""
        rows = self._connection.call("XRANGE", self._key, f"{from_offset + 1}-0", "+", "COUNT", count)
        if len(rows) == count:
            first, part = rows[-1][0].decode().split("-")
            rows += self._connection.call("XRANGE", self._key, f"{first}-{int(part) + 1}", first)
        return [Forget.unpack(entry, fields[b"forget"]) for entry, fields in rows]

    def mark(self) -> tuple[int, str]:
        """Return how many entries there are, and the id of the newest there ever was: whether anything has changed."""
        if not self._connection.call("EXISTS", self._key):
            return 0, "0-0"
        fields = self._connection.call("XINFO", "STREAM", self._key)
        facts = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
        return int(facts[b"length"]), facts[b"last-generated-id"].decode()

    def next_part(self, offset: int) -> int:
        """Return the `part` that an entry of `offset` needs to come after all there ever were."""
        first, part = (int(number) for number in self.mark()[1].split("-"))
        return part + 1 if first == offset + 1 else 1

    def drop(self, forgets: Iterable[Forget]) -> None:
        """Remove entries whose receipts are published."""
        entries = [forget.entry for forget in forgets]
        for start in range(0, len(entries), 1000):
            self._connection.call("XDEL", self._key, *entries[start : start + 1000])


@dataclass(frozen=True, slots=True)
class Forward:
    """A record that must take effect in the partition of its key: as a delete, whatever it was.

    offset, time_ms: of the record; document: its key; home: the partition of its key. asked: whether it was a delete,
    else a change that was refused; headers: those of a delete that its receipt needs.
    end: where `home` ended once the record had been read: a record of the same document from there on is newer.
    late: whether the record was old by then, so that newer ones may lie before `end`.
    """

    offset: int
    document: bytes
    home: int
    asked: bool
    time_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()
    end: int = 0
    late: bool = False

    def pack(self) -> bytes:
        """Return the value of its field."""
        fields = [self.document, self.home, self.asked, self.time_ms, self.headers, self.end, self.late]
        return bytes(msgpack.packb(fields))

    @classmethod
    def unpack(cls, offset: int, value: bytes) -> "Forward":
        """Undo `pack`. Raises StateCorrupt."""
        try:
            document, home, asked, time_ms, headers, end, late = msgpack.unpackb(value)
            named = tuple((str(name), bytes(content)) for name, content in headers)
            return cls(offset, document, home, asked, time_ms, named, end, late)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(
                f"what is to be sent home for record {offset} cannot be read ({error}): run `streamtopic rebuild`"
            ) from None
