"""Keeps what the world saw: every entry, release and rejection that was ever in the log, and what subscribers got."""

import hashlib

import msgpack

from campaign.ledger_book import LedgerBook, ReleasesBook
from streamtopic.client import ModelSubscriber
from streamtopic.errors import ComponentUnreachable
from streamtopic.signed import Envelope, KeyRing, Ledger, Receipt, RequestReceipt, pack_payload, parse_line


class Witness:
    """Takes in the records of the topics that the service writes.

    book: the ledger, read by the words of the docs alone; ledger: the same, as a subscriber reads it.
    releases: what was sent, by the words of the docs.
    entries: number of a version to its entry in the ledger.
    receipts: (partition, offset) of a delete to its receipt.
    covering: how receipts name a request to the receipt of the request, and the number of entries before it.
    places: (partition, offset) of a delete to the number of entries before its receipt.
    rejected: (partition, offset) of records that were reported as refused.
    findings: entries that must not be there.
    """

    def __init__(self, key, model):
        self.book = LedgerBook(str(key))
        self.ledger = Ledger(KeyRing.load(key, model))
        self.releases = ReleasesBook()
        self.entries = {}
        self.receipts = {}
        self.covering = {}
        self.places = {}
        self.rejected = set()
        self.findings = []

    def take_page(self, value):
        """Take in the next record of the ledger's topic."""
        self.ledger.take(value)
        first = len(self.book.lines)
        for index, line in enumerate(self.book.take(value), start=first):
            self._entry(index, parse_line(line))

    def take_rejection(self, value):
        """Take in the next record of the topic of rejections."""
        fields = msgpack.unpackb(value or b"")
        self.rejected.add((fields["partition"], fields["offset"]))

    def _entry(self, index, entry):
        if isinstance(entry, Envelope):
            self._once(self.entries, entry.version, entry, f"version {entry.version} has a second entry", index)
        elif isinstance(entry, RequestReceipt):
            self._once(self.covering, entry.request, (entry, index), f"{entry.id} has a second entry", index)
        elif isinstance(entry, Receipt):
            place = entry.partition, entry.offset
            self._once(self.receipts, place, entry, f"the deletion at {place} has a second receipt", index)
            self.places.setdefault(place, index)

    def _once(self, known, name, entry, again, index):
        if name in known:
            self.findings.append(f"{again} in the ledger, {index}")
        known.setdefault(name, entry)


class Subscriber:
    """A client of the releases topic that is started again now and then.

    servers: of Kafka.
    options: of ModelSubscriber; `progress` is the file from which it continues.
    seen: version to its facts and the SHA-256 of its bytes, in the order in which they came.
    refused: number of releases that it did not take.
    findings: versions that came out of order.
    """

    def __init__(self, servers, **options):
        self.seen = {}
        self.refused = 0
        self.findings = []
        self._servers = servers
        self._options = options
        self._subscriber = None

    def poll(self):
        """Take the releases that are there now. A broker that is away is not a finding."""
        try:
            self._subscriber = self._subscriber or ModelSubscriber(self._servers, **self._options)
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
        data = pack_payload(release.payload, release.envelope)
        self.seen[release.version] = release.envelope, hashlib.sha256(data).hexdigest()
