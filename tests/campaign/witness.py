"""Keeps what the world saw: every entry, release and rejection that was ever in the log, and what subscribers got."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from campaign.ledger_book import LedgerBook
from campaign.tail import TopicTail
from streamtopic.errors import ComponentUnreachable
from streamtopic.signed import (
    Envelope,
    KeyRing,
    Ledger,
    Receipt,
    Refused,
    Release,
    ReleaseReader,
    RequestReceipt,
    parse_line,
)
from streamtopic.streams import Record

if TYPE_CHECKING:
    from streamtopic.signed import PublicKey
    from streamtopic.streams import TopicNames


def digest(release):
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

    book: the ledger, read by the words of the docs alone; ledger: the same, as a subscriber reads it.
    entries: number of a version to its entry in the ledger.
    versions: number to the release whose bytes were sent.
    receipts: (partition, offset) of a delete to its receipt.
    covering: how receipts name a request to the receipt of the request, and the number of entries before it.
    places: (partition, offset) of a delete to the number of entries before its receipt.
    rejected: (partition, offset) of records that were reported as refused.
    findings: releases and receipts that do not verify or must not be there.
    """

    servers: str
    names: TopicNames
    key: PublicKey
    book: LedgerBook = field(init=False)
    ledger: Ledger = field(init=False)
    entries: dict[int, Envelope] = field(default_factory=dict)
    versions: dict[int, Release] = field(default_factory=dict)
    receipts: dict[tuple[int, int], Receipt] = field(default_factory=dict)
    covering: dict[str, tuple[RequestReceipt, int]] = field(default_factory=dict)
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    rejected: set[tuple[int, int]] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)
    _tails: dict[str, TopicTail] = field(default_factory=dict)
    _releases: ReleaseReader = field(init=False)

    def __post_init__(self):
        """Begin with nothing."""
        self.book = LedgerBook(str(self.key))
        self.ledger = Ledger(KeyRing.load(self.key, self.names.model))
        self._releases = ReleaseReader(self.ledger)

    def read(self):
        """Take in the records since the last call. Raises ComponentUnreachable."""
        for topic, take in (
            (self.names.ledger, self._page),
            (self.names.releases, self._release),
            (self.names.rejected, self._rejection),
        ):
            if topic not in self._tails:
                self._tails[topic] = TopicTail(self.servers, topic, 1)
            for record in self._tails[topic].read():
                take(record)

    def close(self):
        """Close the connections."""
        for tail in self._tails.values():
            tail.close()

    def _release(self, record):
        place = self.names.releases, record.partition, record.offset
        read = Record(*place, record.key, record.value, record.headers, timestamp_ms=0)
        for news in self._releases.take(read):
            match news:
                case Refused(version, error):
                    self.findings.append(f"release {version} at offset {record.offset} does not verify: {error}")
                case release:
                    self._version(release)

    def _version(self, release):
        known = self.versions.setdefault(release.version, release)
        if digest(known) != digest(release):
            self.findings.append(f"version {release.version} was sent with two contents")

    def _page(self, record):
        self.ledger.take(record.value)
        first = len(self.book.lines)
        for index, line in enumerate(self.book.take(record.value), start=first):
            self._entry(index, parse_line(line))

    def _entry(self, index, entry):
        if isinstance(entry, Envelope):
            if entry.version in self.entries:
                self.findings.append(f"version {entry.version} has a second entry in the ledger, {index}")
            self.entries.setdefault(entry.version, entry)
        elif isinstance(entry, RequestReceipt):
            if entry.request in self.covering:
                self.findings.append(f"{entry.id} has a second entry in the ledger, {index}")
            self.covering.setdefault(entry.request, (entry, index))
        elif isinstance(entry, Receipt):
            place = entry.partition, entry.offset
            if place in self.receipts:
                self.findings.append(f"the deletion at {place} has a second receipt in the ledger, {index}")
            self.receipts.setdefault(place, entry)
            self.places.setdefault(place, index)

    def _rejection(self, record):
        fields = msgpack.unpackb(record.value or b"")
        self.rejected.add((fields["partition"], fields["offset"]))


class Subscriber:
    """A client of the releases topic that is started again now and then.

    open_one: makes a subscriber that continues from a file.
    progress: that file.
    seen: version to digest, in the order in which they came.
    refused: number of releases that it did not take.
    findings: versions that came out of order.
    """

    def __init__(self, open_one, progress):
        self.seen = {}
        self.refused = 0
        self.findings = []
        self._open = open_one
        self._progress = progress
        self._subscriber = None

    def poll(self):
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

    def restart(self):
        """End it properly. The next poll starts another subscriber, which continues where this one stopped."""
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None

    def _take(self, release):
        last = max(self.seen, default=0)
        if release.version <= last:
            self.findings.append(f"a subscriber got version {release.version} after {last}")
        self.seen[release.version] = digest(release)
