"""The chain of receipts: each names its number and the digest of the one before, so that a missing one is noticed.

A log takes records from whoever holds the key, so a publisher that slept through a restored Redis may append receipts
that compete with those of its successor. Which of them count is a function of the order of the log alone: a receipt
belongs to the chain if it continues it when it appears. The others are strays: they are passed over by every reader,
and what they speak of gets a receipt in the chain.
"""

import hashlib
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum, auto

from streamtopic.receipts.receipt import Receipt

__all__ = ["Chain", "ChainHead", "Taken", "digest_of"]


def digest_of(data: bytes) -> str:
    """How the next receipt names these sealed bytes."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest receipt of a chain: its number and the digest of its sealed bytes; 0 and "" before the first."""

    sequence: int = 0
    digest: str = ""


class Taken(Enum):
    """What a receipt is to the chain."""

    ACCEPTED = auto()
    """It continues the chain."""
    REPEATED = auto()
    """It is in the chain already, with the same bytes."""
    WAITING = auto()
    """It comes later in the chain than what is known: compaction has changed the order of the log, or one is lost."""
    STRAY = auto()
    """It competes with a receipt of the chain."""
    RIVAL = auto()
    """A stray for a deletion that has its receipt, so under compaction it would erase that one."""


class Chain:
    """Which receipts of a model are in the chain; 16 bytes each.

    head: the newest one. lost: numbers that the chain goes on without. strays: how many competed.
    """

    def __init__(self) -> None:
        self.head = ChainHead()
        self.lost: list[range] = []
        self.strays = 0
        self._places: dict[int, _Places] = {}
        self._waiting: dict[int, list[tuple[Receipt, str]]] = {}
        self._stray_digests: set[str] = set()

    def __len__(self) -> int:
        return sum(len(places) for places in self._places.values())

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Whether the delete at this (partition, offset) has its receipt."""
        partition, offset = place
        return partition in self._places and self._places[partition].find(offset) is not None

    def holds(self, receipt: Receipt, digest: str) -> bool:
        """Whether this very receipt is in the chain."""
        places = self._places.get(receipt.partition)
        return places is not None and places.find(receipt.offset) == _short(digest)

    def take(self, receipt: Receipt, digest: str) -> tuple[Taken, list[Receipt]]:
        """Say what a verified receipt is, and which receipts belong to the chain from now on, in its order."""
        if (receipt.partition, receipt.offset) in self:
            if self.holds(receipt, digest):
                return Taken.REPEATED, []
            self._stray(digest)
            return Taken.RIVAL, []
        if receipt.sequence > self.head.sequence + 1 and receipt.previous not in self._stray_digests:
            self._waiting.setdefault(receipt.sequence, []).append((receipt, digest))
            return Taken.WAITING, []
        if not self._continues(receipt):
            self._stray(digest)
            return Taken.STRAY, []
        self._accept(receipt, digest)
        return Taken.ACCEPTED, [receipt, *self._continue()]

    def settle(self) -> list[Receipt]:
        """At the end of the log: go on past receipts that are lost; those that belong to the chain from now on."""
        accepted: list[Receipt] = []
        while self._waiting:
            number = min(self._waiting)
            if number > self.head.sequence + 1:
                receipt, digest = self._waiting[number].pop(0)
                self.skip_to(ChainHead(number - 1, receipt.previous))
                self._accept(receipt, digest)
                accepted.append(receipt)
            accepted += self._continue()
        return accepted

    def skip_to(self, head: ChainHead) -> None:
        """Go on from `head` although the receipts up to it are not known: the log has lost them."""
        self.lost.append(range(self.head.sequence + 1, head.sequence + 1))
        self.head = head

    def _continue(self) -> list[Receipt]:
        """Accept those that waited for what has come; their competitors are strays."""
        accepted: list[Receipt] = []
        for number in sorted(self._waiting):
            if number > self.head.sequence + 1:
                break
            for receipt, digest in self._waiting.pop(number):
                if self._continues(receipt):
                    self._accept(receipt, digest)
                    accepted.append(receipt)
                elif not self.holds(receipt, digest):
                    self._stray(digest)
        return accepted

    def _continues(self, receipt: Receipt) -> bool:
        follows = (receipt.sequence, receipt.previous) == (self.head.sequence + 1, self.head.digest)
        return follows and (receipt.partition, receipt.offset) not in self

    def _accept(self, receipt: Receipt, digest: str) -> None:
        self._places.setdefault(receipt.partition, _Places()).add(receipt.offset, _short(digest))
        self.head = ChainHead(receipt.sequence, digest)

    def _stray(self, digest: str) -> None:
        self.strays += 1
        self._stray_digests.add(digest)


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

    def add(self, offset: int, digest: int) -> None:
        place = bisect_left(self._offsets, offset)
        self._offsets.insert(place, offset)
        self._digests.insert(place, digest)


def _short(digest: str) -> int:
    return int(digest[:16], 16)
