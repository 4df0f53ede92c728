"""Finds the documents of a label, and a deletion by its request id or receipt id, with its receipts and traces."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from streamtopic.documents.events import DAY
from streamtopic.errors import UsageError
from streamtopic.signed import Erased, Receipt, link_digest, receipt_id, request_digest
from streamtopic.state.documents import read_documents
from streamtopic.state.residue_ledger import Stage

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import Logged
    from streamtopic.state import Forget, Reader
    from streamtopic.state.deletions import LinkKeys
    from streamtopic.state.documents import StoredDocuments
    from streamtopic.state.residue_ledger import ResidueState

__all__ = ["documents_with_label", "receipts_of_request", "traces_of_receipt", "waiting_deletion"]

_SHOWN = 20


def receipts_of_request(ledger: LedgerWriter, links: LinkKeys, name: str, salt: str | None) -> list[Logged]:
    """Return the receipt with this id, else all receipts of this request, in the order of the ledger.

    A request that was written to the requests topic has a `RequestReceipt`, too.

    links: the keys of the months.
    salt: the requester's own; None: the keys of the months are tried, which only the service has.

    Raises SettingsError if the user of Redis may not read the keys of the months.
    """
    ledger.catch_up()
    if named := ledger.find([name]):
        return named[name]
    if salt is not None:
        digests = [request_digest(name, salt)]
    else:
        keys = links.all()
        digests = [link_digest(key, name) for key in keys.values()]
    found = ledger.find(digests)
    every = (logged for some in found.values() for logged in some)
    return sorted(every, key=lambda logged: logged.index)


def traces_of_receipt(
    ledger: LedgerWriter, residue: ResidueState, logged: Logged
) -> tuple[dict[Stage, int | None], int | None]:
    """Return when the traces of a deletion were gone, and the index of the entry `erased` that says so.

    logged: its receipt.

    The times are those of the ledger if the deletion is complete, else as far as Redis knows; None for a stage that is
    ahead. The index is None before such an entry.
    """
    receipt = logged.entry
    if not isinstance(receipt, Receipt):
        return {}, None
    erased = _erased(ledger, logged.index, receipt)
    if erased is None or not isinstance(erased.entry, Erased):
        return residue.read().reached(receipt.partition, receipt.offset), None
    signed = erased.entry.reached.get(receipt.partition, {})
    return {stage: signed.get(stage.value) for stage in Stage}, erased.index


def _erased(ledger: LedgerWriter, index: int, receipt: Receipt) -> Logged | None:
    """Return the first entry that says that nothing is left of a deletion, None without one."""
    name = f"erased/{receipt.partition}"
    known = ledger.places([name]).get(name, [])
    indexes = [one for one in known if one > index and not ledger.ledger.is_void(one)]

    def covers(place: int) -> bool:
        logged = ledger.entries([place]).get(place)
        return logged is not None and isinstance(logged.entry, Erased) and logged.entry.covers(receipt)

    # Ends only grow, so all later entries of this partition cover it as well.
    first = bisect_left(indexes, x=True, key=covers)
    return ledger.entries([indexes[first]]).get(indexes[first]) if first < len(indexes) else None


def waiting_deletion(reader: Reader, model: str, name: str) -> tuple[int, Forget] | None:
    """Return partition and entry of a deletion that is counted and waits for its receipt, None without one.

    name: request id, or the id that the receipt will have.
    """
    for partition in reader.positions():
        for forget in reader.forgets(partition).each():
            if name in {forget.request, receipt_id(model, partition, forget.offset)}:
                return partition, forget
    return None


def documents_with_label(reader: Reader, task: str, name: str) -> list[str]:
    """Return the ids of the live documents of a class, in the order of their ids, from all partitions.

    task: name of the label.
    name: class of the label.

    Raises UsageError for a task or a class that no live document has, StateError, ComponentUnreachable.
    """
    found = _read(reader, {task})
    pairs = zip(found.ids, found.labels, strict=True)
    documents = [document.decode() for document, labels in pairs if labels.get(task) == name]
    if documents:
        return documents
    classes = {labels[task] for labels in found.labels if task in labels and task != DAY}
    if classes:
        raise UsageError(f"no live document has class {name!r} of task {task!r}: its classes are {_listed(classes)}")
    tasks = {one for labels in _read(reader, ()).labels for one in labels}
    if tasks - {DAY}:
        raise UsageError(f"no live document has a label of task {task!r}: there are labels of {_listed(tasks - {DAY})}")
    raise UsageError("no live document has a label: delete by ids, or add documents with labels")


def _read(reader: Reader, tasks: Collection[str]) -> StoredDocuments:
    """Return the documents with a label of these tasks; all documents where it names none."""
    return reader.read(lambda counts: read_documents(counts, (), labelled=tasks))


def _listed(names: Collection[str]) -> str:
    """Return names in words, the first of many."""
    first = sorted(names)[:_SHOWN]
    more = len(names) - len(first)
    return ", ".join(map(repr, first)) + (f" and {more} more" if more else "")
