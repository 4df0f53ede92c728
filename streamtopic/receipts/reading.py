"""Reading the receipts topic: verified receipts in the order of their chain, strays passed over."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from streamtopic.errors import InvalidRelease
from streamtopic.receipts.chain import Chain, Taken, digest_of
from streamtopic.receipts.receipt import Receipt, open_receipt
from streamtopic.signing import PublicKey
from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["ReceiptReader"]


def _raise(error: InvalidRelease) -> None:
    raise error


def _ignore(*_: object) -> None:
    """Take no notice."""


class ReceiptReader:
    """Follows a model's receipts topic; each record is read once.

    refuse: told of a record that is no receipt of this model signed with `key`; it is passed over if this returns.
    note: told of every other one, with its offset.
    chain: what is known of the chain. rivals: ids of receipts that a later stray of the same deletion would erase from
    a compacted log, until the publisher has repeated them.
    """

    def __init__(
        self,
        log: EventLog,
        model: str,
        key: PublicKey,
        refuse: Callable[[InvalidRelease], None] = _raise,
        note: Callable[[Receipt, int], None] = _ignore,
    ) -> None:
        self._log = log
        self._model = model
        self._topic = TopicNames(model).receipts
        self._key = key
        self._refuse = refuse
        self._note = note
        self._offset: int | None = None
        self.chain = Chain()
        self.rivals: set[bytes] = set()

    def read(self) -> Iterator[Receipt]:
        """Yield receipts that belong to the chain and were not known before, in its order, up to the end of the log."""
        if self._log.partitions(self._topic) == 0:
            return
        begin = self._log.begin(self._topic, 0)
        self._offset = begin if self._offset is None else max(self._offset, begin)
        while records := self._log.read(self._topic, 0, self._offset):
            for record in records:
                yield from self._take(record)
                self._offset = record.next_offset
        yield from self.chain.settle()

    def at(self, offset: int) -> Receipt | None:
        """Return the chain's receipt at an offset that was noted, None where compaction has erased it there."""
        records = self._log.read(self._topic, 0, offset, 1)
        if not records or records[0].offset != offset:
            return None
        receipt = self._open(records[0])
        return receipt if receipt and self.chain.holds(receipt, digest_of(records[0].value or b"")) else None

    def records(self, ids: AbstractSet[bytes] | None = None) -> Iterator[tuple[Receipt, Record]]:
        """Yield the chain's receipts with their records, each once, from the start of the log, as far as `read` went.

        ids: only those of these receipts.
        """
        seen = set[int]()
        offset = self._log.begin(self._topic, 0)
        while offset < (self._offset or 0) and (records := self._log.read(self._topic, 0, offset)):
            for record in records:
                receipt = self._open(record) if ids is None or record.key in ids else None
                if receipt is None or receipt.sequence in seen:
                    continue
                if self.chain.holds(receipt, digest_of(record.value or b"")):
                    seen.add(receipt.sequence)
                    yield receipt, record
            offset = records[-1].next_offset

    def _take(self, record: Record) -> list[Receipt]:
        receipt = self._open(record)
        if receipt is None:
            return []
        self._note(receipt, record.offset)
        taken, accepted = self.chain.take(receipt, digest_of(record.value or b""))
        if taken is Taken.RIVAL:
            self.rivals.add(receipt.id.encode())
        elif taken is Taken.REPEATED:
            self.rivals.discard(receipt.id.encode())
        return accepted

    def _open(self, record: Record) -> Receipt | None:
        if record.value is None:
            return None
        try:
            return self._verified(record.key, record.value)
        except InvalidRelease as error:
            self._refuse(error)
            return None

    def _verified(self, key: bytes | None, value: bytes) -> Receipt:
        receipt = open_receipt(value, self._key)
        if receipt.model != self._model or receipt.id.encode() != key:
            raise InvalidRelease(f"receipt {receipt.id} lies under another key: somebody has moved it")
        return receipt
