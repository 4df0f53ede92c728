"""The receipts of deletions: found by their request, and proved to any holder of the ledger's key."""

import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from streamtopic.errors import InvalidRelease, StateMismatch, UsageError
from streamtopic.signed import (
    Draft,
    Erased,
    KeyRing,
    LedgerProof,
    LedgerReader,
    PublicKey,
    Receipt,
    RequestReceipt,
    Salt,
    Tree,
    leaf_hash,
    line_of,
    parse_line,
    request_digest,
)
from streamtopic.signed.entries import names_of
from streamtopic.streams import EventLog, KafkaOptions, TopicNames, open_log
from streamtopic.streams.event_log import Closing

__all__ = ["Receipts", "verify_receipt"]

_Kind = TypeVar("_Kind", bound=Receipt | RequestReceipt | Erased)

# In the place of the hash of an entry that the topic lacks.
_MISSING = bytes(32)
_TABLES = """
pragma journal_mode = off;
create table entry (place integer primary key, line text);
create table name (name text, place integer, primary key (name, place)) without rowid;
"""
_NAMED = "select place, line from name join entry using (place) where name = ? order by place"


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
    ring = key
    if not isinstance(ring, KeyRing):
        pinned = PublicKey.load(ring)
        ring = KeyRing(pinned, pinned.name.rpartition("/")[2])
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

    Its entries lie in a temporary database of SQLite, which goes with this object; in memory it keeps 64 bytes of each.
    All methods raise ComponentUnreachable if the log does not answer. Use them in one thread at a time.
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
        self._entries = sqlite3.connect("", check_same_thread=False)
        weakref.finalize(self, self._entries.close)
        self._entries.executescript(_TABLES)
        self._begin()

    @property
    def skipped(self) -> int:
        """Number of records so far that are not part of the ledger. Anybody may have written them."""
        return self._reader.ledger.strays

    def __iter__(self) -> Iterator[Receipt]:
        """Yield all receipts of the ledger in its order, each once."""
        self._catch_up()
        for (line,) in self._entries.execute("select line from entry order by place"):
            entry = parse_line(line)
            if isinstance(entry, Receipt):
                yield entry

    def find(self, request: str, *, salt: Salt | None = None) -> list[Receipt]:
        """Return the receipts of deletions with this request id and salt, in their order.

        request: as `DocumentProducer.delete` returned it, with its salt; or any request id.
        salt: the salt, if `request` does not hold it. Without a salt none is found: only the service can find it.

        The list is empty until a version without the document is published. It may hold receipts of another producer
        who used the same request id; `Receipt.is_about` tells which one is yours.
        """
        return [receipt for _, receipt in self._named(_digest(request, salt), Receipt)]

    def covering(self, request: str, *, salt: Salt | None = None) -> RequestReceipt | None:
        """Return the receipt that covers all documents of a subject, None before it is made.

        request: as `DocumentProducer.delete_subject` returned it, with its salt; or any request id.
        salt: the salt, if `request` does not hold it.
        """
        return next((receipt for _, receipt in self._named(_digest(request, salt), RequestReceipt)), None)

    def erased(self, receipt: Receipt) -> Erased | None:
        """Return the entry that says that no trace is left of the document of a receipt; None before it is made.

        receipt: of this ledger.
        """
        index = self._index_of(receipt)
        if index is None:
            return None
        found = self._named(f"erased/{receipt.partition}", Erased)
        return next((entry for place, entry in found if place > index and entry.covers(receipt)), None)

    def proof(self, entry: Receipt | RequestReceipt | Erased) -> str:
        """Return the text of a file that proves an entry to any holder of the ledger's key (`verify_receipt`).

        entry: as this object returned it. Raises InvalidRelease if it is not in the ledger, or if the topic lacks
        entries.
        """
        index = self._index_of(entry)
        ledger = self._reader.ledger
        if index is None:
            raise InvalidRelease(f"this entry is not in {self._topic}: give one that was found there")
        if self._tree.root(ledger.size) != ledger.root:
            raise InvalidRelease(f"{self._topic} lacks entries, so nothing in it can be proved: have it restored")
        path = self._tree.inclusion(index, ledger.size)
        return LedgerProof(line_of(entry), index, path, ledger.checkpoint).text

    def close(self) -> None:
        """Close the log if this object opened it."""
        if self._owned:
            self._log.close()

    def _index_of(self, entry: Receipt | RequestReceipt | Erased) -> int | None:
        """Return the place of an entry, None if the ledger lacks it."""
        found = self._named(names_of(entry)[0], type(entry))
        return next((index for index, one in found if one == entry), None)

    def _named(self, name: str, kind: type[_Kind]) -> Iterator[tuple[int, _Kind]]:
        """Yield the entries of a kind that have this name, each with its index, in their order."""
        self._catch_up()
        for index, line in self._entries.execute(_NAMED, (name,)):
            entry = parse_line(line)
            if isinstance(entry, kind):
                yield index, entry

    def _catch_up(self) -> None:
        """Read the ledger to its end."""
        try:
            self._read()
        except StateMismatch:
            # The topic was made again or set back: what it holds now counts.
            self._begin()
            self._read()

    def _read(self) -> None:
        known = None if self._reader.offset is None else len(self._reader.ledger.gaps)
        for logged in self._reader.read():
            names = [(name, logged.index) for name in names_of(logged.entry)]
            self._entries.execute("insert into entry values (?, ?)", (logged.index, logged.line))
            self._entries.executemany("insert into name values (?, ?)", names)
        self._follow_restart()
        if known is not None and len(self._reader.ledger.gaps) > known:
            raise StateMismatch(f"{self._topic} has lost entries since it was read last")

    def _begin(self) -> None:
        """Begin with the first entry of the topic."""
        self._forget()
        self._reader = LedgerReader(self._log, self._model, self._keys, on_page=self._take_page)
        self._restarts = 0

    def _follow_restart(self) -> None:
        """Forget what was read before the reader began again, since other keys count by now."""
        if self._reader.restarts != self._restarts:
            self._forget()
            self._restarts = self._reader.restarts

    def _forget(self) -> None:
        self._tree = Tree()
        for table in ("entry", "name"):
            self._entries.execute(f"delete from {table}")  # noqa: S608  one of the two names above

    def _take_page(self, page: Draft) -> None:
        """Note the hashes of a page's entries."""
        self._follow_restart()
        while self._tree.size < page.before.size:
            self._tree.append(_MISSING)
        for line in page.lines:
            self._tree.append(leaf_hash(line.encode()))


def _digest(request: str, salt: Salt | None) -> str:
    """Return the digest of a request id under its salt, "" without one."""
    known = getattr(request, "salt", None) if salt is None else salt
    return request_digest(request, known) if known else ""
