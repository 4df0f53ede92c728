"""Look up what happened to a deletion."""

import hashlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from streamtopic.receipts import Receipt, ReceiptReader, request_digest
from streamtopic.signing import PublicKey
from streamtopic.streams import EventLog, TopicNames, open_log

__all__ = ["Receipts"]


class Receipts:
    """Reads a model's receipts topic, verifying each receipt.

    log: an EventLog, Kafka's servers as "host:port", or the folder of a log in files. public_key: as `PublicKey.load`
    takes it.
    """

    def __init__(self, log: str | Path | EventLog, *, model: str, public_key: PublicKey | str | bytes | Path) -> None:
        self._model = model
        TopicNames(model)  # refuses an unusable name now, not at the first look
        self._key = PublicKey.load(public_key)
        self._log, self._owned = open_log(log)
        self._places = _Places()
        self._reader = ReceiptReader(self._log, model, self._key, note=self._places.note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Receipt]:
        """All receipts that are there now, in the order of their chain, each once.

        Raises InvalidRelease at a forged one.
        """
        return ReceiptReader(self._log, self._model, self._key).read()

    def find(self, request: str) -> Receipt | None:
        """Receipt of the deletion with this request id; None until its version is published."""
        digest = request_digest(request)
        return self._lookup(digest, lambda receipt: receipt.request == digest)

    def get(self, receipt_id: str) -> Receipt | None:
        """Receipt with this id, None without one."""
        return self._lookup(receipt_id, lambda receipt: receipt.id == receipt_id)

    def _lookup(self, name: str, wanted: Callable[[Receipt], bool]) -> Receipt | None:
        """Read what is new in the topic, then the receipt where it was noted."""
        for _ in self._reader.read():
            pass
        places = self._places.find(name)
        found = (self._reader.at(offset) for offset in places)
        receipt = next((receipt for receipt in found if receipt is not None and wanted(receipt)), None)
        if receipt is None and places:
            # Compaction keeps the last of repeated records, which may be another than the one that was noted.
            receipt = next((receipt for receipt in self if wanted(receipt)), None)
        return receipt

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
        """Return offsets that may be those of this name, the newest first."""
        found = np.flatnonzero(np.frombuffer(self._names, np.uint64) == _short(name)) if self._names else ()
        return [self._offsets[place // 2] for place in reversed(found)]


def _short(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
