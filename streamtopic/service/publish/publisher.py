"""Publish releases, receipts and completions, and state at intervals which version is the newest.

The bytes of a release or a receipt are fixed before they are sent, so each step can be repeated.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from streamtopic.errors import StateError, StateMismatch
from streamtopic.monitoring.tracing import span
from streamtopic.service.publish.published import Published
from streamtopic.service.publish.subject_receipts import SubjectReceipts
from streamtopic.service.watching import Watch
from streamtopic.signed import (
    ChainHead,
    Completion,
    Envelope,
    KeyRing,
    Receipt,
    ReceiptReader,
    SigningKey,
    Statement,
    digest_of,
    document_digest,
    receipt_id,
    request_digest,
    seal_completion,
    seal_receipt,
    seal_statement,
    service_document_salt,
    service_salt,
    statement_message,
    to_message,
)
from streamtopic.state import Forget, Forgets, ModelState, SubjectRequests
from streamtopic.state.deletions import LinkKeys, ReceiptChain, month_of, months_before
from streamtopic.state.model_state import OutboxRecord
from streamtopic.state.residue_ledger import Residue, ResidueState, Stage
from streamtopic.streams import EventLog, Message, TopicNames

__all__ = ["Publisher", "Statements"]

PAGE = 1000
# Two publishers race for the end of the chain. A publisher that loses so often in a row is not alone for long.
_ATTEMPTS = 20
_LOOK_SECONDS = 3_600
# Receipts must be kept for ever, so their topic may lose records neither to age, to size nor to compaction.
_KEPT = {"cleanup.policy": {"delete"}, "retention.ms": {"-1"}, "retention.bytes": {"-1"}}

logger = logging.getLogger("streamtopic.service")


class Publisher:
    """Moves records from the outbox to the log, and writes receipts for deletions that a version reflects.

    key: signs receipts and completions.
    secret: digests document ids in receipts where the requester sent no salt.
    link_months: how many months the key of a month is kept after it. The service finds receipts by request id with it.
    clock: seconds since 1970.
    keys: verify the service's own past signatures, by default `key` alone.
    watch: is told of everything that was published.

    Every step can be repeated: an outbox record is appended again with the same bytes, and readers skip it.

    A deletion gets one receipt, also after Redis was restored from an older snapshot. The publisher reads in the
    receipts topic which deletions have one, and a deletion leaves Redis only once its receipt was read back from there.
    Receipts are staged behind the end of their chain by compare-and-set; the loser of two publishers reads again.
    """

    def __init__(
        self,
        state: ModelState,
        log: EventLog,
        *,
        key: SigningKey,
        secret: bytes,
        link_months: int = 3,
        clock: Callable[[], float] = time.time,
        keys: KeyRing | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._state = state
        self._log = log
        self._key = key
        self._secret = secret
        self._watch = watch or Watch()
        self._link_months = link_months
        self._clock = clock
        self._links = LinkKeys(state.connection, state.model)
        self._destroyed_at = -math.inf
        self._names = TopicNames(state.model)
        self._residue = ResidueState(state.connection, state.model)
        self._staged = ReceiptChain(state.connection, state.model)
        # Receipts that an earlier key of the service signed are its own as well.
        known = keys or key.public
        self._issued = ReceiptReader(log, state.model, known)
        self._versions = Published(log, state.model, known)
        self._looked_at: dict[int, object] = {}
        requests = SubjectRequests(state.connection, state.model, state.settings.partitions)
        self._subjects = SubjectReceipts(
            state.model, requests, log, self._names.receipts, self._names.releases, key=key, links=self._links
        )
        # By the settings that the model is bound to: other models need no right to read these notes.
        self._many_forms = state.settings.many_forms

    def drain(self) -> int:
        """Publish the records of the outbox, oldest first; return their number.

        Raises StateMismatch where the receipts topic would lose records.
        """
        published = 0
        while entries := self._state.outbox():
            for topic, group in groupby(entries, key=lambda entry: entry.record.topic):
                if topic == self._names.receipts:
                    _refuse_losing(self._log, topic)
                records = [entry.record for entry in group]
                messages = [Message(record.key, record.value, record.headers, partition=0) for record in records]
                self._log.append_many(topic, messages)
            # Only now: a record that was sent twice is skipped by readers, one that was never sent would be lost.
            self._state.confirm(entries)
            published += len(entries)
            self._watch.published(len(entries))
        return published

    def issue_receipts(self, forgets: Mapping[int, Forgets], versions: Sequence[Envelope] | None = None) -> int:
        """Publish receipts of deletions that a published version is the first to reflect; return their number.

        forgets: partition to its stream of deletions. An entry leaves it only once its receipt is in the log.
        versions: envelopes in any order; by default those of the releases topic.

        Raises StateMismatch where the receipts topic would lose records, StateError where another publisher is always
        faster, ComponentUnreachable.
        """
        self._destroy_links()
        marks = {partition: stream.mark() for partition, stream in forgets.items()}
        # While a rebuild counts anew, entries may say less than those that it put aside: they wait until it is done.
        waiting = {p: stream for p, stream in forgets.items() if marks[p][0] and not stream.incomplete}
        if not waiting:
            return 0
        if versions is None:
            if self._log.partitions(self._names.releases):
                self._versions.refresh()
            versions = self._versions.envelopes
        moved = self._state.moved()
        ordered = sorted(versions, key=lambda envelope: envelope.version)
        # A version from before documents were moved to other partitions may hold any of them.
        ordered = [replace(version, cut={}) if version.version <= moved else version for version in ordered]
        issued = 0
        latest = (len(ordered), moved)
        for partition, stream in waiting.items():
            # A million deletions may wait for the next version: they are read once, until something changes.
            if self._looked_at.get(partition) == (marks[partition], latest):
                continue
            # A receipt says that a rebuild will not find the document again either.
            before = stream.waits_for_other_forms() if self._many_forms else None
            while served := _served(stream, partition, ordered, before):
                issued += self._issue(partition, served)
                stream.drop([forget for forget, _ in served])
                now = self._clock()
                asked = (forget for forget, _ in served if forget.wants_receipt)
                waits = [now - forget.received_ms / 1000 for forget in asked]
                self._watch.confirmed(waits)
                _trace(partition, served, int(now * 1000))
                marks[partition] = stream.mark()
            if before is None:
                self._looked_at[partition] = (marks[partition], latest)
        return issued

    def cover_subjects(self, forgets: Mapping[int, Forgets]) -> int:
        """Publish the covering receipts of requests to forget a subject that can be made now; return their number.

        forgets: partition to its stream of deletions, of all partitions. Call it once their receipts are issued.

        Raises as `issue_receipts`.
        """
        return self._subjects.publish(forgets, self._issued)

    def issue_completion(self, forgets: Mapping[int, Forgets]) -> bool:
        """Publish a completion where the traces of further deletions are gone; return whether one was published.

        forgets: partition to its stream, which holds the deletions that have no receipt yet.

        Raises as `issue_receipts`.
        """
        residue = self._residue.read()
        if not residue.marks:
            return False
        new: dict[int, int] = {}
        for partition, stream in forgets.items():
            clean = _end(residue, partition, stream)
            completed = residue.completed.get(partition, 0)
            if clean > completed and not stream.incomplete:
                # Deletions that are lost have no receipt, and are not seen to wait for one.
                stream.require(partition)
                new[partition] = clean
        if not new:
            return False
        issued = False
        for _ in range(_ATTEMPTS):
            head = self._synchronise()
            chain = self._issued.chain
            before = _completed(self._issued.completions)
            todo = {p: end for p, end in new.items() if chain.between(p, before.get(p, 0), end)}
            if not todo:
                # Read back from the topic, or nobody asked for these deletions: their marks are not needed any more.
                self._residue.complete(new)
                return issued
            issued = True
            _refuse_losing(self._log, self._names.receipts)
            completion = self._completion(residue, todo, head)
            data = seal_completion(completion, self._key)
            message = to_message(completion, data)
            key = message.key or b""
            record = OutboxRecord(self._names.receipts, key, message.value)
            end = ChainHead(completion.sequence, digest_of(data))
            self._append(head, end, [(end.digest, record)])
        raise self._overtaken("a completion")

    def _completion(self, residue: Residue, ends: Mapping[int, int], head: ChainHead) -> Completion:
        """Return the completion of all deletions before these ends, to be appended behind `head`."""
        reached = {p: _dated(residue.reached(p, end - 1)) for p, end in ends.items()}
        # Backups are known to the operator only, and so is Redis's file where the service may not have it rewritten.
        by_operator = {Stage.SNAPSHOTS, Stage.AOF} if residue.forbidden else {Stage.SNAPSHOTS}
        attested = tuple(stage.value for stage in Stage if stage in by_operator)
        created = int(self._clock() * 1000)
        number = len(self._issued.completions) + 1
        return Completion(
            sequence=head.sequence + 1,
            previous=head.digest,
            model=self._state.model,
            number=number,
            created=created,
            ends=ends,
            reached=reached,
            attested=attested,
        )

    def _destroy_links(self) -> None:
        """Destroy keys of months that ended long enough ago."""
        now = self._clock()
        # Not once only: a restored Redis brings destroyed keys back.
        if abs(now - self._destroyed_at) < _LOOK_SECONDS:
            return
        last_month = months_before(month_of(now), self._link_months)
        if count := self._links.destroy(last_month):
            extra = {"event": "links_destroyed", "keys": count}
            logger.info(
                "destroyed %d keys that tied receipts of %s to request ids", count, self._state.model, extra=extra
            )
        self._destroyed_at = now

    def _issue(self, partition: int, served: Sequence[tuple[Forget, Envelope]]) -> int:
        """Append the receipts of these deletions to the chain in the log; return how many were missing from it."""
        _refuse_losing(self._log, self._names.receipts)
        issued = None
        for _ in range(_ATTEMPTS):
            head = self._synchronise()
            chain = self._issued.chain
            wanted = [(forget, envelope) for forget, envelope in served if forget.wants_receipt]
            todo = [(forget, envelope) for forget, envelope in wanted if (partition, forget.offset) not in chain]
            # The first round decides the number: in later ones the receipts of this round may stand in the chain.
            if issued is None:
                issued = len(todo)
            if not todo:
                return issued
            records, end = self._sealed(partition, todo, head)
            self._append(head, end, records)
        raise self._overtaken("receipts")

    def _append(self, head: ChainHead, end: ChainHead, records: Sequence[tuple[str, OutboxRecord]] = ()) -> None:
        """Stage records behind the end of the chain, if it is still `head`; `end` is the new one."""
        # The outcome is not looked at: the caller reads the chain again in any case.
        before = head.sequence, head.digest
        after = end.sequence, end.digest
        self._staged.append(before, after, records)

    def _overtaken(self, what: str) -> StateError:
        """Return the error that another publisher has appended to the chain in each attempt."""
        return StateError(
            f"cannot append {what} of {self._state.model} to the chain of receipts; another publisher was faster "
            f"{_ATTEMPTS} times: run one publisher for each model, and see `streamtopic doctor`"
        )

    def _synchronise(self) -> ChainHead:
        """Publish the staged records, read the topic to its end, and return the end of the chain.

        The topic decides where the chain ends, and Redis is corrected: it may have been set back, and the receipts that
        it staged may have become strays.
        """
        while True:
            staged = ChainHead(*self._staged.end())
            self.drain()
            self._read()
            chain = self._issued.chain
            if staged.sequence > chain.head.sequence and not chain.is_stray(staged.digest):
                # Another publisher has staged meanwhile, so its receipts may come yet.
                if staged != ChainHead(*self._staged.end()):
                    continue
                # Redis has confirmed receipts that the topic does not hold: the topic has lost them. The chain goes on
                # behind them, so that every reader sees the gap.
                lost = f"{chain.head.sequence + 1} to {staged.sequence}"
                extra = {"event": "receipts_lost"}
                logger.error(
                    "%s has lost receipts %s, which had been published", self._names.receipts, lost, extra=extra
                )
                chain.skip_to(staged)
            if staged == chain.head:
                return staged
            self._append(staged, chain.head)

    def _read(self) -> None:
        """Read the new records of the receipts topic."""
        before = self._issued.skipped
        self._issued.catch_up()
        if more := self._issued.skipped - before:
            extra = {"event": "receipts_passed_over", "records": more}
            logger.warning(
                "%d records of %s are not receipts and are passed over", more, self._names.receipts, extra=extra
            )

    def _sealed(
        self, partition: int, todo: Sequence[tuple[Forget, Envelope]], head: ChainHead
    ) -> tuple[list[tuple[str, OutboxRecord]], ChainHead]:
        """Return the sealed receipts of these deletions, each behind the one before, and the new end of the chain."""
        # A key for each month: when it is destroyed, nobody can tie that month's receipts to request ids any more.
        records, month = [], month_of(self._clock())
        link_key = self._links.of(month)
        for forget, envelope in todo:
            name = receipt_id(self._state.model, partition, forget.offset)
            salt = service_salt(link_key, name)
            undated = self._receipt(partition, forget, envelope, head, salt)
            receipt = replace(undated, month=month)
            data = seal_receipt(receipt, self._key)
            head = ChainHead(receipt.sequence, digest_of(data))
            message = to_message(receipt, data)
            record = OutboxRecord(self._names.receipts, message.key or b"", message.value)
            records.append((head.digest, record))
        return records, head

    def _receipt(
        self, partition: int, forget: Forget, envelope: Envelope, head: ChainHead, salt: bytes = b""
    ) -> Receipt:
        """Return the receipt of a deletion.

        head: the end of the chain before it.
        salt: the service's own, for the link, and for the digests where the requester sent none.
        """
        model = self._state.model
        document_salt = forget.salt or service_document_salt(self._secret, salt)
        document = document_digest(document_salt, model, forget.document)
        request = request_digest(forget.request, forget.salt or salt)
        link = request_digest(forget.request, salt)
        release = self._versions.digest(envelope.version)
        left = max(envelope.capacity - envelope.forgotten, 0)
        return Receipt(
            sequence=head.sequence + 1,
            previous=head.digest,
            model=model,
            partition=partition,
            offset=forget.offset,
            request=request,
            document=document,
            link=link,
            received=forget.received_ms,
            applied=forget.applied_ms,
            found=forget.found,
            version=envelope.version,
            mode=envelope.guarantee,
            certificate=envelope.certificate,
            sigma=envelope.sigma,
            epsilon=envelope.epsilon,
            delta=envelope.delta,
            cumulative_epsilon=envelope.cumulative_epsilon,
            capacity_used=envelope.forgotten,
            capacity_left=left,
            release=release,
            commitment=envelope.commitment,
        )


class Statements:
    """Publishes statements of a model: which version is the newest, and which versions must not be used.

    A statement is published at once where something has changed, else every `interval_ms`.

    published: the releases topic, which is read to its end before a statement.
    key: signs statements.
    interval_ms: milliseconds within which readers may count on the next one; 0 for a process that ends and promises
        none.
    clock: seconds since 1970.
    watch: is told when one was made.

    The number of a statement is larger than all numbers in Redis and in the topic, so neither a restored Redis nor a
    second publisher makes numbers go back. A statement never takes back a newest version or a withdrawal.
    """

    def __init__(
        self,
        state: ModelState,
        log: EventLog,
        published: Published,
        key: SigningKey,
        *,
        interval_ms: int,
        clock: Callable[[], float],
        watch: Watch | None = None,
    ) -> None:
        self._state = state
        self._log = log
        self._topic = TopicNames(state.model).releases
        self._published = published
        self._key = key
        self._interval_ms = interval_ms
        self._clock = clock
        self._watch = watch or Watch()
        self._due = 0

    def publish(self, *, changed: bool) -> Statement | None:
        """Publish a statement if one is due, or if it differs from the last; return it, or None.

        changed: whether anything was published since the last call. If not, the topic is read only once a statement is
            due.

        Raises ComponentUnreachable, StateMismatch where the topic is gone and with it every version.
        """
        now = int(self._clock() * 1000)
        if now < self._due and not changed:
            return None
        if not self._log.partitions(self._topic):
            if self._state.releases(1):
                raise StateMismatch(
                    f"topic {self._topic} is gone, and with it every version that was published: restore it, or create "
                    "it with `streamtopic init` and make a version with `streamtopic retrain`"
                )
            return None
        self._published.refresh()
        before = self._published.statement
        said = self._said(now)
        # Another publisher may have said the same a moment ago. Compaction keeps the last record, which must be the
        # newest statement.
        if before is not None and before.sequence == self._published.last_statement and self._holds(before, said):
            self._due = before.made + self._interval_ms // 2
            self._watch.stated(before.made / 1000)
            if now < self._due:
                return None
        last = 0 if before is None else before.sequence
        number = self._state.next_statement(last)
        statement = Statement(self._state.model, number, now, self._interval_ms, *said)
        sealed = seal_statement(statement, self._key)
        message = statement_message(sealed)
        self._log.append_many(self._topic, [message])
        self._watch.stated(now / 1000)
        # Twice an interval, so that one statement that comes late does not alarm readers.
        self._due = now + self._interval_ms // 2
        return statement

    def _holds(self, before: Statement, said: tuple[int, str, tuple[int, ...]]) -> bool:
        """Return whether a statement still says all that is to be said."""
        has = before.newest, before.digest, before.withdrawn, before.interval
        return has == (*said, self._interval_ms)

    def _said(self, now: int) -> tuple[int, str, tuple[int, ...]]:
        """Return the content of a statement: the newest version, its digest, and all withdrawn versions."""
        versions = self._published.versions
        before = self._published.statement
        newest, digest = 0, ""
        if versions:
            newest = versions[-1].envelope.version
            digest = versions[-1].sealed
        # Withdrawals without a new version are known to Redis only.
        gone = set(self._state.withdrawn_alone())
        for version in versions:
            gone.update(version.envelope.withdrawn)
        if before is None:
            return newest, digest, tuple(sorted(gone))
        gone.update(before.withdrawn)
        # The topic may have lost its newest version. Readers must not take an older one for the newest.
        if before.newest >= newest:
            newest = before.newest
            digest = before.digest
        if before.made > now:
            extra = {"event": "clock_behind"}
            logger.warning(
                "statement %d is of a later time than now: set this machine's clock right", before.sequence, extra=extra
            )
        return newest, digest, tuple(sorted(gone))


def _end(residue: Residue, partition: int, stream: Forgets) -> int:
    """Return the offset before which all deletions are complete and have their receipts."""
    # A completion must not run ahead of receipts: it speaks of deletions that have theirs.
    waiting = stream.read(0, 1)
    done = residue.done(partition)
    return min(done, waiting[0].offset) if waiting else done


def _dated(stages: Mapping[Stage, int | None]) -> dict[str, int]:
    """Return the times of stages that have one, by name."""
    return {stage.value: at for stage, at in stages.items() if at is not None}


def _completed(completions: Sequence[Completion]) -> dict[int, int]:
    """Return, by partition, the offset up to which deletions are complete."""
    ends = dict[int, int]()
    for completion in completions:
        ends |= completion.ends
    return ends


def _trace(partition: int, served: Sequence[tuple[Forget, Envelope]], now_ms: int) -> None:
    """Report that receipts are in the log, to those who trace their deletions."""
    for forget, envelope in served:
        if forget.trace and forget.wants_receipt:
            facts = {"partition": partition, "version": envelope.version}
            span("streamtopic receipt", (forget.applied_ms, now_ms), facts, parent=forget.trace)


def _served(
    stream: Forgets, partition: int, versions: Sequence[Envelope], before: int | None = None
) -> list[tuple[Forget, Envelope]]:
    """Return the oldest deletions that a published version reflects, each with the first such version.

    before: offset from which on deletions wait for something else; None where none does.
    """
    served: list[tuple[Forget, Envelope]] = []
    # A document may be deleted, added and deleted again while its first deletion still waits.
    touched: dict[bytes, list[Forget]] = {}
    offset = 0
    while versions and len(served) < PAGE and (page := stream.read(offset, PAGE)):
        offset = page[-1].offset + 1
        for forget in page:
            if before is not None and forget.offset >= before:
                return served
            envelope = _first(forget, partition, versions, touched.get(forget.document, []))
            if envelope is not None:
                served.append((forget, envelope))
            touched.setdefault(forget.document, []).append(forget)
    return served


def _first(forget: Forget, partition: int, versions: Sequence[Envelope], earlier: Sequence[Forget]) -> Envelope | None:
    """Return the version that a receipt names as the first without the document, None while there is no such version.

    A document that was there: the first version that reflects the deletion.
    A document that was not there, and no earlier deletion of which waits: the version at the time of the deletion.
    """
    # Before the first version nothing can be named: a version that was being made at that time may hold the document.
    if not forget.found and not any(before.found for before in earlier):
        for version in reversed(versions):
            if version.cut.get(partition, 0) <= forget.offset:
                return version
    # Cuts only grow, so all later versions are without the document, too.
    return next((version for version in versions if version.cut.get(partition, 0) > forget.offset), None)


def _refuse_losing(log: EventLog, topic: str) -> None:
    """Raise StateMismatch where a topic does not keep every record for ever: receipts must be kept."""
    have = log.settings(topic)
    losing = []
    for name, kept in _KEPT.items():
        value = have.get(name)
        # None: a log in files may have no settings, and then it keeps every record.
        if value is not None and value not in kept:
            losing.append(f"{name}={value}")
    if losing:
        raise StateMismatch(
            f"topic {topic} has {', '.join(losing)}, so receipts would be lost: run `streamtopic init`, which makes it "
            "keep every record"
        )
