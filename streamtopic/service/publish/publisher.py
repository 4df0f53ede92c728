"""Publish versions, receipts and all else that is in the ledger, and say at intervals which version is the newest.

One round of it is `step`. It reads the ledger to its end, decides what is due, and appends it as one page. Then it
sends the bytes of versions that the ledger has by now, and drops deletions that have their receipt. A version's entry
comes before its bytes, so a number that was drawn once is never drawn again, whatever Redis is set back to. Each round
may be cut off anywhere, and repeated.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import StateError
from streamtopic.monitoring.tracing import span
from streamtopic.service.publish.ledger_writer import cut_of, recorded
from streamtopic.service.watching import Watch
from streamtopic.signed import (
    Alive,
    Envelope,
    Erased,
    Receipt,
    RequestReceipt,
    document_digest,
    link_digest,
    proof_message,
    receipt_id,
    request_digest,
    request_receipt_id,
    sent_releases,
    service_document_salt,
    service_salt,
    version_of,
)
from streamtopic.state import Reader
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import LinkKeys, ResidueState, Stage, month_of, months_before
from streamtopic.state.model_state import NEWEST
from streamtopic.streams import Message, TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import Entry
    from streamtopic.state import Forget, Forgets, ModelState
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.streams import EventLog

__all__ = ["ALIVE_EVERY", "Published", "Publisher"]

logger = logging.getLogger("streamtopic.service")

ALIVE_EVERY = 600.0
"""Seconds within which a service promises its next `alive`. By them a subscriber notices versions that somebody
withholds, and each is one line of the ledger for ever."""
# Receipts in a page, each of at most 550 bytes in its record, which has at most 1 MiB.
PAGE = 1000
# Receipts of requests in a page: for each of them receipts are looked up.
_REQUESTS = 100
# A writer that loses so often in a row is not alone for long.
_ATTEMPTS = 20
# Versions that are read first to find those that do not reflect a deletion that waits, mostly the newest one; and at
# most, if there are more: a deletion that comes back with a restored Redis may have waited for many.
_VERSIONS_READ, _VERSIONS = 4, 1024


@dataclass(frozen=True, slots=True)
class Published:
    """What one round has published.

    page: the entries of the ledger.
    records: number of records that left the outbox.
    """

    page: Sequence[Entry] = ()
    records: int = 0

    @property
    def versions(self) -> list[int]:
        """The versions in the page."""
        return [entry.version for entry in self.page if isinstance(entry, Envelope)]

    @property
    def receipts(self) -> int:
        """Number of receipts of deletions."""
        return sum(isinstance(entry, Receipt) for entry in self.page)

    @property
    def erased(self) -> bool:
        """Whether deletions were said to have left no trace."""
        return any(isinstance(entry, Erased) for entry in self.page)

    @property
    def did_something(self) -> bool:
        """Whether a further round may find more to do; an `alive` by itself is no news."""
        return self.records > 0 or any(not isinstance(entry, Alive) for entry in self.page)


Cuts = list[tuple[int, dict[int, int]]]
"""Number of each version, and by partition the first offset that it does not reflect."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A deletion, and the first version without its document."""

    partition: int
    forget: Forget
    version: int


class Publisher:
    """Brings the ledger and the releases topic to where Redis says that they should be.

    writer: of the ledger.
    secret: digests document ids in receipts where the requester sent no salt.
    interval_ms: milliseconds within which readers may count on the next `alive`; 0 for a process that ends and promises
        none.
    link_months: how many months the key of a month is kept after it. The service finds receipts by request id with it.
    clock: seconds since 1970.
    watch: is told of everything that was published.
    """

    def __init__(
        self,
        state: ModelState,
        log: EventLog,
        writer: LedgerWriter,
        *,
        secret: bytes,
        interval_ms: int = 0,
        link_months: int = 3,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
    ) -> None:
        self._state = state
        self._log = log
        self._writer = writer
        self._secret = secret
        self._interval_ms = interval_ms
        self._link_months = link_months
        self._clock = clock
        self._watch = watch or Watch()
        self._names = TopicNames(state.model)
        self._links = LinkKeys(state.connection, state.model)
        self._residue = ResidueState(state.connection, state.model)
        self._reader = Reader(state.connection, state.model, state.settings.partitions)
        # An entry leaves the stream of its partition only once its receipt was read back.
        self._forgets = {partition: self._reader.forgets(partition) for partition in range(state.settings.partitions)}
        self._requests = DeletionRequests(state.connection, state.model)
        self._looked_at: dict[int, object] = {}

    def step(self) -> Published:
        """Publish what is due, at most one page of it; return what it was.

        Raises StateMismatch if a topic has lost records or would lose some, StateError if other writers are
        always faster, ComponentUnreachable. It may be repeated after each.
        """
        self._destroy_links()
        sent = 0
        for _ in range(_ATTEMPTS):
            self._writer.catch_up()
            self._writer.complete()
            # Also what a killed process could not send: the next `alive` says that it was.
            sent += self._send()
            size = self._writer.ledger.size
            versions = self._versions()
            # First: a Redis that is set back after this brings deletions again that the ledger is asked about.
            served = self._served(versions)
            page = self._due(versions, served)
            # The ledger may have gone on while it was asked: then the page is decided again.
            if self._writer.ledger.size == size and (not page or self._writer.append(page)):
                break
        else:
            raise StateError(
                f"cannot append to {self._names.ledger}; another process was faster {_ATTEMPTS} times: run one "
                "scheduler that leads for each model, and see `streamtopic doctor`"
            )
        sent += self._send()
        self._settle(page, served)
        self._prove_again()
        return Published(page, sent)

    def _due(self, versions: Sequence[Envelope], served: Sequence[_Served]) -> list[Entry]:
        """Return the entries of the next page.

        versions: that the ledger lacks.
        served: deletions that one of these reflects, or one before them. They are done with once the page counts.
        """
        erased = self._erased()
        others: list[Entry] = [*self._request_receipts(), *([] if erased is None else [erased])]
        # A receipt comes after its version: both are one page, so that no deletion waits for a second one.
        page = [*versions, *others, *self._receipts(served)]
        alive = self._alive(versions)
        return page + ([] if alive is None else [alive])

    def _versions(self) -> list[Envelope]:
        """Return the staged versions that the ledger lacks, oldest first."""
        staged = self._state.releases_among([(self._writer.ledger.newest + 1, NEWEST)])
        return [recorded(record) for _, record in staged]

    def _alive(self, versions: Sequence[Envelope]) -> Alive | None:
        """Return the next `alive` if one is due, or if something else holds than the last one said.

        versions: that the ledger gets with the same page.
        """
        ledger = self._writer.ledger
        gone = ledger.withdrawn | self._state.withdrawn_alone()
        # A version is called the newest in the page after its own, once its records are sent: before that, nobody can
        # have it. But nobody need have a version that is withdrawn before it is sent.
        if versions and gone == ledger.withdrawn:
            return None
        newest = max((ledger.newest, *gone.edges[-1:]))
        now = self._now()
        alive = Alive(now, self._interval_ms, newest, gone)
        before = ledger.alive
        if before is None:
            return alive
        same = (before.interval, before.newest, before.withdrawn) == (alive.interval, alive.newest, alive.withdrawn)
        # Twice an interval, so that one that comes late does not alarm readers. One of a later time than now is mended
        # at once: whoever wrote it had a wrong clock, and readers cannot tell its age.
        if same and (not alive.interval or 0 <= now - before.made < alive.interval // 2):
            return None
        if before.made > now:
            extra = {"event": "clock_behind"}
            logger.warning("the ledger is of a later time than now: set this machine's clock right", extra=extra)
        return alive

    def _served(self, versions: Sequence[Envelope]) -> list[_Served]:
        """Return the oldest deletions that a version reflects, each with the first such version.

        versions: that the ledger lacks, and gets with the next page.
        """
        marks = {partition: stream.mark() for partition, stream in self._forgets.items()}
        waiting = [partition for partition, (number, _) in marks.items() if number]
        if not waiting:
            return []
        latest = (self._writer.ledger.newest, tuple(one.release for one in versions))
        # A million deletions may wait for the next version: they are read once, until something changes.
        waiting = [p for p in waiting if self._looked_at.get(p) != (marks[p], latest)]
        cuts = self._cuts(versions, waiting) if waiting else []
        found = list[_Served]()
        for partition in waiting:
            of_partition = _served(self._forgets[partition], partition, cuts, PAGE - len(found))
            if not of_partition:
                self._looked_at[partition] = (marks[partition], latest)
            found += of_partition
            if len(found) >= PAGE:
                break
        return found

    def _cuts(self, versions: Sequence[Envelope], waiting: Sequence[int]) -> Cuts:
        """Return (version, cut) of versions in the ledger and of those that it gets, oldest first.

        There is one at least that reflects no deletion that waits, unless all versions reflect some.

        waiting: partitions in which deletions wait.
        """
        ledger = self._writer.ledger
        oldest = {partition: _first_waiting(self._forgets[partition]) for partition in waiting}
        number = _VERSIONS_READ
        while True:
            read = self._state.releases(number)
            # A version that waits is not in the ledger, and one that was drawn again is not the one in it. Of those
            # long ago the ledger does not remember the digest.
            there = [
                (version, cut_of(record))
                for version, record in read
                if version <= ledger.newest and ledger.digest(version) in {None, record["release"]}
            ]
            # Cuts only grow, so no version before that one reflects any of them.
            enough = there and all(there[0][1].get(partition, 0) <= offset for partition, offset in oldest.items())
            if enough or len(read) < number or number >= _VERSIONS:
                return there + [(one.version, dict(one.cut)) for one in versions]
            number *= 4

    def _receipts(self, served: Sequence[_Served]) -> list[Receipt]:
        """Return the receipts of these deletions that the ledger lacks."""
        wanted = {
            receipt_id(self._state.model, one.partition, one.forget.offset): one
            for one in served
            if one.forget.wants_receipt
        }
        there = self._writer.find(list(wanted)) if wanted else {}
        month = month_of(self._clock())
        return [self._receipt(one, name, month) for name, one in wanted.items() if name not in there]

    def _receipt(self, one: _Served, name: str, month: str) -> Receipt:
        """Return the receipt of a deletion. name: its id. month: whose key ties it to its request."""
        forget, model = one.forget, self._state.model
        key = self._links.of(month)
        salt = forget.salt or service_document_salt(self._secret, service_salt(key, name))
        return Receipt(
            model=model,
            partition=one.partition,
            offset=forget.offset,
            request=request_digest(forget.request, forget.salt) if forget.salt else "",
            document=document_digest(salt, model, forget.document),
            link=link_digest(key, forget.request),
            month=month,
            received=forget.received_ms,
            applied=forget.applied_ms,
            found=forget.found,
            version=one.version,
        )

    def _request_receipts(self) -> list[RequestReceipt]:
        """Return the receipts of requests whose deletions all have theirs, as far as the ledger lacks them."""
        counted = [one for one in self._requests.open() if one.state is RequestState.COUNTED]
        if not counted:
            return []
        # First: what is counted by now waits in the streams that are read afterwards.
        positions = self._reader.positions()
        done = {}
        for partition, stream in self._forgets.items():
            # Deletions that are lost have no receipt, and are not seen to wait for one.
            stream.require()
            done[partition] = min(_first_waiting(stream), positions[partition].next_offset)
        # A version of all that is done would part none of these.
        ready = [one for one in counted if not one.parted_by(done)]
        names = {request_receipt_id(self._state.model, one.digest): one for one in ready}
        there = self._writer.find(list(names))
        new = [(name, request) for name, request in names.items() if name not in there]
        return [self._request_receipt(name, request) for name, request in new[:_REQUESTS]]

    def _request_receipt(self, name: str, request: DeletionRequest) -> RequestReceipt:
        """Return the receipt of a request, which is made of the receipts in the ledger alone. name: its id."""
        month = month_of(request.received_ms / 1000)
        found = self._writer.find([request.digest]).get(request.digest, [])
        # A tombstone that was written twice has a receipt that found nothing, and is no document.
        own = [one.entry for one in found if isinstance(one.entry, Receipt) and one.entry.found]
        return RequestReceipt(
            id=name,
            model=self._state.model,
            request=request.digest,
            link=link_digest(self._links.of(month), request.id),
            month=month,
            received=request.received_ms,
            documents=len(own),
            version=max((receipt.version for receipt in own), default=0),
        )

    def _erased(self) -> Erased | None:
        """Return the entry that says that further deletions have left no trace; None if there are none."""
        residue = self._residue.read()
        ends: dict[int, int] = {}
        for partition, stream in self._forgets.items():
            end, before = residue.of(partition).done, residue.completed.get(partition, 0)
            # It must not run ahead of receipts: the entry speaks of deletions that have theirs.
            if end > before and (end := int(min(end, _first_waiting(stream)))) > before:
                # Deletions that are lost have no receipt, and are not seen to wait for one.
                stream.require()
                ends[partition] = end
        if not ends:
            return None
        # Backups are known to the operator only, and so is Redis's file where the service may not have it rewritten.
        by_operator = {Stage.BACKUPS, Stage.FILE} if residue.forbidden else {Stage.BACKUPS}
        reached = {p: _dated(residue.reached(p, end - 1)) for p, end in ends.items()}
        return Erased(self._now(), ends, reached, tuple(stage.value for stage in Stage if stage in by_operator))

    def _settle(self, page: Sequence[Entry], dropped: Sequence[_Served]) -> None:
        """Take out of Redis what the ledger has by now."""
        by_partition: dict[int, list[Forget]] = {}
        for one in dropped:
            by_partition.setdefault(one.partition, []).append(one.forget)
        for partition, forgets in by_partition.items():
            self._forgets[partition].drop(forgets)
        now = self._clock()
        asked = [one for one in dropped if one.forget.wants_receipt]
        self._watch.confirmed([now - one.forget.received_ms / 1000 for one in asked])
        for one in asked:
            if one.forget.trace:
                facts = {"partition": one.partition, "version": one.version}
                times = (one.forget.applied_ms, int(now * 1000))
                span("streamtopic receipt", times, facts, one.forget.trace)
        for entry in page:
            if isinstance(entry, Erased):
                self._residue.complete(entry.ends)
            elif isinstance(entry, Alive):
                self._watch.alive = entry.made / 1000

    def _send(self) -> int:
        """Send the records of the outbox whose version the ledger has, oldest first; return their number."""
        ledger = self._writer.ledger
        sent = 0
        while entries := self._state.outbox():
            ready = []
            messages = list[Message]()
            proofs = set[int]()
            for entry in entries:
                record = entry.record
                version = version_of(record.key)
                if record.value is not None and version > ledger.newest:
                    break
                ready.append(entry)
                digest = dict(record.headers).get("sha256", b"").decode()
                if record.value is not None and digest != ledger.digest(version):
                    # Redis was set back, and drew a number again that the ledger had: nobody gets these bytes.
                    continue
                messages.append(record)
                if record.value is not None:
                    proofs.add(version)
            if not ready:
                break
            messages += [self._proof(version) for version in sorted(proofs)]
            if messages:
                self._log.append_many(self._names.releases, messages)
            # Only now: a record that was sent twice is skipped by readers, one that was never sent would be lost.
            self._state.confirm(ready)
            sent += len(ready)
        return sent

    def _proof(self, version: int) -> Message:
        """Return the record of the proof that a version is in the ledger."""
        index = self._writer.ledger.index_of(version)
        return proof_message(version, self._writer.proof(index or 0).text)

    def _prove_again(self) -> None:
        """Make the proofs of standing versions again, once a key was revoked that may have signed them."""
        ledger = self._writer.ledger
        revoked = len(ledger.keys.revoked)
        if revoked == self._writer.index.proved():
            return
        gone = ledger.withdrawn | self._state.withdrawn_alone()
        sent = sent_releases(self._log, self._state.model)
        standing = [version for version, one in sent.items() if one.has_chunks and version not in gone]
        proved = [version for version in standing if ledger.index_of(version) is not None]
        self._log.append_many(self._names.releases, [self._proof(version) for version in proved])
        self._writer.index.note_proved(revoked)

    def _destroy_links(self) -> None:
        """Destroy keys of months that ended long enough ago."""
        # In each round: a restored Redis brings destroyed keys back.
        last_month = months_before(month_of(self._clock()), self._link_months)
        if count := self._links.destroy(last_month):
            extra = {"event": "links_destroyed", "keys": count}
            logger.info(
                "destroyed %d keys that tied receipts of %s to request ids", count, self._state.model, extra=extra
            )

    def _now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._clock() * 1000)


def _first_waiting(stream: Forgets) -> float:
    """Return the offset of the oldest deletion that waits for its receipt, infinity for none."""
    waiting = stream.oldest()
    return waiting.offset if waiting else math.inf


def _dated(stages: Mapping[Stage, int | None]) -> dict[str, int]:
    """Return the times of stages that have one, by name."""
    return {stage.value: at for stage, at in stages.items() if at is not None}


def _served(stream: Forgets, partition: int, cuts: Cuts, most: int) -> list[_Served]:
    """Return the oldest deletions that a published version reflects, each with the first such version."""
    served = list[_Served]()
    # Cuts only grow, so all versions after the first one without a document are without it, too.
    ends = [cut.get(partition, 0) for _, cut in cuts]
    # A document may be deleted, added and deleted again while its first deletion still waits.
    touched: dict[bytes, list[Forget]] = {}
    offset = 0
    while cuts and len(served) < most and (page := stream.read(offset, PAGE)):
        offset = page[-1].offset + 1
        for forget in page:
            place = _first(forget, ends, touched.get(forget.document, []))
            if place < len(cuts):
                served.append(_Served(partition, forget, cuts[place][0]))
            touched.setdefault(forget.document, []).append(forget)
    return served[:most]


def _first(forget: Forget, ends: Sequence[int], earlier: Sequence[Forget]) -> int:
    """Return the place of the version that a receipt names as the first without the document; past them all for none.

    A document that was there: the first version that reflects the deletion.
    A document that was not there, and no earlier deletion of which waits: the version at the time of the deletion.

    ends: of each version, the first offset that it does not reflect.
    earlier: deletions of the document that wait, too.
    """
    reflects = bisect_right(ends, forget.offset)
    was_there = forget.found or any(before.found for before in earlier)
    # Before the first version nothing can be named: a version that was being made at that time may hold the document.
    return reflects if was_there else max(reflects - 1, 0)
