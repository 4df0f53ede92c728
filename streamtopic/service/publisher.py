"""Publish what is staged: releases and receipts, whose bytes are fixed before they leave."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from streamtopic.receipts import Receipt, document_digest, request_digest, seal_receipt, to_message
from streamtopic.release import Envelope
from streamtopic.signing import SigningKey
from streamtopic.state import Forget, Forgets, ModelState
from streamtopic.state.model import OutboxRecord
from streamtopic.streams import EventLog, Message, TopicNames

__all__ = ["Publisher", "outbox_records"]

PAGE = 1000


class Publisher:
    """Moves records from the outbox to the log, and writes receipts for deletions that a version reflects.

    secret: digests document ids in receipts. Every step can be repeated: an outbox record is appended again with the
    same bytes, which readers skip, and a receipt is a function of its deletion and its version.
    """

    def __init__(self, state: ModelState, log: EventLog, *, key: SigningKey, secret: bytes) -> None:
        self._state = state
        self._log = log
        self._key = key
        self._secret = secret
        self._names = TopicNames(state.model)

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

    def issue_receipts(self, forgets: Mapping[int, Forgets], versions: Sequence[Envelope]) -> int:
        """Publish receipts of deletions that one of `versions` is the first to reflect; how many.

        forgets: partition to its stream. Entries leave the stream only once their receipts are in the log.
        versions: envelopes of published versions, in any order, back to the first after the oldest entry.
        """
        ordered = sorted(versions, key=lambda envelope: envelope.version)
        issued = 0
        for partition, stream in forgets.items():
            while served := self._served(stream.read(count=PAGE), partition, ordered):
                receipts = [
                    self._receipt(partition, forget, envelope) for forget, envelope in served if forget.wants_receipt
                ]
                messages = [to_message(receipt, seal_receipt(receipt, self._key)) for receipt in receipts]
                self._state.enqueue(outbox_records(self._names.receipts, messages))
                self.drain()
                stream.drop([forget for forget, _ in served])
                issued += len(receipts)
        return issued

    @staticmethod
    def _served(
        entries: Sequence[Forget], partition: int, versions: Sequence[Envelope]
    ) -> list[tuple[Forget, Envelope]]:
        served, touched = [], dict[bytes, list[Forget]]()
        for forget in entries:
            envelope = _first(forget, partition, versions, touched.get(forget.document, []))
            if envelope is not None:
                served.append((forget, envelope))
            touched.setdefault(forget.document, []).append(forget)
        return served

    def _receipt(self, partition: int, forget: Forget, envelope: Envelope) -> Receipt:
        model = self._state.model
        return Receipt(
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


def outbox_records(topic: str, messages: Iterable[Message]) -> list[OutboxRecord]:
    """Messages as the outbox keeps them. Each needs a key: it is how a reader knows a repetition."""
    return [OutboxRecord(topic, message.key or b"", message.value, message.headers) for message in messages]


def _first(forget: Forget, partition: int, versions: Sequence[Envelope], earlier: Sequence[Forget]) -> Envelope | None:
    """Return the version that a receipt can name as the first without the document, None while there is none.

    That is the version that was current at the deletion, if it never held the document: because there was none, or it
    came later than the version, and no earlier deletion of the same id, which that version still held, was waiting.
    Otherwise it is the first version that reflects the deletion. Later versions change neither.
    """
    current = next((v for v in reversed(versions) if v.cut.get(partition, 0) <= forget.offset), None)
    if current is not None:
        cut = current.cut.get(partition, 0)
        if not any(_held(f, cut) and f.offset >= cut for f in earlier) and not _held(forget, cut):
            return current
    return next((version for version in versions if version.cut.get(partition, 0) > forget.offset), None)


def _held(forget: Forget, cut: int) -> bool:
    """Whether a version of this cut holds the document that the deletion removed."""
    return forget.found and forget.document_offset < cut
