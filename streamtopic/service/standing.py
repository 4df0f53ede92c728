"""Where the model stands, read from Redis: what `decide` needs, and what `status` shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtopic.service.decide import Standing
from streamtopic.state import Forget, Meta, Reader

__all__ = ["LastRelease", "base_forget_set", "read_standing", "unserved"]


@dataclass(frozen=True, slots=True)
class LastRelease:
    """The newest release record, as the scheduler wrote it.

    cut: partition to the first offset that the version does not reflect; counted: documents accepted by then, ever.
    """

    version: int
    documents: int
    forget_set: int
    counted: int
    cut: Mapping[int, int]

    @classmethod
    def parse(cls, version: int, record: Mapping[str, Any]) -> "LastRelease":
        """Read a release record."""
        cut = {int(partition): int(offset) for partition, offset in record["cut"].items()}
        return cls(version, record["documents"], record["forget_set"], record["counted"], cut)


def base_forget_set(positions: Mapping[int, Meta], base_documents: int, base_epoch: int) -> int:
    """Return f: documents that the base model was trained on and that are gone. Derived, so nothing refunds it."""
    return base_documents - sum(meta.live_through(base_epoch) for meta in positions.values())


def unserved(reader: Reader, positions: Mapping[int, Meta], last: LastRelease | None) -> list[tuple[int, Forget]]:
    """Return (partition, deletion) for deletions of documents that a version holds and none has been made without."""
    if last is None:
        return []
    waiting = []
    for partition in positions:
        cut = last.cut.get(partition, 0)
        at = cut
        forgets = reader.forgets(partition)
        while page := forgets.read(at):
            waiting += [(partition, forget) for forget in page if forget.found and forget.document_offset < cut]
            at = page[-1].offset + 1
    return waiting


def read_standing(
    reader: Reader,
    last: LastRelease | None,
    base: Mapping[str, Any] | None,
    *,
    next_epsilon: float,
    failed: str | None,
    requested: str | None,
) -> Standing:
    """Return where things stand now. base: fields of the base model, or None before the first."""
    positions = reader.positions()
    documents = sum(meta.documents for meta in positions.values())
    if base is None or last is None:
        return Standing(documents, failed=failed, requested=requested)
    waiting = [forget for _, forget in unserved(reader, positions, last)]
    return Standing(
        documents=documents,
        base_documents=base["documents"],
        model_documents=last.documents,
        forget_set=base_forget_set(positions, base["documents"], base["epoch"]),
        published_forget_set=last.forget_set,
        unserved=len(waiting),
        oldest_unserved_ms=min((forget.received_ms for forget in waiting), default=None),
        new_documents=sum(sum(meta.counted.values()) for meta in positions.values()) - last.counted,
        capacity=base["capacity"],
        next_epsilon=next_epsilon,
        failed=failed,
        requested=requested,
    )
