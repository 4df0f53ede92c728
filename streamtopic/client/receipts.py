"""Look up what happened to a deletion."""

from collections.abc import Iterator
from pathlib import Path

from streamtopic.errors import InvalidRelease
from streamtopic.receipts import Receipt, open_receipt, request_digest
from streamtopic.signing import PublicKey
from streamtopic.streams import EventLog, TopicNames, open_log

__all__ = ["Receipts"]


class Receipts:
    """Reads a model's receipts topic, verifying each receipt.

    log: an EventLog or the folder of one in files. public_key: as `PublicKey.load` takes it.
    """

    def __init__(self, log: str | Path | EventLog, *, model: str, public_key: PublicKey | str | bytes | Path) -> None:
        self._model = model
        self._topic = TopicNames(model).receipts
        self._log, _ = open_log(log)
        self._key = PublicKey.load(public_key)

    def __iter__(self) -> Iterator[Receipt]:
        """All receipts that are there now, oldest first, each once. Raises InvalidRelease at a forged one."""
        seen = set[str]()
        offset = self._log.begin(self._topic, 0)
        while records := self._log.read(self._topic, 0, offset):
            offset = records[-1].next_offset
            for record in records:
                if record.value is None:
                    continue
                receipt = open_receipt(record.value, self._key)
                if receipt.model != self._model or receipt.id.encode() != record.key:
                    raise InvalidRelease(f"receipt {receipt.id} lies under another key: somebody has moved it")
                if receipt.id not in seen:
                    seen.add(receipt.id)
                    yield receipt

    def find(self, request: str) -> Receipt | None:
        """Receipt of the deletion with this request id; None until its version is published."""
        digest = request_digest(request)
        return next((receipt for receipt in self if receipt.request == digest), None)

    def get(self, receipt_id: str) -> Receipt | None:
        """Receipt with this id, None without one."""
        return next((receipt for receipt in self if receipt.id == receipt_id), None)
