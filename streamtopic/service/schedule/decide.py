"""Decide the scheduler's next action: read the situation of a model from Redis, then apply the rules to it.

decide            the next action: a pure function of the situation, the settings and the time
SituationReader   reads the situation, and writes nothing
accepted          facts of it, which others show as well (unreflected_deletions, suspects, last_version)
capacity_of       what a base model bears (changed_rules: why an update does not fit it)
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamtopic.console import duration
from streamtopic.privacy.accounting import Composition
from streamtopic.service.publish.ledger_writer import recorded
from streamtopic.service.schedule.modeller import Modeller
from streamtopic.settings import Settings
from streamtopic.signed import Envelope
from streamtopic.state import Base, Forget, ModelState, PartitionPosition, Reader, RemainingBase
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests
from streamtopic.state.model_state import NEWEST

__all__ = [
    "BY_HAND",
    "LONGEST_HOLD_MS",
    "Decision",
    "Retrain",
    "Situation",
    "SituationReader",
    "Unlearn",
    "Wait",
    "accepted",
    "capacity_of",
    "changed_rules",
    "decide",
    "decision_text",
    "last_version",
    "suspects",
    "unreflected_deletions",
    "wait_for_requests",
]


BY_HAND = "asked for by hand"
"""The reason of an action that an operator asked for."""

UNLEARN_AT = 0.8
"""Share of the deletion capacity from which on the forget set causes an update: before that, deletions wait for others
as long as `max_forget_lag` lets them, and the rest leaves room for those that come while the update is made."""
UPDATE_STEP = 0.1
"""Past it, the further share of the capacity that causes one more update: two more before a retrain is due."""

LONGEST_HOLD_MS = 300_000
"""The longest that a request holds a version back, so that its documents leave in one version."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that a decision depends on, besides the settings and the clock.

    documents: number of live documents.
    base_documents: documents that the base model was trained on; None before the first base model.
    model_documents: documents of the last published version.
    forget_set: documents of the base model that were deleted since.
    published_forget_set: the forget set of the last version.
    unserved: deletions that no version reflects yet.
    oldest_unserved_ms: when the oldest of these was received, milliseconds since 1970.
    new_documents: documents added since the last version.
    capacity: deletions that the base model bears, infinite if an update rests on the counts alone.
    next_epsilon: the cumulative epsilon if one more version of this base model is released.
    failed: why the last attempt on the same documents made no model; None if there was no such attempt.
    requested: the operator's request, `unlearn` or `retrain`.
    behind: why the counts are older than the last version; None if they are not.
    lost: why an update must not start from the kept base model; None if it may.
    unsent: the newest version, if its bytes were lost before they were sent.
    base_only: whether an update covers the base model's documents only.
    periods: whether each base model spends a budget again, so that only an operator begins one after the first.
    forgetting_ms: for how long a request whose deletions are not all counted has held versions back, milliseconds; None
        if there is no such request.
    holding_ms: for how long there always was one, milliseconds.
    """

    documents: int
    base_documents: int | None = None
    model_documents: int = 0
    forget_set: int = 0
    published_forget_set: int = 0
    unserved: int = 0
    oldest_unserved_ms: int | None = None
    new_documents: int = 0
    capacity: float = 0
    next_epsilon: float = 0.0
    failed: str | None = None
    requested: str | None = None
    behind: str | None = None
    lost: str | None = None
    unsent: tuple[int, ...] = ()
    base_only: bool = False
    periods: bool = False
    forgetting_ms: int | None = None
    holding_ms: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unlearn:
    """Update the base model to the documents that are live now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retrain:
    """Train a new base model from counts."""

    reason: str


Decision = Wait | Unlearn | Retrain


def decision_text(decision: Decision) -> str:
    """Write a decision with its reason."""
    return f"{type(decision).__name__.lower()}: {decision.reason}"


def decide(situation: Situation, settings: Settings, now_ms: int) -> Decision:
    """Return the next action, with its reason in words for an operator."""
    return wait_for_requests(situation, settings) or _first(situation) or _later(situation, settings, now_ms)


def wait_for_requests(situation: Situation, settings: Settings) -> Wait | None:
    """Return why a version has to wait for the rest of what a request deletes, None if it need not."""
    if situation.forgetting_ms is None or situation.requested is not None:
        return None
    # Whoever may ask may do so at any time. So neither one request nor many in a row hold a deletion back for longer
    # than `max_forget_lag`, or than one request may take.
    longest = max(int(settings.max_forget_lag * 1000), LONGEST_HOLD_MS)
    if situation.forgetting_ms >= LONGEST_HOLD_MS or situation.holding_ms >= longest:
        return None
    return Wait("the documents of a request are being deleted; they leave in one version")


def _first(situation: Situation) -> Decision | None:
    """Decide where deletions do not matter: no documents, no model yet, or a request for a new one."""
    # Counts from before the newest version would give a model of fewer documents under a newer number.
    if situation.behind is not None:
        return Wait(situation.behind)
    if situation.documents == 0 and situation.base_documents is None:
        return Wait("no documents yet")
    # The same documents would fail again; an operator may have changed a setting, so a request is tried.
    if situation.failed is not None and situation.requested is None:
        return Wait(f"no model can be made of the present documents: {situation.failed}")
    if situation.requested == "retrain":
        return Retrain(BY_HAND)
    if situation.lost is not None:
        return _anew(situation.lost, situation)
    return Retrain("no base model yet") if situation.base_documents is None else None


def _anew(reason: str, situation: Situation) -> Decision:
    """Return a retrain, or the wait for an operator who may begin one."""
    if situation.periods:
        return Wait(f"{reason}. `streamtopic unlearn --retrain` begins a period, with a budget of its own")
    return Retrain(reason)


def _later(situation: Situation, settings: Settings, now_ms: int) -> Decision:
    """Decide whether there is a cause to act, and whether an update may still stand on the base model."""
    cause = _cause(situation, settings, now_ms)
    if cause is None:
        return Wait(_quiet(situation, settings))
    if situation.forget_set > situation.capacity:
        forgotten = situation.forget_set
        capacity = situation.capacity
        return Retrain(f"the forget set of {forgotten} exceeds the deletion capacity of {capacity}")
    if situation.next_epsilon > settings.epsilon_budget:
        return Retrain(
            f"one more release would spend epsilon {situation.next_epsilon:.2f} of {settings.epsilon_budget:g} "
            "on this base"
        )
    # New documents need a retrain then, and a retrain serves the deletions as well.
    if situation.base_only and _grown(situation, settings):
        return Retrain(f"{cause}; an update covers the base model's documents only")
    return Unlearn(cause)


def _cause(situation: Situation, settings: Settings, now_ms: int) -> str | None:
    """Return why an action is due now, or None."""
    if situation.requested == "unlearn":
        return BY_HAND
    if situation.unsent:
        return f"the bytes of version {situation.unsent[0]} were lost before they were sent: it needs a successor"
    if situation.forget_set > situation.capacity and situation.unserved:
        return "capacity exceeded"
    if situation.unserved:
        cause = _deletions(situation, settings, now_ms)
        if cause is not None:
            return cause
    if _grown(situation, settings):
        return f"{situation.new_documents} new documents since a version of {situation.model_documents}"
    return None


def _grown(situation: Situation, settings: Settings) -> bool:
    """Return whether new documents are many enough for a new version."""
    return 0 < situation.new_documents >= settings.update_after * situation.model_documents


def _deletions(situation: Situation, settings: Settings, now_ms: int) -> str | None:
    """Return why the deletions that wait cause an update now, or None."""
    near = UNLEARN_AT * situation.capacity
    # Once for a base model: the next version has published a forget set of at least `near`.
    if situation.forget_set >= near and situation.published_forget_set < near:
        return f"the forget set of {situation.forget_set} reached {UNLEARN_AT:.0%} of {situation.capacity}"
    # Near capacity each further share of it causes one update, so that single deletions do not cause one each.
    if situation.forget_set >= near and situation.unserved >= max(1.0, UPDATE_STEP * situation.capacity):
        return f"{situation.unserved} more deletions while capacity is near"
    received = now_ms if situation.oldest_unserved_ms is None else situation.oldest_unserved_ms
    waited = now_ms - received
    longest = int(settings.max_forget_lag * 1000)
    if waited < longest:
        return None
    if not longest:
        return "a deletion has come, and none has to wait"
    return f"a deletion has waited {duration(waited / 1000)}, and {duration(settings.max_forget_lag)} are the most"


def _quiet(situation: Situation, settings: Settings) -> str:
    """Return why there is nothing to do yet."""
    if situation.unserved:
        waiting = f"{situation.unserved} deletions wait, none longer than {duration(settings.max_forget_lag)}"
        bears = "" if math.isinf(situation.capacity) else f"; forget set {situation.forget_set} of {situation.capacity}"
        return waiting + bears
    if not situation.new_documents:
        return "the published version holds exactly the live documents"
    new = situation.new_documents
    documents = situation.model_documents
    return f"{new} new documents, fewer than {settings.update_after:.0%} of {documents}"


def accepted(positions: Mapping[int, PartitionPosition]) -> int:
    """Return the number of documents that were ever accepted until these positions."""
    return sum(meta.accepted for meta in positions.values())


def unreflected_deletions(
    reader: Reader, positions: Mapping[int, PartitionPosition], last: Mapping[int, int] | None
) -> list[tuple[int, Forget]]:
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
        return self._with_requests_under_way(situation, under_way)

    def splits(self, cut: Mapping[int, int]) -> Wait | None:
        """Return why a version with this cut has to wait, since it would part what a request deletes; else None.

        cut: partition to the first offset that the version does not reflect.

        Raises as `read`.
        """
        parted = [one for one in self._requests.open() if one.parted_by(cut)]
        return wait_for_requests(self._with_requests_under_way(Situation(0), parted), self._settings)

    def _with_requests_under_way(self, situation: Situation, requests: Iterable[DeletionRequest]) -> Situation:
        """Return the situation with how long these requests have held versions back."""
        now = self._ticks()
        spent = [int(1000 * (now - self._seen.get(request.id, now))) for request in requests]
        # One that cannot go on must not end the wait for those that came since.
        forgetting = max((one for one in spent if one < LONGEST_HOLD_MS), default=None)
        since = now if self._since is None else self._since
        return replace(situation, forgetting_ms=forgetting, holding_ms=int(1000 * (now - since)))

    def _of_positions(
        self, positions: Mapping[int, PartitionPosition], requested: str | None, failed: str | None
    ) -> Situation:
        last, base = last_version(self.newest()[1]), self._state.base_head()
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
        received = [forget.received_ms for _, forget in unreflected_deletions(self._reader, positions, last.cut)]
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

    def left(self, base: Base, positions: Mapping[int, PartitionPosition]) -> RemainingBase:
        """Return the documents of a base model that are left at some positions, or a moment before."""
        return self._reader.left(base.version, base.start, positions)

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
        return changed_rules(base.rules, self._mode.rules)


def changed_rules(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return why a model learned by the rules of now is not an update of the base model, None if it is.

    before, now: `Modeller.rules` of the base model and of the present settings.
    """
    differing = [name for name in before.keys() & now.keys() if before[name] != now[name]]
    changed = [f"{name} was {before[name]}, is {now[name]}" for name in sorted(differing)]
    return f"settings of the model have changed: {', '.join(changed)}" if changed else None


def _behind(positions: Mapping[int, PartitionPosition], last: Envelope) -> str | None:
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
