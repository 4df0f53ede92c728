"""Moves each request for deletions on, from its record in the requests topic until its receipt is in the ledger.

1. A record is taken in. It waits for the end of its hold, or for somebody's word if the brake has paused it.
2. A tombstone is written for each document that it names, or that is about a person whom it names. They are deletes
   like any other, so recounts, receipts and traces know nothing of requests.
3. Once every partition has counted them, the index is asked again for documents of these people, which may have come
   meanwhile, and step 2 is repeated for those. No version is made until none is left (SituationReader.splits).
4. The publisher makes the receipt once all its deletions have theirs. Then a tombstone is written under the request's
   id, so that the log forgets whom it named.

Deletions that ingest found in a wrong partition go the same way, but each has its own receipt only, and spares a
document that was added later. So it does no harm if Redis is lost, and they are asked for and carried out again.

A process may be killed between any two of these: each step begins with what Redis, the index and the topic hold. A
request that has its receipt is not begun again, whatever Redis has forgotten.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from streamtopic.documents.deletion_record import decode_request
from streamtopic.documents.events import encode_delete
from streamtopic.documents.suppression import Suppression
from streamtopic.errors import InvalidEvent, StateMismatch
from streamtopic.service.sending import send
from streamtopic.signed import Receipt, request_digest, request_receipt_id
from streamtopic.state.connection import Stale
from streamtopic.state.deletion_requests import (
    MOST_OPEN,
    MOST_OPEN_DOCUMENTS,
    DeletionRequest,
    DeletionRequests,
    RequestState,
    received_near,
)
from streamtopic.state.deletions import SubjectIndex
from streamtopic.streams import Message, pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamtopic.documents.deletion_record import Misplaced, Wanted
    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings
    from streamtopic.signed import Logged
    from streamtopic.state import Lease, PartitionPosition, Reader

__all__ = ["Movements", "RequestMover", "new_request"]

MOST_SENT = 20_000
"""Documents whose tombstones one step writes: then the scheduler decides again."""
MOST_ROUNDS = 10
"""How often documents that came meanwhile are looked for. All that are left then came later than the request."""
# Seconds between two looks for ended requests that may go: there may be many, and those of a wave stay for hours.
_TRIM_EVERY = 3600.0
# Tombstones of one append, and records that are not counted yet and are read before documents are named.
_AT_ONCE = 1_000
_MOST_BEHIND = 3_000
# How far the clocks of two brokers may be apart. Within this time a misplaced deletion wins over an add.
_CLOCKS_MS = 60_000
_MOST_LATELY = 100_000

logger = logging.getLogger("streamtopic.service")


Movement = Literal["taken", "paused", "sent", "counted", "completed", "lost"]
Movements = Counter[Movement]
"""What one step did: how many requests it took in, paused, sent, counted, completed, and gave up."""


def new_request(wanted: Wanted, received_ms: int, settings: Settings) -> DeletionRequest:
    """Return a request as it is taken in.

    received_ms: when, milliseconds since 1970. settings: how long it is held.
    """
    # Who wrote a misplaced delete asked the documents topic, which holds nothing back.
    due_ms = received_ms + (0 if wanted.misplaced else int(1000 * settings.hold_seconds))
    return DeletionRequest(
        id=wanted.id,
        digest=request_digest(wanted.id, wanted.salt),
        state=RequestState.WAITING,
        documents=len(wanted.documents) or len(wanted.misplaced),
        subjects=len(wanted.subjects),
        received_ms=received_ms,
        due_ms=due_ms,
        changed_ms=received_ms,
        misplaced=bool(wanted.misplaced),
    )


class _Superseded(Exception):
    """Another scheduler leads by now."""


class RequestMover:
    """Moves requests. Each step can be repeated, and may end anywhere.

    service: whose requests, log and ledger they are.
    reader: tells positions and the number of live documents.
    """

    def __init__(self, service: Opened, reader: Reader) -> None:
        settings, connection = service.settings, service.connection
        self._service = service
        self._settings = settings
        self._names = service.names
        self._requests = DeletionRequests(connection, settings.model)
        self._index = SubjectIndex(connection, settings.model, settings.partitions)
        self._reader = reader
        self._log = service.log
        self._ledger = service.ledger
        self._next: int | None = None
        # What the open requests ask for, with the times of their records.
        self._wanted: dict[str, tuple[Wanted, int]] = {}
        # Misplaced deletions that were sent lately: ingest that was killed before its commit asks again.
        self._sent_lately: set[Misplaced] = set()
        # The size of the ledger, and the receipts that it did not have then.
        self._looked: tuple[int, frozenset[str]] | None = None
        self._trimmed = 0.0
        # As they were when this step began. Requests may be many, and so may partitions.
        self._positions: dict[int, PartitionPosition] = {}
        # Documents of each request that the brake has looked at in this step.
        self._sizes: dict[str, int] = {}

    def step(self, lease: Lease) -> Movements:
        """Move every open request as far as it can go.

        Raises ComponentUnreachable and StateError; whatever was moved stays so.
        """
        if (now := self._service.clock()) - self._trimmed >= _TRIM_EVERY:
            self._requests.trim(int(now * 1000))
            self._trimmed = now
        self._read()
        found = self._requests.open()
        moved = Movements()
        moved["taken"] = self._take({request.id for request in found})
        if moved["taken"]:
            found = self._requests.open()
        if not found:
            return +moved
        # First: a Redis that was set back has lost requests that are done, whose people may have come again since.
        completed = self._complete(lease, found)
        moved["completed"] = len(completed)
        found = [request for request in found if request.id not in completed]
        self._positions = self._reader.positions()
        documents = 0
        paused = self._pause(lease, [one for one in found if one.state is RequestState.WAITING])
        moved["paused"] = len(paused)
        # What is sent already is told all the same.
        with suppress(_Superseded):
            for request in found:
                if documents >= MOST_SENT:
                    break
                if request.state is RequestState.SENT:
                    moved.update(self._go_on(lease, request))
                elif request.id not in paused and self._is_due(request):
                    documents += request.known
                    moved.update(self._send(lease, request))
        _tell(moved)
        # Without zeros: it is false if nothing has moved.
        return +moved

    def _read(self) -> None:
        """Read the records of requests that came since the last step, from the beginning of the topic in the first.

        If as many are known as may be open at the same time, others wait in the topic.
        """
        topic = self._names.requests
        end = self._log.end(topic, 0)
        if self._next is None or end < self._next:
            self._next = self._log.begin(topic, 0)
        for page in pages(self._log, topic, 0, self._next, end):
            if self._is_full():
                # They stay in the topic, and are taken in when others have ended.
                logger.warning(
                    "too many requests for deletions are open: others wait", extra={"event": "requests_full"}
                )
                return
            for record in page:
                if record.value is None or Suppression.digest_in(record.key):
                    # Its own, written at the end. Nobody else's means anything: a request that is open stays so.
                    continue
                try:
                    wanted = decode_request(record)
                except InvalidEvent as error:
                    extra = {"event": "request_refused", "reason": error.reason, "offset": record.offset}
                    logger.warning("a request at offset %d is refused: %s", record.offset, error.reason, extra=extra)
                    continue
                # The first one counts: a requester may send a request again.
                self._wanted.setdefault(wanted.id, (wanted, record.appended_ms(self._now_ms())))
            self._next = page[-1].next_offset

    def _is_full(self) -> bool:
        """Return whether this process holds as many requests as may be open."""
        named = sum(
            len(wanted.documents) + len(wanted.subjects) + len(wanted.misplaced) for wanted, _ in self._wanted.values()
        )
        return len(self._wanted) >= MOST_OPEN or named >= MOST_OPEN_DOCUMENTS

    def _take(self, known: set[str]) -> int:
        """Take new requests in, those that Redis has forgotten too; return how many. known: ids of open requests."""
        taken, ended = 0, list[str]()
        for name, (wanted, received_ms) in self._wanted.items():
            if name in known:
                continue
            if isinstance(self._requests.receive(new_request(wanted, received_ms, self._settings)), Stale):
                ended.append(name)
            else:
                taken += 1
        self._forget(ended)
        return taken

    def _forget(self, ended: Iterable[str]) -> None:
        """Write a tombstone for each request that has ended, so that the log forgets whom it named."""
        names = list(ended)
        if names:
            gone = [Message(name.encode(), None, partition=0) for name in names]
            self._log.append_many(self._names.requests, gone)
        for name in names:
            self._wanted.pop(name, None)

    def _is_due(self, request: DeletionRequest) -> bool:
        if request.state is RequestState.SENDING:
            # Its sender was killed, or lost the lease.
            return True
        return request.state is RequestState.WAITING and request.due_ms <= self._now_ms()

    def _pause(self, lease: Lease, waiting: Sequence[DeletionRequest]) -> set[str]:
        """Pause the requests of a wave, those whose hold has not ended too; return their ids."""
        todo = [request for request in waiting if not request.approved]
        share = self._settings.brake_share
        if not todo or not share:
            return set()
        documents = sum(meta.documents for meta in self._positions.values())
        limit = share * documents
        every = self._requests.unseen()
        self._sizes = self._counted(every)
        tally = Counter[int]()
        for request in every:
            tally[request.minute] += self._sizes[request.id]
        paused = {request.id for request in todo if received_near(request, tally) > limit}
        for request in todo:
            if request.id in paused:
                found = self._sizes.get(request.id, 0)
                after = replace(request.moved(RequestState.PAUSED, self._now_ms()), found=found)
                self._requests.move(request, after, lease)
        return paused

    def _counted(self, requests: Sequence[DeletionRequest]) -> dict[str, int]:
        """Return the number of documents of each request; of one for subjects, of those that are live now."""
        # All at once: thousands of requests may be held, and this is asked in each step. Only the index knows how many
        # documents a request for subjects is for.
        unknown = [one.id for one in requests if one.subjects and not one.found and one.id in self._wanted]
        named = {name: self._wanted[name][0].subjects for name in unknown}
        live = self._index.count(chain.from_iterable(named.values()))
        present = {name: sum(map(live.__getitem__, subjects)) for name, subjects in named.items()}
        return {one.id: one.documents or one.found or present.get(one.id, 0) for one in requests}

    def _send(self, lease: Lease, request: DeletionRequest) -> tuple[Movement, ...]:
        """Write the tombstones of a request; return `sent` if that was done, `lost` if its record is lost."""
        wanted = self._wanted.get(request.id)
        if wanted is None:
            # Not completed, which would be untrue: its requester learns that it was cancelled, and can send it again.
            cancelled = request.moved(RequestState.CANCELLED, self._now_ms())
            answer = self._requests.move(request, cancelled, lease)
            return () if isinstance(answer, Stale) else ("lost",)
        tombstones = self._tombstones(wanted[0])
        if tombstones is None:
            return ()
        sending = request
        if request.state is RequestState.WAITING:
            # Later requests of the same wave are summed with it, when its documents are gone from the index.
            found = self._sizes.get(request.id, request.found)
            sending = replace(request.moved(RequestState.SENDING, self._now_ms()), found=found)
            if isinstance(self._requests.move(request, sending, lease), Stale):
                # Cancelled meanwhile, or sent by another leader: the next step sees what became of it.
                return ()
        for start in range(0, len(tombstones), _AT_ONCE):
            self._must_lead(lease)
            send(self._service, tombstones[start : start + _AT_ONCE])
        if wanted[0].subjects:
            self._write(lease, wanted[0])
        if len(self._sent_lately) > _MOST_LATELY:
            self._sent_lately.clear()
        self._sent_lately.update(wanted[0].misplaced)
        now_ms = self._now_ms()
        sent = replace(sending.moved(RequestState.SENT, now_ms), sent_ms=now_ms, ends=self._ends(), rounds=1)
        # If this is Stale another leader sends it again, which does no harm.
        self._requests.move(sending, sent, lease)
        return ("sent",)

    def _go_on(self, lease: Lease, request: DeletionRequest) -> tuple[Movement, ...]:
        """Write tombstones for documents that came meanwhile; return `counted` if there are none, `sent` if there are.

        Nothing as long as not every partition has counted the tombstones before them.
        """
        if any(self._positions[partition].next_offset < end for partition, end in request.ends.items()):
            return ()
        wanted = self._wanted.get(request.id)
        if wanted is not None and request.subjects and request.rounds < MOST_ROUNDS:
            if self._is_behind():
                return ()
            if self._write(lease, wanted[0]):
                again = replace(request, ends=self._ends(), rounds=request.rounds + 1)
                self._requests.move(request, again, lease)
                return ("sent",)
        # Of a request that was done before Redis was set back, the record is not known here any more.
        state = RequestState.COMPLETED if request.misplaced else RequestState.COUNTED
        if isinstance(self._requests.move(request, request.moved(state, self._now_ms()), lease), Stale):
            return ()
        if request.misplaced:
            self._forget([request.id])
        return ("counted",)

    def _tombstones(self, wanted: Wanted) -> list[Message] | None:
        """Return the tombstones of the documents that a request names; None as long as it has to wait."""
        salt = wanted.salt.encode()
        if wanted.documents:
            return [encode_delete(one, wanted.id, salt, wanted.trace) for one in wanted.documents]
        if self._is_behind():
            return None
        partitions = self._settings.partitions
        by_home: defaultdict[int, list[Misplaced]] = defaultdict(list)
        for one in wanted.misplaced:
            if one not in self._sent_lately:
                by_home[partition_of(one.key, partitions)].append(one)
        self._ledger.catch_up()
        receipts = self._ledger.find([_digest(one) for one in wanted.misplaced if _digest(one)])
        due = list[Message]()
        for home, deletions in by_home.items():
            keys = {one.key for one in deletions}
            if not self._uncounted(home).isdisjoint(keys):
                return None
            added = self._reader.added_at(home, list(keys))
            open_ones = [one for one in deletions if not _is_done(one, home, receipts.get(_digest(one), ()))]
            due += [one.tombstone for one in open_ones if self._is_due_at(one, home, added.get(one.key))]
        return due

    def _is_due_at(self, one: Misplaced, home: int, added: int | None) -> bool:
        """Return whether a misplaced deletion has to be sent. added: offset of the document's add if it is live."""
        if added is None:
            # For the receipt, which somebody waits for.
            return one.asked
        with suppress(StateMismatch):
            found = self._log.read(self._names.documents, home, added, 1)
            if found and found[0].offset == added:
                return found[0].appended_ms(self._now_ms()) <= one.time_ms + _CLOCKS_MS
        # The record has left the log, so the document is an old one.
        return True

    def _write(self, lease: Lease, wanted: Wanted) -> int:
        """Write tombstones for the documents of a request's people; return how many documents there are.

        A document of a person that a record names which is not counted yet is left for the next round: that record may
        be an add for somebody else, or the tombstone itself. Raises _Superseded if another scheduler leads by now.
        """
        headers = encode_delete("any", wanted.id, wanted.salt.encode(), wanted.trace).headers
        found = 0
        for partition in range(self._settings.partitions):
            documents = self._index.documents(wanted.subjects, partition)
            found += len(documents)
            for start in range(0, len(documents), _AT_ONCE):
                # Each time again: records come all the time.
                uncounted = self._uncounted(partition)
                due = [one for one in documents[start : start + _AT_ONCE] if one not in uncounted]
                tombstones = [Message(one, None, headers, partition) for one in due]
                if tombstones:
                    self._must_lead(lease)
                    self._log.append_many(self._names.documents, tombstones)
        return found

    def _must_lead(self, lease: Lease) -> None:
        """Raise _Superseded if another scheduler leads: it may have carried the request out, and ids are used again."""
        if not self._requests.is_led(lease):
            raise _Superseded

    def _is_behind(self) -> bool:
        """Return whether a partition has so many records to count that it has to do that first, or hides some.

        A record of an open transaction may give a document to somebody else, and nobody can read it yet.
        """
        topic = self._names.documents
        for partition, meta in self._positions.items():
            end = self._log.end(topic, partition)
            if end - meta.next_offset > _MOST_BEHIND or self._log.written_end(topic, partition) > end:
                return True
        return False

    def _uncounted(self, partition: int) -> set[bytes]:
        """Return the keys of the records of a partition that are not counted yet."""
        topic = self._names.documents
        keys: set[bytes] = set()
        # Records may have left the log before they were counted: ingest refuses that, with the remedy.
        first = max(self._reader.position(partition).next_offset, self._log.begin(topic, partition))
        for page in pages(self._log, topic, partition, first):
            keys.update(record.key for record in page if record.key is not None)
        return keys

    def _ends(self) -> dict[int, int]:
        """Return the end of each partition of the documents topic, records of open transactions included."""
        topic = self._names.documents
        return {partition: self._log.written_end(topic, partition) for partition in range(self._settings.partitions)}

    def _complete(self, lease: Lease, requests: Sequence[DeletionRequest]) -> set[str]:
        """Complete the requests that have their receipt; return their ids."""
        receipts = {request_receipt_id(self._names.model, one.digest): one for one in requests}
        self._ledger.catch_up()
        looked = self._ledger.ledger.size, frozenset(receipts)
        if looked == self._looked:
            return set()
        completed = [receipts[name] for name in self._ledger.find(list(receipts))]
        for request in completed:
            self._requests.move(request, request.moved(RequestState.COMPLETED, self._now_ms()), lease)
        self._forget(request.id for request in completed)
        # If Redis is set back, a request that was moved comes back, and is looked up again then.
        self._looked = None if completed else looked
        return {request.id for request in completed}

    def _now_ms(self) -> int:
        return int(self._service.clock() * 1000)


def _digest(one: Misplaced) -> str:
    """Return the digest by which the receipt of a misplaced deletion is found; "" if nobody can look for it."""
    return request_digest(one.request, one.salt) if one.salt else ""


def _is_done(one: Misplaced, home: int, receipts: Sequence[Logged]) -> bool:
    """Return whether a misplaced deletion has its receipt. receipts: entries of the ledger under its request id."""
    found = [logged.entry for logged in receipts if isinstance(logged.entry, Receipt)]
    later = [receipt for receipt in found if receipt.received >= one.time_ms - _CLOCKS_MS]
    return any(receipt.partition == home and receipt.is_about(one.document, one.salt) for receipt in later)


def _tell(moved: Movements) -> None:
    if paused := moved["paused"]:
        extra = {"event": "requests_paused", "requests": paused}
        logger.warning("the brake paused %d requests for deletions", paused, extra=extra)
    if lost := moved["lost"]:
        extra = {"event": "requests_lost", "requests": lost}
        logger.error("%d requests for deletions had lost their records and were cancelled", lost, extra=extra)
