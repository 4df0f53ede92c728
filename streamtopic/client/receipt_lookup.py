"""Look up what happened to a deletion."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

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

__all__ = ["Receipts"]

_WITHOUT_SALT = 2
"""Format of receipts whose request digests have no salt."""


class Receipts:
    """Reads a model's receipts topic, verifying each receipt; what else is in the topic is passed over and counted.

    log: an EventLog, Kafka's servers as "host:port", or the folder of a log in files. public_key: as `PublicKey.load`
    takes it; with a root key, the keys that sign are those of the newest key list in the releases topic.
    """

    def __init__(
        self, log: str | Path | EventLog, *, model: str, public_key: KeyRing | PublicKey | str | bytes | Path
    ) -> None:
        self._model = model
        TopicNames(model)  # refuses an unusable name now, not at the first look
        self._key = KeyRing.load(public_key, model)
        self._log, self._owned = open_log(log)
        self._places = _Places()
        self._lists_end = 0
        self._reader = ReceiptReader(self._log, model, self._key, note=self._places.note, learn=self._learn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def skipped(self) -> int:
        """How many records of the topic, as far as it was read, are not receipts; anybody may have written them."""
        return self._reader.skipped

    def __iter__(self) -> Iterator[Receipt]:
        """All receipts that are there now, in the order of their chain, each once."""
        return ReceiptReader(self._log, self._model, self._key, learn=self._learn).read()

    def find(self, request: str, *, salt: Salt | None = None) -> list[Receipt]:
        """Receipts of the deletions with this request id and salt, in their order; [] until a version is published.

        request: as `DocumentProducer.delete` returned it, which holds its salt; or any request id, with its salt.
        There can be several: another producer may have used the same id. `Receipt.is_about` says which is yours.
        Without a salt only receipts of before 0.2 are found; later ones the service alone can find.
        """
        known = getattr(request, "salt", None) if salt is None else salt
        found = self._lookup(plain_request_digest(request), lambda receipt: receipt.format == _WITHOUT_SALT)
        if known:
            found += self._lookup(request_digest(request, known), lambda receipt: receipt.is_of(request, known))
        return sorted(found, key=lambda receipt: receipt.sequence)

    def linked(self, request: str, keys: Mapping[str, bytes]) -> list[Receipt]:
        """Receipts of a request id, for the service itself. keys: month to key, as far as they are not destroyed."""
        return [receipt for receipt in self if receipt.is_linked(request, keys)] if keys else []

    def get(self, receipt_id: str) -> Receipt | None:
        """Receipt with this id, None without one."""
        return next(iter(self._lookup(receipt_id, lambda receipt: receipt.id == receipt_id)), None)

    def completion(self, receipt: Receipt) -> Completion | None:
        """The completion that says that nothing is left of what a receipt of this topic speaks of; None before it."""
        for _ in self._reader.read():
            pass
        return next((one for one in self._reader.completions if one.covers(receipt)), None)

    def _lookup(self, name: str, wanted: Callable[[Receipt], bool]) -> list[Receipt]:
        """Read what is new in the topic, then the receipts where they were noted."""
        for _ in self._reader.read():
            pass
        noted = [self._reader.at(offset) for offset in self._places.find(name)]
        found = {receipt.sequence: receipt for receipt in noted if receipt is not None}
        named = (receipt for receipt in found.values() if name in {receipt.request, receipt.id})
        return [receipt for receipt in named if wanted(receipt)]

    def _learn(self) -> bool:
        """Take in newer key lists; whether there were any. The releases topic is read only where it has grown."""
        topic = TopicNames(self._model).releases
        end = self._log.end(topic, 0) if self._log.partitions(topic) else 0
        if end == self._lists_end:
            return False
        self._lists_end = end
        return follow_keys(self._log, self._model, self._key)

    def close(self) -> None:
        """Close the log if it was opened here."""
        if self._owned:
            self._log.close()


class _Places:
    """Where receipts are in the topic, by request digest and by id: 24 bytes each."""

    def __init__(self) -> None:
        self._names = array("Q")
        self._offsets = array("q")

    def note(self, receipt: Receipt, offset: int) -> None:
        self._names.extend((_short(receipt.request), _short(receipt.id)))
        self._offsets.append(offset)

    def find(self, name: str) -> list[int]:
        """Return offsets that may be those of this name, the oldest first."""
        found = np.flatnonzero(np.frombuffer(self._names, np.uint64) == _short(name)) if self._names else ()
        return [self._offsets[place // 2] for place in found]


def _short(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
