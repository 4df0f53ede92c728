"""Looking up the receipts of deletions."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from streamtopic.signed import (
    Completion,
    KeyRing,
    PublicKey,
    Receipt,
    ReceiptReader,
    Salt,
    follow_keys,
    plain_request_digest,
    request_digest,
)
from streamtopic.streams import EventLog, TopicNames, open_log
from streamtopic.streams.event_log import Closing

__all__ = ["Receipts"]

_WITHOUT_SALT = 2
"""Format of receipts whose request digests have no salt."""


class Receipts(Closing):
    """Reads a model's receipts topic and verifies each receipt. Other records are passed over and counted.

    log: an EventLog, Kafka's servers as "host:port", or the folder of a log in files.
    model: name of the model.
    public_key: as `PublicKey.load` takes it; with a root key, the newest key list in the releases topic names the keys
        that sign.
    """

    def __init__(
        self, log: str | Path | EventLog, *, model: str, public_key: KeyRing | PublicKey | str | bytes | Path
    ) -> None:
        self._model = model
        # Refuses an unusable name now, not at the first look.
        TopicNames(model)
        self._key = KeyRing.load(public_key, model)
        self._log, self._owned = open_log(log)
        self._places = _Places()
        self._lists_end = 0
        self._reader = ReceiptReader(self._log, model, self._key, note=self._places.note, learn=self._learn)

    @property
    def skipped(self) -> int:
        """Number of records so far that are not receipts of the chain. Anybody may have written them."""
        return self._reader.skipped

    def __iter__(self) -> Iterator[Receipt]:
        """Yield all receipts of the topic, in the order of their chain, each once."""
        return ReceiptReader(self._log, self._model, self._key, learn=self._learn).read()

    def find(self, request: str, *, salt: Salt | None = None) -> list[Receipt]:
        """Return the receipts of deletions with this request id and salt, in their order.

        request: as `DocumentProducer.delete` returned it, with its salt; or any request id.
        salt: the salt, where `request` does not hold it. Without a salt only receipts of before 0.2 are found: later
            ones only the service can find.

        The list is empty until a version without the document is published. It may hold receipts of another producer
        who used the same request id; `Receipt.is_about` tells which one is yours.
        """
        known = getattr(request, "salt", None) if salt is None else salt
        found = self._lookup(plain_request_digest(request), lambda receipt: receipt.format == _WITHOUT_SALT)
        if known:
            found += self._lookup(request_digest(request, known), lambda receipt: receipt.is_of(request, known))
        return sorted(found, key=lambda receipt: receipt.sequence)

    def linked(self, request: str, keys: Mapping[str, bytes]) -> list[Receipt]:
        """Return the receipts of a request id without its salt; only the service itself can do this.

        keys: month to key, for the months whose keys are not destroyed.
        """
        if not keys:
            return []
        return [receipt for receipt in self if receipt.is_linked(request, keys)]

    def get(self, receipt_id: str) -> Receipt | None:
        """Return the receipt with this id, None without one."""
        found = self._lookup(receipt_id, lambda receipt: receipt.id == receipt_id)
        return found[0] if found else None

    def completion(self, receipt: Receipt) -> Completion | None:
        """Return the signed statement that no trace is left of the document of a receipt; None before it is made.

        receipt: of this topic.
        """
        self._read_on()
        return next((one for one in self._reader.completions if one.covers(receipt)), None)

    def _lookup(self, name: str, wanted: Callable[[Receipt], bool]) -> list[Receipt]:
        """Return the receipts with this request digest or id that the test accepts."""
        self._read_on()
        # Only places are kept of receipts that were read; those that may be meant are read again.
        noted = [self._reader.at(offset) for offset in self._places.find(name)]
        found = {receipt.sequence: receipt for receipt in noted if receipt is not None}
        named = (receipt for receipt in found.values() if name in {receipt.request, receipt.id})
        return [receipt for receipt in named if wanted(receipt)]

    def _read_on(self) -> None:
        """Verify the records that are new in the topic, and note the places of receipts."""
        for _ in self._reader.read():
            pass

    def _learn(self) -> bool:
        """Read newer key lists; return whether there were any."""
        topic = TopicNames(self._model).releases
        end = self._log.end(topic, 0) if self._log.partitions(topic) else 0
        # Asked for every record with an unknown key: forged ones must not make it read the releases topic each time.
        if end == self._lists_end:
            return False
        self._lists_end = end
        return follow_keys(self._log, self._model, self._key)

    def close(self) -> None:
        """Close the log if this object opened it."""
        if self._owned:
            self._log.close()


class _Places:
    """The offsets of receipts, by request digest and by id."""

    def __init__(self) -> None:
        # 24 bytes for each receipt, since a topic may hold millions: eight of each name's digest, eight of the offset.
        self._names = array("Q")
        self._offsets = array("q")

    def note(self, receipt: Receipt, offset: int) -> None:
        self._names.extend((_short(receipt.request), _short(receipt.id)))
        self._offsets.append(offset)

    def find(self, name: str) -> list[int]:
        """Return offsets of receipts that may have this name, the oldest first."""
        # `frombuffer` refuses an empty buffer.
        if not self._names:
            return []
        found = np.flatnonzero(np.frombuffer(self._names, np.uint64) == _short(name))
        return [self._offsets[place // 2] for place in found]


def _short(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
