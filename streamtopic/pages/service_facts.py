"""The state of a service, as its pages show it, and what a person must act on: each finding in words, with the remedy.

No fact holds a document's id or text, or names a person. An empty list of findings is a promise: what should run does
run, records are counted, deletions are in time, and the service's own checks passed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.console import duration
from streamtopic.errors import SettingsError
from streamtopic.service.ingest.rejections import RefusedRecords
from streamtopic.service.publish.publisher import ALIVE_EVERY
from streamtopic.state.deletion_requests import RequestState
from streamtopic.state.model_state import leader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamtopic.service.app import Service
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.deletions import Forget


__all__ = [
    "Concern",
    "QueuedDeletions",
    "RequestsShown",
    "ServiceFacts",
    "concerns",
    "read_refused",
    "read_service",
]

_SHOWN = 20
_SHOWN_OPEN = 100
# Anybody who may send documents can fill the topic of refused records.
MOST_REFUSED = 5000


@dataclass(frozen=True, slots=True)
class QueuedDeletions:
    """Deletions that are counted out and wait for their receipt.

    number: how many there are, replaced documents included.
    limit: seconds that one may wait for a version without it (`max_forget_lag`).
    now: seconds since 1970.
    oldest: the oldest of them as (partition, entry), oldest first.
    """

    number: int
    limit: float
    now: float
    oldest: tuple[tuple[int, Forget], ...]

    @property
    def age(self) -> float | None:
        """Seconds since the oldest was received, None without one."""
        return self.age_of(self.oldest[0][1]) if self.oldest else None

    @property
    def late(self) -> bool:
        """Whether the oldest has waited longer than it may."""
        return self.age is not None and self.age > self.limit

    def age_of(self, forget: Forget) -> float:
        """Return the seconds since a deletion was received."""
        # The clock of the machine that sent it may be ahead.
        return max(self.now - forget.received_ms / 1000, 0.0)


@dataclass(frozen=True, slots=True)
class RequestsShown:
    """The requests for deletions, without what they name.

    number: how many have not ended.
    paused: how many the brake has paused.
    open: those that have not ended, the paused first, then the oldest first; as many as are shown.
    ended: the last to end, newest first.
    """

    number: int
    paused: int
    open: Sequence[DeletionRequest]
    ended: Sequence[DeletionRequest]


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The state of a service.

    status: as `streamtopic status` shows it.
    queued: the deletions that wait.
    requests: requests for deletions.
    versions: oldest first.
    leading: whether a scheduler leads.
    counting: whether somebody counts the partitions; None if that cannot be seen.
    entry_every: seconds within which the ledger gets a new entry.
    """

    status: Mapping[str, Any]
    queued: QueuedDeletions
    requests: RequestsShown
    versions: Sequence[Mapping[str, Any]]
    leading: bool
    counting: bool | None
    entry_every: float


def read_service(service: Service) -> ServiceFacts:
    """Return the state of a service. Raises StateMissing before all partitions are counted."""
    settings = service.settings
    if service.layout is not None:
        # A folder belongs to one process: this one, or one that does all the work.
        leading = not service.leads
        counting: bool | None = leading
    else:
        leading = leader(service.connection, settings.model) is not None
        counting = _counting(service)
    return ServiceFacts(
        status=service.status(),
        queued=_queued(service),
        requests=_requests(service),
        versions=service.versions(),
        leading=leading,
        counting=counting,
        entry_every=ALIVE_EVERY,
    )


def _counting(service: Service) -> bool | None:
    try:
        return bool(service.log.members(service.settings.consumer_group))
    except SettingsError:
        # A user of Kafka without this right still reads everything else.
        return None


def _queued(service: Service) -> QueuedDeletions:
    number = 0
    entries: list[tuple[int, Forget]] = []
    for partition in service.reader.positions():
        stream = service.reader.forgets(partition)
        number += len(stream)
        entries += [(partition, forget) for forget in stream.read(0, _SHOWN)]
    entries.sort(key=lambda entry: entry[1].received_ms)
    return QueuedDeletions(number, service.settings.max_forget_lag, service.clock(), tuple(entries[:_SHOWN]))


def _requests(service: Service) -> RequestsShown:
    still, over = service.door.requests.open(), service.door.requests.ended()
    states = Counter(request.state for request in still)
    # A stable order: requests of the same kind stay oldest first.
    still.sort(key=lambda request: request.state is not RequestState.PAUSED)
    over.sort(key=lambda request: -request.changed_ms)
    return RequestsShown(len(still), states[RequestState.PAUSED], still[:_SHOWN_OPEN], over[:_SHOWN])


def read_refused(service: Service) -> RefusedRecords:
    """Return the refused records by reason."""
    return RefusedRecords.read(service.log, service.names, _SHOWN, MOST_REFUSED)


# Seconds: an entry takes its way, and clocks differ.
_GRACE = 60.0


@dataclass(frozen=True, slots=True)
class Concern:
    """Something to act on.

    said: what it is, in a sentence.
    remedy: what to do, with commands between backticks.
    urgent: whether a promise is broken or the work has stopped; else it is a warning.
    """

    said: str
    remedy: str
    urgent: bool = False


def _urgent(said: str, remedy: str) -> Concern:
    return Concern(said, remedy, urgent=True)


def concerns(facts: ServiceFacts) -> list[Concern]:
    """Return what a person must act on, the urgent first."""
    found = [*_parts(facts), *_progress(facts), *_checks(facts.status), *_ledger(facts)]
    return sorted(found, key=lambda one: not one.urgent)


def _parts(facts: ServiceFacts) -> Iterator[Concern]:
    """Yield what does not run although it should."""
    if not facts.leading:
        yield _urgent("No scheduler leads: no version is made, and no receipt.", "Start `streamtopic schedule`.")
    if facts.counting is False:
        yield _urgent("Nobody counts the partitions: no record takes effect.", "Start `streamtopic ingest`.")
    elif facts.counting is None:
        yield Concern(
            "Whether somebody counts the partitions cannot be seen here.",
            "Give this user of Kafka the right to describe the consumer group: `deploy/kafka-acls.sh`.",
        )


def _progress(facts: ServiceFacts) -> Iterator[Concern]:
    status, queued = facts.status, facts.queued
    if status["stalled_partitions"]:
        names = ", ".join(map(str, status["stalled_partitions"]))
        yield _urgent(
            f"Records wait in partition {names}, and none was counted for a while.",
            "Look whether `streamtopic ingest` runs; `streamtopic doctor` says which server is away.",
        )
    if status["hidden"]:
        yield Concern(
            "Records wait for the end of open transactions, so nobody can read them.",
            "End the transaction at its producer, or abort it with Kafka's tool `kafka-transactions`.",
            urgent=not status["healthy"],
        )
    if queued.late:
        yield _urgent(
            f"A deletion has waited {duration(queued.age or 0.0)}; it may wait {duration(queued.limit)}.",
            "Look whether `streamtopic schedule` runs; the last decision says why no version is made.",
        )
    if facts.requests.paused:
        yield _urgent(
            f"The brake has paused requests for deletions: {facts.requests.paused:,}.",
            "Decide about them: `streamtopic deletions approve` or `streamtopic deletions cancel`.",
        )


def _checks(status: Mapping[str, Any]) -> Iterator[Concern]:
    checked = status["self_check"]
    if checked["passed"] is False:
        yield _urgent(
            f"The service's own check did not bear out version {checked['version']}.",
            "Run `streamtopic verify`; the version was not published.",
        )
    for remark in status["remarks"]:
        yield Concern(remark, "`streamtopic status` shows it too.")


def _ledger(facts: ServiceFacts) -> Iterator[Concern]:
    ledger = facts.status["ledger"]
    if ledger["unread"]:
        yield Concern("The ledger cannot be read here.", ledger["unread"])
        return
    if ledger["gaps"]:
        yield _urgent(
            f"The topic of the ledger has lost entries: {ledger['gaps']:,}.",
            "Restore the topic from a copy; `streamtopic verify` says which entries are missing.",
        )
    alive = ledger["alive"]
    if alive is None:
        late = facts.entry_every + _GRACE if facts.versions else 0.0
    else:
        # A process that has ended promised no next entry, and another one should have written it.
        late = -alive["due"] if alive["due"] is not None else alive["age"] - facts.entry_every
    if late > _GRACE:
        yield _urgent(
            f"The ledger's next word on the newest version is {duration(late)} late.",
            "Look whether `streamtopic schedule` runs; subscribers notice it too.",
        )
