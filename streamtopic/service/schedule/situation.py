"""Read the situation of a model from Redis, as `decide` needs it. It writes nothing.

accepted, unserved    documents that came, and deletions that no version reflects yet
last_version          the newest version with its exact numbers
capacity_of           how many deletions a new base model bears
suspects              versions that an error in memory may have reached
SituationReader       reads the situation
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamtopic.privacy.accounting import Composition
from streamtopic.service.publish.ledger_writer import recorded
from streamtopic.service.schedule.decide import LONGEST_HOLD_MS, Situation, Wait, held
from streamtopic.service.schedule.modeller import Base, Modeller
from streamtopic.settings import Settings
from streamtopic.signed import Envelope
from streamtopic.state import BaseDocuments, Forget, Meta, ModelState, Reader, RemainingBase
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests
from streamtopic.state.model_state import NEWEST

__all__ = [
    "SituationReader",
    "accepted",
    "capacity_of",
    "last_version",
    "suspects",
    "unserved",
]


def accepted(positions: Mapping[int, Meta]) -> int:
    """Return the number of documents that were ever accepted until these positions."""
    return sum(meta.accepted for meta in positions.values())


def unserved(reader: Reader, positions: Mapping[int, Meta], last: Mapping[int, int] | None) -> list[tuple[int, Forget]]:
    """Return (partition, deletion) for each deletion that no version reflects.

    last: the cut of the newest version, None before the first.
    """
    if last is None:
        return []
    # Deletions of documents that came after the last version count too: their receipts wait for a later version.
    waiting = []
    for partition in positions:
        forgets = reader.forgets(partition).each(last.get(partition, 0))
        waiting += [(partition, forget) for forget in forgets if forget.found]
    return waiting


def last_version(record: Mapping[str, Any]) -> Envelope | None:
    """Return the version of a record in Redis, None without one.

    Numbers that its entry shows with noise are exact here.
    """
    return replace(recorded(record), **record.get("exact", {})) if record else None


def suspects(state: ModelState) -> tuple[int, ...]:
    """Return the versions that an error in memory may have reached.

    These were carried over since the last version that was learned cold or borne out by a check.
    """
    found = list[int]()
    # Newest first, up to a version that does not rest on a carried-over model: an older error ended there.
    for version, record in reversed(state.releases()):
        if not record.get("warm") or record.get("self_check", {}).get("passed"):
            break
        found.append(version)
    return tuple(reversed(found))


def capacity_of(settings: Settings, documents: int) -> int:
    """Return how many deletions a base model of so many documents bears."""
    found = settings.capacity
    # With a capacity of 0, each deletion from a small corpus would be a retrain.
    return found.documents if found.rule == "fixed" else max(1, int(found.share * documents))


class SituationReader:
    """Reads the present situation of a model from Redis.

    mode: in which versions of this model are made.
    settings: when to act, and the delta at which the cumulative epsilon of all versions is stated.
    clock: seconds since 1970.
    ticks: seconds that never jump, which say how long a request has held versions back.
    """

    def __init__(
        self,
        reader: Reader,
        state: ModelState,
        mode: Modeller,
        settings: Settings,
        clock: Callable[[], float],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._state = state
        self._mode = mode
        self._base_documents = BaseDocuments(reader, state.model)
        self._settings = settings
        self._clock = clock
        self._ticks = ticks
        self._requests = DeletionRequests(state.connection, state.model)
        # When this process saw a request under way for the first time, and since when there always was one. Clocks of
        # several machines may differ.
        self._seen: dict[str, float] = {}
        self._since: float | None = None

    def read(self, requested: str | None = None, failed: str | None = None) -> Situation:
        """Return the present situation.

        requested: the operator's request, if any.
        failed: why no model can be made of the present documents, if that is known.

        Raises StateMissing, StateCorrupt, ComponentUnreachable.
        """
        # Before the counts: a request that is done by now has no document in counts that are read later.
        under_way = [one for one in self._requests.open() if one.is_under_way]
        self._seen = {one.id: self._seen.get(one.id, self._ticks()) for one in under_way}
        self._since = self._since or self._ticks() if under_way else None
        situation = self._of_positions(self._reader.positions(), requested, failed)
        return self._with_holding(situation, under_way)

    def splits(self, cut: Mapping[int, int]) -> Wait | None:
        """Return why a version with this cut has to wait, since it would part what a request deletes; else None.

        cut: partition to the first offset that the version does not reflect.

        Raises as `read`.
        """
        parted = [one for one in self._requests.open() if one.parted_by(cut)]
        return held(self._with_holding(Situation(0), parted), self._settings)

    def _with_holding(self, situation: Situation, requests: Iterable[DeletionRequest]) -> Situation:
        """Return the situation with how long these requests have held versions back."""
        now = self._ticks()
        spent = [int(1000 * (now - self._seen.get(request.id, now))) for request in requests]
        # One that cannot go on must not end the wait for those that came since.
        forgetting = max((one for one in spent if one < LONGEST_HOLD_MS), default=None)
        since = now if self._since is None else self._since
        return replace(situation, forgetting_ms=forgetting, holding_ms=int(1000 * (now - since)))

    def _of_positions(self, positions: Mapping[int, Meta], requested: str | None, failed: str | None) -> Situation:
        last, base = last_version(self.newest()[1]), self.base()
        lost = None if last is None else self._lost(last, base)
        documents = sum(meta.documents for meta in positions.values())
        known = Situation(documents, failed=failed, requested=requested, lost=lost, unsent=self.unsent())
        periods = self._mode.most_versions is not None
        known = replace(known, periods=periods, base_only=self._mode.base_only)
        if last is None:
            return known
        behind = _behind(positions, last)
        if base is None or behind is not None:
            return replace(known, behind=behind)
        left = self.left(base, positions)
        received = [forget.received_ms for _, forget in unserved(self._reader, positions, last.cut)]
        # Within a period nothing is spent with a version, and an update starts from no base model.
        spent = 0.0 if periods else self.spent(base.version, self._mode.scale)
        return replace(
            known,
            base_documents=base.documents,
            model_documents=last.m,
            forget_set=base.documents - left.documents,
            published_forget_set=last.forgotten,
            unserved=len(received),
            oldest_unserved_ms=min(received, default=None),
            new_documents=accepted(positions) - last.counted,
            capacity=math.inf if periods else base.capacity,
            next_epsilon=spent,
        )

    def newest(self) -> tuple[int, dict[str, Any]]:
        """Return number and record of the newest version in Redis, 0 and {} before the first."""
        return next(iter(self._state.releases(1)), (0, {}))

    def base(self) -> Base | None:
        """Return the base model, None before the first."""
        stored = self._state.base_head()
        return None if stored is None else Base.parse(stored)

    def left(self, base: Base, positions: Mapping[int, Meta]) -> RemainingBase:
        """Return the documents of a base model that are left at some positions, or a moment before."""
        return self._base_documents.left(base.version, base.start, positions)

    def spent(self, base: int, scale: float, slack: float = 0.0) -> float:
        """Return the cumulative epsilon of all versions of a base model and of one more.

        base: the version that it was published as.
        scale, slack: of one more.
        """
        noise = [(record["scale"], record["slack"]) for record in self._own(base)]
        return Composition.of([*noise, (scale, slack)]).epsilon(self._settings.delta)

    def _own(self, base: int) -> list[dict[str, Any]]:
        """Return the records of the versions of a base model."""
        records = self._state.releases_among([(base, NEWEST)])
        return [record for _, record in records if record["base"] == base]

    def unsent(self) -> tuple[int, ...]:
        """Return the newest version if its bytes were lost before they were sent, unless it is withdrawn."""
        version, record = self.newest()
        return (version,) if record.get("unsent") and version not in self._state.withdrawn() else ()

    def now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._clock() * 1000)

    def _lost(self, last: Envelope, base: Base | None) -> str | None:
        """Return why no update can start from the base model in Redis, None if one can."""
        if base is None or base.version != last.base:
            held = "no base model" if base is None else f"the base model of version {base.version}"
            return f"Redis was set back: it holds {held}, the newest version is of {last.base}"
        # Another mode does not keep what an update starts from.
        if base.guarantee != self._mode.guarantee:
            return f"the base model was not learned in {self._mode.guarantee} mode"
        most = self._mode.most_versions
        if most is not None and len(self._own(base.version)) >= most:
            return f"the budget is spent: all {most} versions of the period are published"
        return base.changed_rules(self._mode.rules)


def _behind(positions: Mapping[int, Meta], last: Envelope) -> str | None:
    """Return why counts are older than the newest version, as after Redis was set back; None if they are not."""
    late = []
    for partition, meta in sorted(positions.items()):
        reflected = last.cut.get(partition, 0)
        if meta.next_offset < reflected:
            late.append(f"{partition} up to {reflected}")
    if not late:
        return None
    places = ", ".join(late)
    return f"version {last.version} reflects more than is counted now: waiting for ingest to reach partition {places}"
