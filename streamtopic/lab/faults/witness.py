"""Keeps what the world saw: every release, receipt and rejection that was ever in the log, and what subscribers got."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from streamtopic.errors import ComponentUnreachable, InvalidRelease
from streamtopic.lab.faults.tail import TopicTail
from streamtopic.signed import (
    Assembled,
    Assembler,
    Receipt,
    Release,
    SubjectReceipt,
    open_any,
    open_release,
)
from streamtopic.streams import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.client import ModelSubscriber
    from streamtopic.lab.faults.tail import TailRecord
    from streamtopic.signed import PublicKey
    from streamtopic.streams import TopicNames

__all__ = ["Subscriber", "Witness", "digest"]


def digest(release: Release) -> str:
    """Return a digest of everything in a release that a subscriber gets, which tells two releases apart."""
    payload, envelope = release.payload, release.envelope
    parts = [repr(payload.words), repr(payload.top_words), repr(dict(payload.quality)), repr(envelope)]
    parts += [repr((task, head.topics, head.classes, head.documents)) for task, head in sorted(payload.heads.items())]
    tables = [payload.A, payload.R, payload.shares]
    tables += [table for _, head in sorted(payload.heads.items()) for table in (head.w, head.B)]
    arrays = [table.tobytes() for table in tables if table is not None]
    return hashlib.sha256(b"\0".join([*(part.encode() for part in parts), *arrays])).hexdigest()


@dataclass(slots=True)
class Witness:
    """Follows the topics that the service writes, with kafka-python itself.

    versions: number to the releases under it, by digest; the first in the log comes first.
    receipts: (partition, offset) of a delete to its receipt in the chain.
    covering: id of the receipt that covers all documents of a person to it, and to the last number in the chain then.
    digests: number in the chain to the digest of the receipt's bytes.
    strays: number of receipts that competed for a place in the chain.
    rejected: (partition, offset) of records that were reported as refused.
    reasons: the same with the reported reason.
    findings: releases and receipts that do not verify or must not be there.
    """

    servers: str
    names: TopicNames
    key: PublicKey
    versions: dict[int, dict[str, Release]] = field(default_factory=dict)
    receipts: dict[tuple[int, int], Receipt] = field(default_factory=dict)
    covering: dict[str, tuple[SubjectReceipt, int]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    strays: int = 0
    rejected: set[tuple[int, int]] = field(default_factory=set)
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    _tails: dict[str, TopicTail] = field(default_factory=dict)
    _assembler: Assembler = field(default_factory=Assembler)
    _head: tuple[int, str] = (0, "")
    _known: set[str] = field(default_factory=set)

    @property
    def rivals(self) -> int:
        """Number of releases under a number that another one had before."""
        return sum(len(contents) - 1 for contents in self.versions.values())

    def read(self) -> None:
        """Take in the records since the last call. Raises ComponentUnreachable."""
        for topic, take in (
            (self.names.releases, self._release),
            (self.names.receipts, self._receipt),
            (self.names.rejected, self._rejection),
        ):
            if topic not in self._tails:
                self._tails[topic] = TopicTail(self.servers, topic, 1)
            for record in self._tails[topic].read():
                take(record)

    def close(self) -> None:
        """Close the connections."""
        for tail in self._tails.values():
            tail.close()

    def _release(self, record: TailRecord) -> None:
        place = self.names.releases, record.partition, record.offset
        done = self._assembler.take(Record(*place, record.key, record.value, record.headers, timestamp_ms=0))
        if not isinstance(done, Assembled):
            return
        try:
            release = open_release(done.data, self.key)
        except InvalidRelease as error:
            self.findings.append(f"release {done.version} at offset {record.offset} does not verify: {error}")
            return
        self.versions.setdefault(release.version, {})[digest(release)] = release

    def _receipt(self, record: TailRecord) -> None:
        if record.value is None:
            self.findings.append(f"receipt {record.key!r} was erased at offset {record.offset}")
            return
        try:
            receipt = open_any(record.value, self.key)
        except InvalidRelease as error:
            self.findings.append(f"receipt at offset {record.offset} does not verify: {error}")
            return
        if isinstance(receipt, SubjectReceipt):
            # Redis that was set back has one made again, and readers believe the first.
            self.covering.setdefault(receipt.id, (receipt, self._head[0]))
            return
        name, place = hashlib.sha256(record.value).hexdigest(), (receipt.partition, receipt.offset)
        # A publisher that was killed before it could note what it had sent sends the same bytes once more.
        if name in self._known:
            return
        if (receipt.sequence, receipt.previous) != (self._head[0] + 1, self._head[1]):
            self.strays += 1
            return
        if isinstance(receipt, Receipt) and place in self.receipts:
            self.findings.append(f"the deletion at {place} has a second receipt in the chain, {receipt.sequence}")
        self._known.add(name)
        self._head = receipt.sequence, name
        self.digests[receipt.sequence] = name
        if isinstance(receipt, Receipt):
            self.receipts[place] = receipt

    def _rejection(self, record: TailRecord) -> None:
        fields = msgpack.unpackb(record.value or b"")
        place = fields["partition"], fields["offset"]
        self.rejected.add(place)
        self.reasons[place] = str(fields["reason"])


class Subscriber:
    """A client of the releases topic that is started again now and then.

    open_one: makes a subscriber that continues from a file.
    progress: that file.
    seen: version to digest, in the order in which they came.
    refused: number of releases that it did not take.
    findings: versions that came out of order.
    """

    def __init__(self, open_one: Callable[[Path], ModelSubscriber], progress: Path) -> None:
        self.seen: dict[int, str] = {}
        self.refused = 0
        self.findings: list[str] = []
        self._open = open_one
        self._progress = progress
        self._subscriber: ModelSubscriber | None = None

    def poll(self) -> None:
        """Take the releases that are there now. A broker that is away is not a finding."""
        try:
            if self._subscriber is None:
                self._subscriber = self._open(self._progress)
            while (release := self._subscriber.poll()) is not None:
                self._take(release)
        except ComponentUnreachable:
            return
        # Counted here, since a restart begins with a new subscriber.
        self.refused += self._subscriber.refused
        self._subscriber.refused = 0

    def restart(self) -> None:
        """End it properly. The next poll starts another subscriber, which continues where this one stopped."""
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None

    def _take(self, release: Release) -> None:
        last = max(self.seen, default=0)
        if release.version <= last:
            self.findings.append(f"a subscriber got version {release.version} after {last}")
        self.seen[release.version] = digest(release)
