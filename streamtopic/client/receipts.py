"""Look up what happened to a deletion."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

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
        return next((receipt for receipt in self if receipt.request == digest), None)

    def get(self, receipt_id: str) -> Receipt | None:
        """Receipt with this id, None without one."""
        return next((receipt for receipt in self if receipt.id == receipt_id), None)

    def close(self) -> None:
        """Close the log if it was opened here."""
        if self._owned:
            self._log.close()
