"""Takes in requests for deletions, lets people approve or cancel them, and finds what became of one.

A request is a record of the requests topic; the scheduler that leads carries it out (request_mover.py).

`hold_seconds` and `brake_share` act on requests. A record of the documents topic always applies: a producer that
deletes a document must not be kept from it by a setting that it does not know.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamtopic.documents.deletion_record import Wanted, decode_request, encode_request
from streamtopic.errors import InvalidEvent, UsageError
from streamtopic.monitoring.tracing import producing
from streamtopic.service.requests.request_mover import new_request
from streamtopic.signed import Erased, Receipt, link_digest, request_digest
from streamtopic.state.connection import Stale
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import Stage
from streamtopic.state.document_counts import read_documents
from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.service.opened import Opened
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.settings import Settings
    from streamtopic.signed import Logged
    from streamtopic.state import Reader
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.deletions import LinkKeys, ResidueState

__all__ = [
    "Received",
    "RequestDoor",
    "documents_with_label",
    "guarded_by",
    "receipts_of_request",
    "traces_of_receipt",
]

_ATTEMPTS = 10


def guarded_by(settings: Settings) -> bool:
    """Return whether `streamtopic delete` asks first: a hold or a brake is set."""
    return settings.hold_seconds > 0 or settings.brake_share > 0


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was taken in. salt: the requester's, to check the receipts with; nobody is told it again."""

    request: DeletionRequest
    salt: str


class RequestDoor:
    """Takes requests in, and lets people approve or cancel them."""

    def __init__(self, service: Opened) -> None:
        self._service = service
        self.requests = DeletionRequests(service.connection, service.settings.model)

    def receive(self, documents: Sequence[str], *, subjects: Sequence[str] = (), name: str | None = None) -> Received:
        """Take a request in. The same request under the same name again changes nothing, and is answered as before.

        documents: ids, 1 to 1,000; an id that is named twice counts once.
        subjects: in the place of documents, 1 to 100 of them: all their documents go.
        name: request id; by default one is drawn.

        Raises InvalidEvent for an id or a subject that no document can have and for too many of them, UsageError for a
        name that another request has, ComponentUnreachable.
        """
        ids, people = tuple(dict.fromkeys(documents)), tuple(dict.fromkeys(subjects))
        drawn = secrets.token_hex(16)
        if name is None:
            return self._write(Wanted(secrets.token_hex(12), drawn, ids, people))
        wanted = Wanted(name, drawn, ids, people)
        # For its checks: a name that no request can have is not looked for.
        encode_request(wanted)
        before = self.pending(name)
        if before is not None:
            if not wanted.is_same(before):
                raise UsageError(f"request {name} is known with other documents or subjects: send it under another id")
            # The salt that counts is that of the first time.
            return Received(self.requests.get(name) or self._new(before), before.salt)
        if self.requests.get(name) is not None:
            raise UsageError(f"request {name} has ended: ask for its status, or send a new request under another id")
        return self._write(wanted)

    def find(self, name: str) -> DeletionRequest | None:
        """Return a request by its id, None without one. Raises StateCorrupt, ComponentUnreachable."""
        known = self.requests.get(name)
        if known is not None:
            return known
        before = self.pending(name)
        return None if before is None else self._new(before)

    def pending(self, name: str) -> Wanted | None:
        """Return what a request asks for, None if there is none with this id, or it has ended."""
        found: Wanted | None = None
        key = name.encode(errors="replace")
        log, topic = self._service.log, self._service.names.requests
        for page in pages(log, topic, 0, log.begin(topic, 0)):
            for record in page:
                if record.key != key:
                    continue
                if record.value is None:
                    found = None
                elif found is None:
                    # The first one counts, and one that is refused is none.
                    with suppress(InvalidEvent):
                        found = decode_request(record)
        return found

    def approve(self, name: str) -> DeletionRequest:
        """Let a request through the brake. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.approve(self._now_ms()))

    def cancel(self, name: str) -> DeletionRequest:
        """Cancel a request. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.cancel(self._now_ms()))

    def paused(self) -> list[DeletionRequest]:
        """Return the requests that the brake has paused, oldest first."""
        return [request for request in self.requests.open() if request.state is RequestState.PAUSED]

    def _write(self, wanted: Wanted) -> Received:
        with producing("streamtopic request") as trace:
            record = encode_request(replace(wanted, trace=trace))
            self._service.log.append_many(self._service.names.requests, [record])
        return Received(self._new(wanted), wanted.salt)

    def _new(self, wanted: Wanted) -> DeletionRequest:
        """Return a request that the scheduler has not taken in yet."""
        return new_request(wanted, self._now_ms(), self._service.settings)

    def _change(self, name: str, change: Callable[[DeletionRequest], DeletionRequest]) -> DeletionRequest:
        """Move a request as a person asks, again where it has moved meanwhile."""
        for _ in range(_ATTEMPTS):
            before = self.find(name)
            if before is None:
                raise UsageError(f"there is no request {name[:100]}: `streamtopic deletions list` shows all")
            # The scheduler may not have taken it in yet.
            self.requests.receive(before)
            after = change(before)
            if not isinstance(self.requests.move(before, after), Stale):
                return after
        raise UsageError(f"request {name} is being moved by others all the time: try again")

    def _now_ms(self) -> int:
        return int(self._service.clock() * 1000)


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
    erased = ledger.erased(receipt, logged.index)
    if erased is None or not isinstance(erased.entry, Erased):
        return residue.read().reached(receipt.partition, receipt.offset), None
    signed = erased.entry.reached.get(receipt.partition, {})
    return {stage: signed.get(stage.value) for stage in Stage}, erased.index


def documents_with_label(reader: Reader, task: str, name: str) -> list[str]:
    """Return the ids of the live documents of a class, in the order of their ids, from all partitions.

    task: name of the label.
    name: class of the label.

    Raises UsageError for a task or a class that no live document has, StateError, ComponentUnreachable.
    """
    found = reader.read(lambda counts: read_documents(counts, (), labelled={task}))
    pairs = zip(found.ids, found.labels, strict=True)
    documents = [document.decode() for document, labels in pairs if labels.get(task) == name]
    if not documents:
        classes = sorted({labels[task] for labels in found.labels})[:_SHOWN]
        there = f"it has {', '.join(map(repr, classes))}" if classes else "no document has a label of this task"
        raise UsageError(f"no live document has class {name!r} of task {task!r}: {there}")
    return documents
