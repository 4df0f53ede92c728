"""The chain of receipts and completions: each names its number and the digest of the one before, so that gaps show.

The receipts topic only grows: nothing in it is compacted, replaced or reordered. So its order alone decides which
receipts count: the first signed record for the next place, whose previous digest fits. All others are strays, whoever
wrote them: every reader passes them over, and what they speak of gets a receipt in the chain.

`ReceiptReader` follows the topic: it gives verified receipts in the order of their chain, and passes over the rest.
"""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed.completion import COMPLETIONS, Completion, Link, open_link
from streamtopic.signed.deletion_receipt import Receipt
from streamtopic.signed.signing_keys import Verifier
from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["Chain", "ChainHead", "ReceiptReader", "digest_of"]


def digest_of(data: bytes) -> str:
    """How the next receipt names these sealed bytes."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest receipt of a chain: its number and the digest of its sealed bytes; 0 and "" before the first."""

    sequence: int = 0
    digest: str = ""


class Chain:
    """Which receipts and completions of a model are in the chain; 16 bytes each.

    head: the newest one. lost: numbers that the chain goes on without.
    """

    def __init__(self) -> None:
        self.head = ChainHead()
        self.lost: list[range] = []
        self._places: dict[int, _Places] = {}
        self._waiting: dict[int, list[tuple[Link, str]]] = {}
        self._stray_digests: set[str] = set()

    def __len__(self) -> int:
        return sum(len(places) for partition, places in self._places.items() if partition != COMPLETIONS)

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Whether the delete at this (partition, offset) has its receipt."""
        partition, offset = place
        return partition in self._places and self._places[partition].find(offset) is not None

    @property
    def strays(self) -> int:
        """How many receipts competed with those of the chain."""
        return len(self._stray_digests)

    def between(self, partition: int, begin: int, end: int) -> int:
        """Return how many deletes of a partition from `begin` on and before `end` have their receipt."""
        return self._places[partition].between(begin, end) if partition in self._places else 0

    def holds(self, receipt: Link, digest: str) -> bool:
        """Whether this very receipt is in the chain."""
        places = self._places.get(receipt.partition)
        return places is not None and places.find(receipt.offset) == _short(digest)

    def is_stray(self, digest: str) -> bool:
        """Whether a receipt with this digest was passed over."""
        return digest in self._stray_digests

    def take(self, receipt: Link, digest: str) -> list[Link]:
        """Take the next verified receipt of the log; those that belong to the chain from now on, in its order."""
        if self.holds(receipt, digest):
            return []  # a publisher that was killed sends its bytes again
        # The one before it is not in the log: records are lost, or a compaction of former times has moved it.
        if receipt.sequence > self.head.sequence + 1 and receipt.previous not in self._stray_digests:
            self._waiting.setdefault(receipt.sequence, []).append((receipt, digest))
            return []
        if not self._continues(receipt):
            self._stray_digests.add(digest)
            return []
        self._accept(receipt, digest)
        return [receipt, *self._continue()]

    def settle(self) -> list[Link]:
        """At the end of the log: go on past receipts that are lost; those that belong to the chain from now on."""
        accepted: list[Link] = []
        while self._waiting:
            number = min(self._waiting)
            if number > self.head.sequence + 1:
                first, _ = self._waiting[number][0]
                self.skip_to(ChainHead(number - 1, first.previous))
            accepted += self._continue()
        return accepted

    def skip_to(self, head: ChainHead) -> None:
        """Go on from `head` although the receipts up to it are not known: the log has lost them."""
        self.lost.append(range(self.head.sequence + 1, head.sequence + 1))
        self.head = head

    def _continue(self) -> list[Link]:
        """Accept those that waited for what has come; their competitors are strays."""
        accepted: list[Link] = []
        for number in sorted(self._waiting):
            if number > self.head.sequence + 1:
                break
            for receipt, digest in self._waiting.pop(number):
                if self._continues(receipt):
                    self._accept(receipt, digest)
                    accepted.append(receipt)
                elif not self.holds(receipt, digest):
                    self._stray_digests.add(digest)
        return accepted

    def _continues(self, receipt: Link) -> bool:
        follows = (receipt.sequence, receipt.previous) == (self.head.sequence + 1, self.head.digest)
        return follows and (receipt.partition, receipt.offset) not in self

    def _accept(self, receipt: Link, digest: str) -> None:
        self._places.setdefault(receipt.partition, _Places()).add(receipt.offset, _short(digest))
        self.head = ChainHead(receipt.sequence, digest)


class _Places:
    """Offsets of a partition's deletions that have a receipt, with the first eight bytes of its digest."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._digests = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    def find(self, offset: int) -> int | None:
        place = bisect_left(self._offsets, offset)
        return self._digests[place] if self._offsets[place : place + 1] == array("q", [offset]) else None

    def between(self, begin: int, end: int) -> int:
        return max(bisect_left(self._offsets, end) - bisect_left(self._offsets, begin), 0)

    def add(self, offset: int, digest: int) -> None:
        place = bisect_left(self._offsets, offset)
        self._offsets.insert(place, offset)
        self._digests.insert(place, digest)


def _short(digest: str) -> int:
    return int(digest[:16], 16)


def _ignore(*_: object) -> None:
    """Take no notice."""


def _nothing_new() -> bool:
    return False


class ReceiptReader:
    """Follows a model's receipts topic; each record is read once.

    Whoever may write to the topic can put anything there. A record that is not a receipt of this model, signed with
    `key`, is passed over.

    note: told of every receipt, with its offset. learn: asked where a record names a key that is not known: takes in
    newer key lists, and says whether there were any.
    chain: what is known of the chain. completions: those in it, in its order. skipped: how many records were neither
    receipts nor completions.
    """

    def __init__(
        self,
        log: EventLog,
        model: str,
        key: Verifier,
        note: Callable[[Receipt, int], None] = _ignore,
        learn: Callable[[], bool] = _nothing_new,
    ) -> None:
        self._log = log
        self._model = model
        self._topic = TopicNames(model).receipts
        self._key = key
        self._note = note
        self._learn = learn
        # Where a record named a key that was not known then.
        self._unknown: int | None = None
        self._offset: int | None = None
        self.chain = Chain()
        self.completions: list[Completion] = []
        self.skipped = 0

    def read(self) -> Iterator[Receipt]:
        """Yield receipts that belong to the chain and were not known before, in its order, up to the end of the log."""
        if self._log.partitions(self._topic) == 0:
            return
        begin = self._log.begin(self._topic, 0)
        self._offset = begin if self._offset is None else max(self._offset, begin)
        if self._unknown is not None and self._learn():
            self._offset, self._unknown = max(self._unknown, begin), None
        while records := self._log.read(self._topic, 0, self._offset):
            for record in records:
                yield from self._receipts(self._take(record))
                self._offset = record.next_offset
        yield from self._receipts(self.chain.settle())

    def at(self, offset: int) -> Receipt | None:
        """Return the chain's receipt at an offset that was noted, None where a stray is there."""
        records = self._log.read(self._topic, 0, offset, 1)
        found = self._chained(records[0]) if records and records[0].offset == offset else None
        return found if isinstance(found, Receipt) else None

    def records(self, ids: AbstractSet[bytes] | None = None) -> Iterator[tuple[Link, Record]]:
        """Yield what is in the chain with its records, each once, from the start of the log, as far as `read` went.

        ids: only those with one of these.
        """
        seen = set[int]()
        offset = self._log.begin(self._topic, 0)
        while offset < (self._offset or 0) and (records := self._log.read(self._topic, 0, offset)):
            for record in records:
                receipt = self._chained(record) if ids is None or record.key in ids else None
                if receipt is not None and receipt.sequence not in seen:
                    seen.add(receipt.sequence)
                    yield receipt, record
            offset = records[-1].next_offset

    def _receipts(self, links: Iterable[Link]) -> Iterator[Receipt]:
        for link in links:
            if isinstance(link, Completion):
                self.completions.append(link)
            else:
                yield link

    def _take(self, record: Record) -> list[Link]:
        try:
            receipt = self._opened(record)
        except InvalidRelease:
            self.skipped += 1
            return []
        if isinstance(receipt, Receipt):
            self._note(receipt, record.offset)
        return self.chain.take(receipt, digest_of(record.value or b""))

    def _opened(self, record: Record) -> Link:
        while True:
            try:
                return self._open(record)
            except UnknownKey:
                if not self._learn():
                    # Its key may be in a list that comes later; what was read since is known then and counts once.
                    self._unknown = record.offset if self._unknown is None else self._unknown
                    raise

    def _chained(self, record: Record) -> Link | None:
        """Return the receipt or completion in a record that was read before, None for one that is not in the chain."""
        try:
            receipt = self._open(record)
        except InvalidRelease:
            return None
        return receipt if self.chain.holds(receipt, digest_of(record.value or b"")) else None

    def _open(self, record: Record) -> Link:
        if record.value is None:
            raise InvalidRelease(f"record {record.offset} of {self._topic} is a tombstone, which erases nothing here")
        receipt = open_link(record.value, self._key)
        if receipt.model != self._model or receipt.id.encode() != record.key:
            raise InvalidRelease(f"receipt {receipt.id} lies under another key: somebody has copied it")
        return receipt
