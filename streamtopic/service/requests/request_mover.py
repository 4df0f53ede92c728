"""Moves each request for deletions on: it is paused by the brake, sent as tombstones, and completed by its receipts.

RequestMover  one step: every open request as far as it can go
Moved         what a step did
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamtopic.documents.events import encode_delete, encode_delete_subject
from streamtopic.signed import Receipt, SubjectReceipt, request_digest
from streamtopic.state.deletion_requests import DeletionRequests, RequestState, received_near
from streamtopic.state.deletions import SubjectRequests
from streamtopic.state.scripts import Stale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import Logged
    from streamtopic.state import Connection, Lease
    from streamtopic.state.deletion_requests import DeletionRequest, Wanted
    from streamtopic.streams import Message

__all__ = ["Brake", "Moved", "RequestMover"]

MOST_SENT = 20_000
"""Documents whose tombstones one step writes: then the scheduler decides again."""
_TRIM_EVERY = 3600.0

logger = logging.getLogger("streamtopic.service")


@dataclass(frozen=True, slots=True)
class Brake:
    """When requests are paused.

    share: of the live documents; 0 for never.
    window_ms: milliseconds within which requests are summed.
    """

    share: float
    window_ms: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What one step did: the number of requests that it paused, sent, completed, and gave up."""

    paused: int = 0
    sent: int = 0
    completed: int = 0
    lost: int = 0

    def __bool__(self) -> bool:
        return bool(self.paused or self.sent or self.completed or self.lost)


class RequestMover:
    """Moves requests. Each step can be repeated, and may end anywhere.

    connection: to Redis.
    model: name of the model.
    partitions: number of partitions of the documents topic.
    brake: when requests are paused.
    documents: counts the live documents.
    send: writes records to the documents topic, and returns once they are there.
    ledger: in which receipts are found.
    clock: seconds since 1970.
    """

    def __init__(
        self,
        connection: Connection,
        model: str,
        partitions: int,
        brake: Brake,
        documents: Callable[[], int],
        send: Callable[[Sequence[Message]], object],
        ledger: LedgerWriter,
        clock: Callable[[], float],
    ) -> None:
        self._requests = DeletionRequests(connection, model)
        self._subjects = SubjectRequests(connection, model, partitions)
        self._partitions = partitions
        self._brake = brake
        self._documents = documents
        self._append = send
        self._ledger = ledger
        self._clock = clock
        self._digests: dict[str, str] = {}
        self._looked: tuple[int, frozenset[str]] | None = None
        self._trimmed = 0.0

    def step(self, lease: Lease) -> Moved:
        """Move every open request as far as it can go.

        Raises ComponentUnreachable and StateError; whatever was moved stays so.
        """
        self._trim()
        found = self._requests.open()
        if not found:
            return Moved()
        completed = self._complete(lease, [one for one in found if one.state is RequestState.SENT])
        paused = self._pause(lease, [one for one in found if one.state is RequestState.WAITING])
        outcomes = Counter[RequestState]()
        documents = 0
        for request in found:
            if request.id not in paused and self._is_due(request) and documents < MOST_SENT:
                documents += request.known
                outcomes[self._send(lease, request)] += 1
        moved = Moved(len(paused), outcomes[RequestState.SENT], completed, outcomes[RequestState.CANCELLED])
        _tell(moved)
        return moved

    def _is_due(self, request: DeletionRequest) -> bool:
        if request.state is RequestState.SENDING:
            # Its sender was killed, or lost the lease.
            return True
        return request.state is RequestState.WAITING and request.due_ms <= self._now_ms()

    def _pause(self, lease: Lease, waiting: Sequence[DeletionRequest]) -> set[str]:
        """Pause the requests of a wave, those whose hold has not ended too; return their ids."""
        todo = [request for request in waiting if not request.approved]
        if not todo or not self._brake.share:
            return set()
        limit = self._brake.share * self._documents()
        tally = Counter(self._requests.tally())
        # Requests for subjects are not in it: only the index knows how many documents they are for.
        tally.update(self._of_subjects())
        paused = set()
        for request in todo:
            if received_near(request, self._brake.window_ms, tally) <= limit:
                continue
            paused.add(request.id)
            found = self._count([request])[request.id] if request.subjects else 0
            after = replace(request.moved(RequestState.PAUSED, self._now_ms()), found=found)
            self._requests.move(request, after, lease)
        return paused

    def _of_subjects(self) -> dict[int, int]:
        """Return how many documents of subjects were asked for in each minute."""
        found = Counter[int]()
        every = self._requests.of_subjects()
        # All at once: thousands of requests may be held, and this is asked in each step.
        counted = self._count([request for request in every if not (request.found or request.state.ended)])
        for request in every:
            found[request.minute] += request.found or counted[request.id]
        return found

    def _count(self, requests: Sequence[DeletionRequest]) -> Counter[str]:
        """Return the number of live documents of the subjects of each request, by its id."""
        named = self._requests.subjects([request.id for request in requests])
        documents = self._subjects.documents({subject for subjects in named.values() for subject in subjects})
        found: Counter[str] = Counter()
        for name, subjects in named.items():
            found[name] = sum(documents[subject] for subject in subjects)
        return found

    def _send(self, lease: Lease, request: DeletionRequest) -> RequestState:
        """Write the tombstones of a request; return the state in which it is now, as far as this process knows.

        It is CANCELLED where the ids of its documents are lost.
        """
        sending = request
        if request.state is RequestState.WAITING:
            # Later requests of the same wave are summed with it, when its documents are gone from the index.
            found = self._count([request])[request.id] if request.subjects and self._brake.share else 0
            sending = replace(request.moved(RequestState.SENDING, self._now_ms()), found=found)
            if isinstance(self._requests.move(request, sending, lease), Stale):
                # Cancelled meanwhile, or sent by another leader: the next step sees what became of it.
                return request.state
        wanted = self._requests.wanted(request.id)
        if wanted is None:
            return self._give_up(lease, sending)
        self._append(records_of(request.id, wanted, self._partitions))
        now_ms = self._now_ms()
        sent = replace(sending.moved(RequestState.SENT, now_ms), sent_ms=now_ms)
        # Where this is Stale another leader sends it again, which does no harm.
        self._requests.move(sending, sent, lease)
        return RequestState.SENT

    def _give_up(self, lease: Lease, request: DeletionRequest) -> RequestState:
        """End a request whose ids are lost, unless another leader has moved it on."""
        if self._requests.get(request.id) == request:
            # Not completed, which would be untrue: its requester learns that it was cancelled, and can send it again.
            cancelled = request.moved(RequestState.CANCELLED, self._now_ms())
            self._requests.move(request, cancelled, lease)
            return cancelled.state
        return request.state

    def _complete(self, lease: Lease, sent: Sequence[DeletionRequest]) -> int:
        """Complete the requests whose documents all have receipts; return their number."""
        unknown = [request.id for request in sent if request.id not in self._digests]
        salts = self._requests.salts(unknown)
        self._digests |= {name: request_digest(name, salt) for name, salt in salts.items()}
        # Those that have ended are not needed any more.
        self._digests = {one.id: self._digests[one.id] for one in sent if one.id in self._digests}
        digests = {self._digests[one.id]: one for one in sent if one.id in self._digests}
        if not digests:
            return 0
        self._ledger.catch_up()
        looked = self._ledger.ledger.size, frozenset(digests)
        if looked == self._looked:
            return 0
        found = self._ledger.find(list(digests))
        whole = [digests[digest] for digest, receipts in found.items() if _is_whole(digests[digest], receipts)]
        completed = 0
        for request in whole:
            after = request.moved(RequestState.COMPLETED, self._now_ms())
            completed += not isinstance(self._requests.move(request, after, lease), Stale)
        # If Redis is set back, a request that was moved comes back, and is looked up again then.
        self._looked = None if whole else looked
        return completed

    def _trim(self) -> None:
        now = self._clock()
        if now - self._trimmed < _TRIM_EVERY:
            return
        self._requests.trim(int(now * 1000), self._brake.window_ms)
        self._trimmed = now

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _is_whole(request: DeletionRequest, receipts: Sequence[Logged]) -> bool:
    """Return whether all documents of a request have a receipt, or all its people."""
    entries = [logged.entry for logged in receipts]
    if request.subjects:
        return sum(isinstance(entry, SubjectReceipt) for entry in entries) >= request.subjects
    # A tombstone that was sent twice has two receipts of one document.
    return len({entry.document for entry in entries if isinstance(entry, Receipt)}) >= request.documents


def records_of(name: str, wanted: Wanted, partitions: int) -> list[Message]:
    """Return the records of a request, the same each time: one request id and one salt.

    partitions: number of partitions of the documents topic.
    """
    salt = wanted.salt.encode()
    records = [encode_delete(document, name, salt) for document in wanted.documents]
    for subject in wanted.subjects:
        records += encode_delete_subject(subject, name, salt, partitions)
    return records


def _tell(moved: Moved) -> None:
    if moved.paused:
        extra = {"event": "requests_paused", "requests": moved.paused}
        logger.warning("the brake paused %d requests for deletions", moved.paused, extra=extra)
    if moved.lost:
        extra = {"event": "requests_lost", "requests": moved.lost}
        logger.error("%d requests for deletions had lost their ids and were cancelled", moved.lost, extra=extra)
