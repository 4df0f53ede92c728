"""Where the model stands, read from Redis: what `decide` needs, and what `status` shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtopic.service.decide import Standing
from streamtopic.state import Forget, Meta, Reader, StoredBase

__all__ = ["Base", "LastRelease", "base_forget_set", "read_standing", "unserved"]


@dataclass(frozen=True, slots=True)
class Base:
    """The base model: version that it was published as, last epoch that it was trained on, its documents and anchors.

    capacity: deletions that it bears; calibration: what that was derived from, for people (BaseCapacity.facts);
    theorem: whether what theorem mode starts from was kept with it.
    """

    version: int
    epoch: int
    documents: int
    anchors: tuple[str, ...]
    capacity: int
    calibration: Mapping[str, Any] = field(default_factory=dict)
    theorem: bool = False

    @classmethod
    def parse(cls, stored: StoredBase) -> "Base":
        """Read what Redis keeps of it."""
        fields = stored.fields
        return cls(
            stored.version,
            stored.epoch,
            fields["documents"],
            tuple(fields["anchors"]),
            fields["capacity"],
            fields.get("calibration", {}),
            "theorem" in fields,
        )


@dataclass(frozen=True, slots=True)
class LastRelease:
    """The newest release record, as the scheduler wrote it.

    cut: partition to the first offset that the version does not reflect; counted: documents accepted by then, ever;
    base: version of its base model.
    """

    version: int
    base: int
    documents: int
    forget_set: int
    counted: int
    cut: Mapping[int, int]

    @classmethod
    def parse(cls, version: int, record: Mapping[str, Any]) -> "LastRelease":
        """Read a release record."""
        cut = {int(partition): int(offset) for partition, offset in record["cut"].items()}
        return cls(version, record["base"], record["documents"], record["forget_set"], record["counted"], cut)


def base_forget_set(positions: Mapping[int, Meta], base_documents: int, base_epoch: int) -> int:
    """Return f: documents that the base model was trained on and that are gone. Derived, so nothing refunds it."""
    return base_documents - sum(meta.live_through(base_epoch) for meta in positions.values())


def unserved(reader: Reader, positions: Mapping[int, Meta], last: LastRelease | None) -> list[tuple[int, Forget]]:
    """Return (partition, deletion) for deletions of documents that no version has been made without.

    Also those of documents that came after the last version: their receipts wait for one that was made later.
    """
    if last is None:
        return []
    waiting = []
    for partition in positions:
        at = last.cut.get(partition, 0)
        forgets = reader.forgets(partition)
        while page := forgets.read(at):
            waiting += [(partition, forget) for forget in page if forget.found]
            at = page[-1].offset + 1
    return waiting


def read_standing(
    reader: Reader,
    last: LastRelease | None,
    base: Base | None,
    *,
    next_epsilon: float,
    failed: str | None,
    requested: str | None,
    theorem: bool = False,
) -> Standing:
    """Return where things stand now. base: None before the first; theorem: whether updates are theorem mode's."""
    positions = reader.positions()
    documents = sum(meta.documents for meta in positions.values())
    if last is None:
        return Standing(documents, failed=failed, requested=requested)
    behind, lost = _behind(positions, last), _lost(positions, last, base)
    if lost is None and theorem and base is not None and not base.theorem:
        lost = "the base model was not learned in theorem mode"
    if base is None or behind is not None:
        return Standing(documents, failed=failed, requested=requested, behind=behind, lost=lost)
    waiting = [forget for _, forget in unserved(reader, positions, last)]
    return Standing(
        documents=documents,
        base_documents=base.documents,
        model_documents=last.documents,
        forget_set=base_forget_set(positions, base.documents, base.epoch),
        published_forget_set=last.forget_set,
        unserved=len(waiting),
        oldest_unserved_ms=min((forget.received_ms for forget in waiting), default=None),
        new_documents=sum(sum(meta.counted.values()) for meta in positions.values()) - last.counted,
        capacity=base.capacity,
        next_epsilon=next_epsilon,
        failed=failed,
        requested=requested,
        lost=lost,
        base_only=theorem,
    )


def _behind(positions: Mapping[int, Meta], last: LastRelease) -> str | None:
    """Return which partitions have counted less than the newest version reflects, as after Redis was set back."""
    late = {p: last.cut[p] for p, meta in positions.items() if meta.next_offset < last.cut.get(p, 0)}
    if not late:
        return None
    places = ", ".join(f"{partition} up to {offset}" for partition, offset in sorted(late.items()))
    return f"version {last.version} reflects more than is counted now: waiting for ingest to reach partition {places}"


def _lost(positions: Mapping[int, Meta], last: LastRelease, base: Base | None) -> str | None:
    """Return why the base model that Redis holds is not the one of the newest version, or cannot be told apart."""
    if base is None or base.version != last.base:
        held = "no base model" if base is None else f"the base model of version {base.version}"
        return f"Redis was set back: it holds {held}, the newest version is of {last.base}"
    merged = [partition for partition, meta in positions.items() if meta.epoch <= base.epoch]
    return f"Redis was set back: partition {merged[0]} has lost where the base model ends" if merged else None
