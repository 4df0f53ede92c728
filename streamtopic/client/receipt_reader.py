"""The receipts of deletions: found by their request, and proved to any holder of the ledger's key."""

from collections.abc import Iterator
from pathlib import Path

from streamtopic.errors import InvalidRelease, StateMismatch, UsageError
from streamtopic.signed import (
    Entry,
    Erased,
    IndexedLedger,
    KeyRing,
    LedgerIndex,
    LedgerProof,
    LedgerReader,
    Logged,
    PublicKey,
    Receipt,
    RequestReceipt,
    Salt,
    names_of,
    request_digest,
)
from streamtopic.streams import EventLog, KafkaOptions, TopicNames, open_log
from streamtopic.streams.event_log import Closing

__all__ = ["Receipts", "verify_receipt"]


def verify_receipt(
    text: str,
    key: KeyRing | PublicKey | str | Path,
    *,
    document: str | bytes | None = None,
    salt: Salt | None = None,
) -> Receipt | RequestReceipt:
    """Return the receipt in a file of `streamtopic receipt --proof`, or in the text of `Receipts.proof`.

    text: of the file.
    key: of the ledger, as `PublicKey.load` takes it; if the service has a root key, a ring with its list of keys.
    document, salt: id of the document that the receipt must be about, and the salt that the delete was sent with.

    Nothing is asked for: neither a log nor a service. Raises InvalidRelease for a text that proves no receipt of the
    key's ledger or is about another document, UnknownKey if another key has signed it, UsageError for a document
    without its salt.
    """
    if (document is None) != (salt is None):
        raise UsageError("a document and its salt belong together: without the salt no document can be compared")
    ring = KeyRing.load(key)
    receipt = LedgerProof.parse(text).verify(ring).entry
    if not isinstance(receipt, Receipt | RequestReceipt) or receipt.model != ring.model:
        raise InvalidRelease(f"this is the proof of another entry than a receipt of {ring.model}")
    if document is not None and salt is not None:
        about = isinstance(receipt, Receipt) and receipt.is_about(document, salt)
        if not about:
            raise InvalidRelease(f"receipt {receipt.id} is not about this document, or was made with another salt")
    return receipt


class Receipts(Closing):
    """Finds receipts in a model's ledger, which it follows from the first entry, and proves them.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of a log
        in files.
    model: name of the model.
    public_key: as `PublicKey.load` takes it: the ledger's key, or the root key, with which the newest key list in the
        ledger names the keys that sign.

    Entries stay in the log; its index of a million takes 40 MB of memory. All methods raise ComponentUnreachable if the
    log does not answer, and StateMismatch if the topic has lost records that were read: a new object reads what it has
    now. Use them in one thread at a time.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        public_key: KeyRing | PublicKey | str | Path,
    ) -> None:
        self._model = model
        # Refuses an unusable name now, not at the first look.
        self._topic = TopicNames(model).ledger
        self._keys = KeyRing.load(public_key, model)
        self._log, self._owned = open_log(log)
        self._ledger = IndexedLedger(self._log, model, self._keys, LedgerIndex())

    def __iter__(self) -> Iterator[Receipt]:
        """Yield all receipts of the ledger in its order, each once."""
        self._catch_up()
        last = -1
        for page in LedgerReader(self._log, self._model, self._keys).read():
            for logged in page.entries:
                # After a newer list of keys it is read again.
                if logged.index > last and isinstance(logged.entry, Receipt):
                    last = logged.index
                    yield logged.entry

    def find(self, request: str, *, salt: Salt | None = None) -> list[Receipt]:
        """Return the receipts of deletions with this request id and salt, in their order.

        request: as `DocumentProducer.delete` returned it, with its salt; or any request id.
        salt: the salt, if `request` does not hold it. Without a salt none is found: only the service can find it.

        The list is empty until a version without the document is published. It may hold receipts of another producer
        who used the same request id; `Receipt.is_about` tells which one is yours.
        """
        found = self._named(_digest(request, salt))
        return [logged.entry for logged in found if isinstance(logged.entry, Receipt)]

    def covering(self, request: str, *, salt: Salt | None = None) -> RequestReceipt | None:
        """Return the receipt that covers all documents of a subject, None before it is made.

        request: as `DocumentProducer.delete_subject` returned it, with its salt; or any request id.
        salt: the salt, if `request` does not hold it.
        """
        found = self._named(_digest(request, salt))
        return next((logged.entry for logged in found if isinstance(logged.entry, RequestReceipt)), None)

    def erased(self, receipt: Receipt) -> Erased | None:
        """Return the entry that says that no trace is left of the document of a receipt; None before it is made.

        receipt: of this ledger.
        """
        index = self._index_of(receipt)
        logged = None if index is None else self._ledger.erased(receipt, index)
        return logged.entry if logged is not None and isinstance(logged.entry, Erased) else None

    def proof(self, entry: Receipt | RequestReceipt | Erased) -> str:
        """Return the text of a file that proves an entry to any holder of the ledger's key (`verify_receipt`).

        entry: as this object returned it. Raises InvalidRelease if it is not in the ledger, or if the topic lacks
        entries.
        """
        index = self._index_of(entry)
        if index is None:
            raise InvalidRelease(f"this entry is not in {self._topic}: give one that was found there")
        if self._ledger.ledger.gaps:
            raise InvalidRelease(f"{self._topic} lacks entries, so nothing in it can be proved: have it restored")
        return self._ledger.proof(index).text

    def close(self) -> None:
        """Close the log if this object opened it."""
        if self._owned:
            self._log.close()

    def _index_of(self, entry: Entry) -> int | None:
        """Return the place of an entry, None if the ledger lacks it."""
        return next((logged.index for logged in self._named(names_of(entry)[0]) if logged.entry == entry), None)

    def _named(self, name: str) -> list[Logged]:
        """Return the entries that have this name, in their order."""
        self._catch_up()
        return self._ledger.find([name]).get(name, [])

    def _catch_up(self) -> None:
        size, gaps = self._ledger.ledger.size, self._ledger.ledger.gaps
        self._ledger.catch_up()
        ledger = self._ledger.ledger
        # What is before the first page was missing from the beginning.
        if size and ledger.gaps != gaps:
            raise StateMismatch(
                f"topic {self._topic} lacks entries that follow those that were read ({', '.join(ledger.missing)}): "
                "find out who may write to it, and read it again by a new object"
            )


def _digest(request: str, salt: Salt | None) -> str:
    """Return the digest of a request id under its salt, "" without one."""
    known = getattr(request, "salt", None) if salt is None else salt
    return request_digest(request, known) if known else ""
