"""Publish what is staged: releases and receipts, whose bytes are fixed before they leave."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from streamtopic.errors import InvalidRelease, StateError
from streamtopic.receipts import (
    ChainHead,
    Receipt,
    ReceiptReader,
    digest_of,
    document_digest,
    request_digest,
    seal_receipt,
    to_message,
)
from streamtopic.release import Envelope
from streamtopic.service.published import Published
from streamtopic.signing import SigningKey
from streamtopic.state import Forget, Forgets, ModelState
from streamtopic.state.outbox import OutboxRecord
from streamtopic.state.receipt_chain import ReceiptChain
from streamtopic.streams import EventLog, Message, TopicNames

__all__ = ["Publisher"]

PAGE = 1000
_ATTEMPTS = 20

logger = logging.getLogger("streamtopic.service")


class Publisher:
    """Moves records from the outbox to the log, and writes receipts for deletions that a version reflects.

    secret: digests document ids in receipts. Every step can be repeated: an outbox record is appended again with the
    same bytes, which readers skip.

    A deletion gets one receipt, also after Redis was restored from an older snapshot: what has a receipt is read from
    the receipts topic, and a deletion leaves Redis only once its receipt was read back from there. Receipts are staged
    behind the end of their chain by compare-and-set, so of two publishers one reads again.
    """

    def __init__(self, state: ModelState, log: EventLog, *, key: SigningKey, secret: bytes) -> None:
        self._state = state
        self._log = log
        self._key = key
        self._secret = secret
        self._names = TopicNames(state.model)
        self._staged = ReceiptChain(state.connection, state.model)
        self._issued = ReceiptReader(log, state.model, key.public, _report)
        self._versions = Published(log, state.model, key.public)
        self._looked_at: dict[int, object] = {}

    def drain(self) -> int:
        """Publish all that waits in the outbox, oldest first; how many records."""
        published = 0
        while entries := self._state.outbox():
            for topic, group in groupby(entries, key=lambda entry: entry.record.topic):
                records = [entry.record for entry in group]
                self._log.append_many(topic, [Message(r.key, r.value, r.headers, partition=0) for r in records])
            self._state.confirm(entries)
            published += len(entries)
        return published

    def issue_receipts(self, forgets: Mapping[int, Forgets], versions: Sequence[Envelope] | None = None) -> int:
        """Publish receipts of deletions that a published version is the first to reflect; how many.

        forgets: partition to its stream. versions: envelopes in any order; by default those of the releases topic.
        Entries leave the stream only once their receipts are in the log.
        """
        marks = {partition: stream.mark() for partition, stream in forgets.items()}
        waiting = {p: stream for p, stream in forgets.items() if marks[p][0] and not stream.incomplete}
        if not waiting:
            return 0
        if versions is None:
            if self._log.partitions(self._names.releases):
                self._versions.refresh()
            versions = self._versions.envelopes
        moved = self._state.moved()
        # A version from before documents were moved to other partitions may hold any of them.
        known = (replace(version, cut={}) if version.version <= moved else version for version in versions)
        ordered = sorted(known, key=lambda envelope: envelope.version)
        issued, latest = 0, (len(ordered), moved)
        for partition, stream in waiting.items():
            # However many wait for the next version, they are looked at once until something changes.
            if self._looked_at.get(partition) == (marks[partition], latest):
                continue
            while served := _served(stream, partition, ordered):
                issued += self._issue(partition, served)
                stream.drop([forget for forget, _ in served])
                marks[partition] = stream.mark()
            self._looked_at[partition] = (marks[partition], latest)
        return issued

    def _issue(self, partition: int, served: Sequence[tuple[Forget, Envelope]]) -> int:
        """Bring the receipts of these deletions into the log's chain; how many were missing from it."""
        issued = None
        for _ in range(_ATTEMPTS):
            head = self._synchronise()
            chain = self._issued.chain
            todo = [(f, e) for f, e in served if f.wants_receipt and (partition, f.offset) not in chain]
            issued = len(todo) if issued is None else issued
            if not todo:
                return issued
            records, end = self._sealed(partition, todo, head)
            # Whatever the outcome: the next round reads what came of it.
            self._staged.append((head.sequence, head.digest), (end.sequence, end.digest), records)
        raise StateError(
            f"receipts of {self._state.model} find no place in their chain: run one publisher for each model, and see "
            "`streamtopic doctor`"
        )

    def _synchronise(self) -> ChainHead:
        """Publish what is staged and read all that is published; the end of the chain, in the log and in Redis alike.

        Of the two the newer one counts: Redis is behind after it was restored, the log if it has lost records.
        """
        while True:
            staged = ChainHead(*self._staged.end())
            self.drain()
            for _ in self._issued.read():
                pass
            self._protect()
            head = self._issued.chain.head
            if staged == head:
                return head
            if staged.sequence <= head.sequence:
                self._staged.append((staged.sequence, staged.digest), (head.sequence, head.digest))
            elif (staged.sequence, staged.digest) == self._staged.end():
                lost = f"{head.sequence + 1} to {staged.sequence}"
                logger.error("%s has lost receipts %s, which had been published", self._names.receipts, lost)
                self._issued.chain.skip_to(staged)
                return staged

    def _protect(self) -> None:
        """Append receipts of the chain again whose key a stray has taken since: compaction keeps the last of a key."""
        if self._issued.rivals:
            again = [Message(r.key, r.value, partition=0) for _, r in self._issued.records(self._issued.rivals)]
            self._log.append_many(self._names.receipts, again)
            self._issued.rivals.clear()

    def _sealed(
        self, partition: int, todo: Sequence[tuple[Forget, Envelope]], head: ChainHead
    ) -> tuple[list[tuple[str, OutboxRecord]], ChainHead]:
        records = []
        for forget, envelope in todo:
            receipt = self._receipt(partition, forget, envelope, head)
            data = seal_receipt(receipt, self._key)
            head = ChainHead(receipt.sequence, digest_of(data))
            message = to_message(receipt, data)
            records.append((head.digest, OutboxRecord(self._names.receipts, message.key or b"", message.value)))
        return records, head

    def _receipt(self, partition: int, forget: Forget, envelope: Envelope, head: ChainHead) -> Receipt:
        model = self._state.model
        return Receipt(
            sequence=head.sequence + 1,
            previous=head.digest,
            model=model,
            partition=partition,
            offset=forget.offset,
            request=request_digest(forget.request),
            document=document_digest(self._secret, model, forget.document),
            received=forget.received_ms,
            applied=forget.applied_ms,
            found=forget.found,
            length=forget.length,
            version=envelope.version,
            mode=envelope.guarantee,
            certificate=envelope.certificate,
            sigma=envelope.sigma,
            epsilon=envelope.epsilon,
            delta=envelope.delta,
            cumulative_epsilon=envelope.cumulative_epsilon,
            capacity_used=envelope.forgotten,
            capacity_left=max(envelope.capacity - envelope.forgotten, 0),
        )


def _report(error: InvalidRelease) -> None:
    logger.warning("a record of the receipts topic is passed over: %s", error)


def _served(stream: Forgets, partition: int, versions: Sequence[Envelope]) -> list[tuple[Forget, Envelope]]:
    """Return the oldest deletions that a version can be named for, with it."""
    served: list[tuple[Forget, Envelope]] = []
    touched: dict[bytes, list[Forget]] = {}
    offset = 0
    while versions and len(served) < PAGE and (page := stream.read(offset, PAGE)):
        offset = page[-1].offset + 1
        for forget in page:
            envelope = _first(forget, partition, versions, touched.get(forget.document, []))
            if envelope is not None:
                served.append((forget, envelope))
            touched.setdefault(forget.document, []).append(forget)
    return served


def _first(forget: Forget, partition: int, versions: Sequence[Envelope], earlier: Sequence[Forget]) -> Envelope | None:
    """Return the version that a receipt can name as the first without the document, None while there is none.

    That is the first version that reflects the deletion. Cuts only grow, so later ones reflect it too; the version
    before it says nothing, although it may never have held the document: one that is being made meanwhile may.
    Where there was no document, nor one whose deletion still waits, it is the version current at the deletion.
    """
    if not forget.found and not any(before.found for before in earlier):
        current = next((v for v in reversed(versions) if v.cut.get(partition, 0) <= forget.offset), None)
        if current is not None:
            return current
    return next((version for version in versions if version.cut.get(partition, 0) > forget.offset), None)
