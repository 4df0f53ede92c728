"""What is known of a running model: each fact is read here, for everybody who judges it or shows it.

    ModelFacts      the facts of one moment
    status_fields   all of them, as `status --json` shows them
    residue_fields  the traces of deletions, as JSON
    versions_of, topics_of, heads_of, receipt_fields   versions, what they hold, and receipts, as JSON
    show_gauges     those that a monitoring system sees

`doctor` judges them.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamtopic.errors import SettingsError, StateMismatch, StateMissing
from streamtopic.monitoring import metrics as catalogue
from streamtopic.service.assembly import reader_of
from streamtopic.service.log_history import departures, hidden
from streamtopic.service.schedule.decide import accepted, last_version, suspects
from streamtopic.service.watching import STALLED_AFTER
from streamtopic.signed.signing_keys import read_note
from streamtopic.state import MAX_WORD_IDS, Reader, Suppressed
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import ResidueState
from streamtopic.state.model_state import leader
from streamtopic.state.reader import remaining_noted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamtopic.service.log_history import Departure, Hidden
    from streamtopic.service.opened import Opened
    from streamtopic.service.watching import Gauge, Watch
    from streamtopic.signed import Ledger, Receipt, Release
    from streamtopic.state import Base, ModelState, PartitionPosition
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.deletions import Forget, Residue

__all__ = [
    "Counted",
    "ModelFacts",
    "WaitingDeletions",
    "cosigned",
    "finite",
    "heads_of",
    "receipt_fields",
    "residue_fields",
    "show_gauges",
    "status_fields",
    "topics_of",
    "versions_of",
]

_SHOWN = 20
_RECORD: dict[str, Any] = {"cumulative_epsilon": 0.0, "guarantee": None, "ratio": None, "covered": None, "unfitted": {}}
"""Fields of the newest version's record that the status shows, each with its value before the first version."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How far a partition of the documents topic is counted.

    partition: its number.
    meta: what is counted of it.
    lag: number of records that can be read and are not counted yet.
    waits_ms: when the first of them was appended, milliseconds since 1970 by the log's clock; None without one, and for
        a user who may not read it.
    still: seconds for which records have waited, and none was counted; 0 without one.
    """

    partition: int
    meta: PartitionPosition
    lag: int
    waits_ms: int | None
    still: float

    @property
    def stalled(self) -> bool:
        """Whether the work stands still: a lag alone only says that there is work."""
        return self.still > STALLED_AFTER


@dataclass(frozen=True, slots=True)
class WaitingDeletions:
    """Deletions that are counted out and wait for their receipt.

    number: how many there are, replaced documents included.
    limit: seconds that one may wait for a version without it (`max_forget_lag`).
    now: seconds since 1970.
    oldest: the oldest of them as (partition, entry), oldest first.
    """

    number: int
    limit: float
    now: float
    oldest: Sequence[tuple[int, Forget]]

    @property
    def age(self) -> float:
        """Seconds since the oldest was received, 0 without one."""
        return self.age_of(self.oldest[0][1]) if self.oldest else 0.0

    @property
    def late(self) -> bool:
        """Whether the oldest has waited longer than it may."""
        return self.age > self.limit

    def age_of(self, forget: Forget) -> float:
        """Return the seconds since a deletion was received."""
        # The clock of the machine that sent it may be ahead.
        return max(self.now - forget.received_ms / 1000, 0.0)


class ModelFacts:
    """What is known of a model at one moment. Each fact is read when it is first asked for, and kept.

    service: whose model it is.
    state: the model's keys, for a thread with a connection of its own and for a look that must write nothing. Without
        it, a new instance in a folder gets its state here (`reader_of`).
    served: whether the parts should run in any case, as for a server that stays.

    All raise ComponentUnreachable; what needs positions raises StateMissing before all partitions are counted.
    """

    def __init__(self, service: Opened, state: ModelState | None = None, *, served: bool = False) -> None:
        self._service = service
        self.settings = service.settings
        self.log = service.log
        self.state = service.state if state is None else state
        self.now = service.clock()
        # Commands on an instance in a folder do the work themselves.
        self.at_rest = service.leads and not served
        self.topic = service.names.documents
        self.reader = (
            reader_of(service) if state is None else Reader(state.connection, state.model, state.settings.partitions)
        )

    @cached_property
    def leader(self) -> str | None:
        """Who leads; None if no scheduler does."""
        if self.settings.dir is not None:
            return None if self._service.leads else "the process that runs the instance"
        return leader(self.state.connection, self.state.model)

    @cached_property
    def counting(self) -> bool | None:
        """Whether somebody counts the partitions; None if that cannot be seen."""
        if self.settings.dir is not None:
            return not self._service.leads
        try:
            return bool(self.log.members(self.settings.consumer_group))
        except SettingsError:
            # A user of Kafka without this right still reads everything else.
            return None

    @cached_property
    def positions(self) -> Mapping[int, PartitionPosition]:
        """What is counted of each partition."""
        return self.reader.positions()

    @cached_property
    def documents(self) -> int:
        """Number of live documents."""
        return sum(meta.documents for meta in self.positions.values())

    @cached_property
    def partitions(self) -> list[Counted]:
        """How far each partition is counted."""
        return [self.counted(partition, meta) for partition, meta in self.positions.items()]

    def counted(self, partition: int, meta: PartitionPosition) -> Counted:
        """Return how far a partition is counted. meta: what is counted of it."""
        # Below 0 in a log that was cut, which is among the departures.
        lag = max(self.log.end(self.topic, partition) - meta.next_offset, 0)
        if not lag:
            return Counted(partition, meta, 0, None, 0.0)
        waits_ms = None
        # A user who may not read documents, as that of `serve`, goes by the last commit.
        with suppress(SettingsError):
            waits_ms = self.log.appended_ms(self.topic, partition, meta.next_offset)
        # After a quiet hour the last commit is old, and nothing is wrong.
        since_ms = max(meta.moved_ms, waits_ms or 0)
        return Counted(partition, meta, lag, waits_ms, self.now - since_ms / 1000)

    @cached_property
    def departures(self) -> list[Departure]:
        """The ways in which the log is not the one that was counted."""
        return departures(self.log, self.topic, self.settings.partitions, self.positions)

    @cached_property
    def hidden(self) -> list[Hidden]:
        """Records that cannot be read before a transaction ends."""
        return hidden(self.log, self.topic, self.positions)

    @property
    def overdue(self) -> list[Hidden]:
        """Those that a transaction has hidden for too long: only one that never ends is a fault."""
        return [one for one in self.hidden if self.now - one.since_ms / 1000 > STALLED_AFTER]

    @cached_property
    def waiting(self) -> WaitingDeletions:
        """The deletions that wait for their receipt."""
        number = 0
        oldest: list[tuple[int, Forget]] = []
        for partition in self.positions:
            forgets = self.reader.forgets(partition)
            number += len(forgets)
            oldest += [(partition, forget) for forget in forgets.read(0, _SHOWN)]
        oldest.sort(key=lambda entry: entry[1].received_ms)
        return WaitingDeletions(number, self.settings.max_forget_lag, self.now, oldest[:_SHOWN])

    @cached_property
    def requests(self) -> list[DeletionRequest]:
        """Requests for deletions that have not ended, oldest first."""
        return DeletionRequests(self.state.connection, self.state.model).open()

    def requested(self, kind: RequestState) -> list[DeletionRequest]:
        """Return the requests of a state."""
        return [request for request in self.requests if request.state is kind]

    @cached_property
    def residue(self) -> Residue:
        """The traces that are left of deletions."""
        return ResidueState(self.state.connection, self.state.model).read()

    @cached_property
    def newest(self) -> tuple[int, Mapping[str, Any]]:
        """Number and record of the newest version, 0 and nothing before the first."""
        return next(iter(self.state.releases(1)), (0, {}))

    @cached_property
    def base(self) -> Base | None:
        """The base model, None before the first."""
        return self.state.base_head()

    @property
    def capacity(self) -> int | None:
        """Number of deletions that the base model bears; None without one, and in private mode, which has no limit."""
        return None if self.base is None or self.base.guarantee == "private" else self.base.capacity

    @cached_property
    def forget_set(self) -> int:
        """Documents of the base model that were deleted since, as the leader noted it last."""
        if self.base is None:
            return 0
        left = remaining_noted(self.state.connection, self.state.model, self.base.version, self.base.start)
        return self.base.documents - left.documents

    @cached_property
    def ledger(self) -> Ledger | SettingsError | StateMismatch:
        """The ledger as far as it is written; the error if no key is here to verify it with, or if it was cut."""
        try:
            writer = self._service.ledger
            writer.catch_up()
        except (SettingsError, StateMismatch) as error:
            return error
        return writer.ledger


def status_fields(facts: ModelFacts, remarks: Sequence[str]) -> dict[str, Any]:
    """Return the fields that `status --json` shows.

    remarks: on everything that is not as it should be.

    The fields that do not explain themselves:

    running, counting: whether a scheduler leads, and whether somebody counts; None if that cannot be seen.
    lag: number of records that are not counted yet.
    words: number of words of live documents, by partition.
    hidden: records that cannot be read before a transaction ends.
    new_documents: number of documents that came since the newest version.
    suppressed: number of ids and subjects that are suppressed.
    guarantee, ratio, covered, unfitted: of the newest version. ratio: of the noise to the model. unfitted: for each
        task without a head, the reason.
    decided: time of the last decision, milliseconds since 1970.
    healthy: whether every record that can be read is counted in time.

    Raises StateMissing before all partitions are counted, ComponentUnreachable.
    """
    decision, decided = facts.state.decision() or ("no scheduler has decided yet", None)
    version, record = facts.newest
    last, base, capacity, metas = last_version(record), facts.base, facts.capacity, facts.positions
    stalled = [one.partition for one in facts.partitions if one.stalled]
    outcomes = Counter[str]()
    for meta in metas.values():
        outcomes.update(meta.totals)
    kept = Suppressed(facts.state.connection, facts.state.model).records()
    return {
        "model": facts.state.model,
        "documents": facts.documents,
        "version": version or None,
        "base_documents": None if base is None else base.documents,
        "forget_set": facts.forget_set,
        "capacity": capacity,
        "capacity_rule": None if base is None or capacity is None else base.capacity_rule,
        "new_documents": 0 if last is None else accepted(metas) - last.counted,
        "epsilon_budget": facts.settings.budget,
        **finite({name: record.get(name, before) for name, before in _RECORD.items()}),
        "self_check": _self_check(facts),
        "decision": decision,
        "decided": decided,
        "words": {partition: meta.words for partition, meta in metas.items()},
        "lag": sum(one.lag for one in facts.partitions),
        "suppressed": sum(value.startswith(b"suppress") for value in kept.values()),
        "hidden": [{"partition": one.partition, "records": one.records, "since": one.since} for one in facts.hidden],
        "stalled_partitions": stalled,
        "receipts_waiting": facts.waiting.number,
        "outbox": facts.state.waiting(),
        "outcomes": dict(outcomes),
        "ledger": _ledger(facts),
        "residue": residue_fields(facts.residue),
        "running": facts.leader is not None,
        "counting": facts.counting,
        "remarks": remarks,
        "healthy": not stalled and not facts.overdue and not facts.departures,
    }


def _self_check(facts: ModelFacts) -> dict[str, Any]:
    """Return the last of the service's own checks.

    interval: seconds from one check to the next, None if updates are not checked.
    at: time of the last check, milliseconds since 1970.
    seconds: how long it took.
    unchecked: number of versions carried over in memory since the last version that was learned cold or checked.
    """
    last, interval = facts.state.checked() or {}, facts.settings.self_check
    return {
        "interval": None if interval == "off" else interval,
        **{name: last.get(name) for name in ("version", "passed", "detail", "at", "seconds")},
        "unchecked": len(suspects(facts.state)),
    }


def _ledger(facts: ModelFacts) -> dict[str, Any]:
    """Return the state of the ledger.

    size: number of entries.
    gaps: number of entries that its topic has lost.
    strays: number of records that are not part of it.
    witnesses: number of others who signed the newest checkpoint.
    alive: the last word on the versions, None before the first: when it was made in milliseconds since 1970, the
        seconds until the promised next one (below 0 if it is late, None if none is promised), the newest version, and
        how many are withdrawn.
    unread: why it cannot be read here; then all else is None.
    """
    ledger, nothing = facts.ledger, dict.fromkeys(("size", "gaps", "strays", "witnesses", "alive", "unread"))
    if isinstance(ledger, Exception):
        return nothing | {"unread": str(ledger)}
    said = None
    if (alive := ledger.alive) is not None:
        due = round((alive.made + alive.interval) / 1000 - facts.now, 3) if alive.interval else None
        said = {"made": alive.made, "due": due, "newest": alive.newest, "withdrawn": len(alive.withdrawn)}
    return nothing | {
        "size": ledger.size,
        "gaps": len(ledger.gaps),
        "strays": ledger.strays,
        "witnesses": cosigned(ledger.checkpoint),
        "alive": said,
    }


def cosigned(checkpoint: str) -> int:
    """Return how many others signed a checkpoint of the ledger; "" is none."""
    return len(read_note(checkpoint).signatures) - 1 if checkpoint else 0


def residue_fields(residue: Residue) -> dict[str, Any]:
    """Return the traces that are left of deletions, as `status --json` and `deletions residue --json` show them."""
    waiting = residue.waiting().items()
    return {
        "waiting": {stage.value: {"documents": one.documents, "since": one.since_ms} for stage, one in waiting},
        "attested": {stage.value: time_ms for stage, time_ms in residue.attested.items()},
        "file_forbidden": residue.forbidden,
        "looked": residue.looked or None,
        "completed": {str(partition): offset for partition, offset in residue.completed.items()},
    }


def show_gauges(facts: ModelFacts, watch: Watch) -> None:
    """Give a process the gauges of what Redis and the log know now.

    Raises StreamtopicError if a server does not answer, or refuses.
    """
    owned = {partition: ingest.state.meta for partition, ingest in watch.owned.items()}
    # An ingest process may not read the model.
    reads = watch.role != "ingest"
    if not reads and not owned:
        return
    gauges = list(_of_partitions(facts, owned))
    if reads:
        gauges += [
            (catalogue.PARTITIONS, (), facts.settings.partitions),
            (catalogue.FORGET_LIMIT, (), facts.settings.max_forget_lag),
            (catalogue.OUTBOX, (), facts.state.waiting()),
        ]
        # Before every partition was counted for the first time there is nothing else to show.
        with suppress(StateMissing):
            gauges += [*_of_deletions(facts), *_of_model(facts)]
    watch.looked = gauges


def _of_partitions(facts: ModelFacts, owned: Mapping[int, PartitionPosition]) -> Iterator[Gauge]:
    """Yield the gauges of the partitions that this process counts. owned: what is counted of each."""
    covered = {one.partition: one.records for one in hidden(facts.log, facts.topic, owned)}
    for partition, meta in owned.items():
        one = facts.counted(partition, meta)
        yield catalogue.LAG_RECORDS, (partition, "readable"), one.lag
        yield catalogue.LAG_RECORDS, (partition, "hidden"), covered.get(partition, 0)
        waits = 0.0 if one.waits_ms is None else max(facts.now - one.waits_ms / 1000, 0.0)
        yield catalogue.LAG_SECONDS, (partition,), waits
        if meta.moved_ms:
            yield catalogue.LAST_COMMIT, (partition,), meta.moved_ms / 1000
        yield catalogue.WORDS, (partition,), meta.next_word / MAX_WORD_IDS


def _of_deletions(facts: ModelFacts) -> Iterator[Gauge]:
    """Yield the gauges of deletions on their way."""
    for at, kind in (("held", RequestState.WAITING), ("paused", RequestState.PAUSED)):
        yield catalogue.FORGET_PENDING, (at,), sum(request.known for request in facts.requested(kind))
    oldest = facts.waiting.oldest
    pending = {"counted": (facts.waiting.number, oldest[0][1].received_ms if oldest else None)}
    pending |= {stage.value: (one.documents, one.since_ms) for stage, one in facts.residue.waiting().items()}
    for at, (number, since_ms) in pending.items():
        yield catalogue.FORGET_PENDING, (at,), number
        if since_ms is not None:
            yield catalogue.FORGET_OLDEST, (at,), since_ms / 1000


def _of_model(facts: ModelFacts) -> Iterator[Gauge]:
    """Yield the gauges of documents and the newest version."""
    yield catalogue.DOCUMENTS, (), facts.documents
    _, record = facts.newest
    if record:
        yield catalogue.RELEASE, (), record["created"] / 1000
        # In private mode a budget is spent whole and periods add up, so no share of it means trouble.
        if facts.settings.guarantee != "private":
            epsilon = math.inf if record["cumulative_epsilon"] is None else record["cumulative_epsilon"]
            yield catalogue.BUDGET, ("epsilon",), epsilon / facts.settings.budget
    if facts.capacity:
        yield catalogue.BUDGET, ("capacity",), facts.forget_set / facts.capacity


_VERSION_FIELDS = (
    "epsilon",
    "delta",
    "sigma",
    "guarantee",
    "ratio",
    "covered",
    "certificate",
    "reason",
    "base",
    "capacity",
    "cumulative_epsilon",
    "created",
    "forgotten",
)
"""Fields of a version's record in Redis that `versions --json` shows under their own names."""


def versions_of(state: ModelState, count: int | None = None) -> list[dict[str, Any]]:
    """Return the newest `count` versions in Redis as `versions --json` shows them, oldest first; None: all."""
    releases = state.releases(count)
    withdrawn = state.withdrawn(releases)
    found = []
    for version, record in releases:
        fields = {name: record[name] for name in _VERSION_FIELDS}
        fields |= {"version": version, "withdrawn": version in withdrawn, "documents": record["m"]}
        fields["kind"] = record["made_by"]
        fields["seconds"] = round(record.get("seconds", 0.0), 4)
        # Only a service with tasks records heads.
        fields |= {name: dict(record.get(name, {})) for name in ("heads", "unfitted")}
        found.append(finite(fields))
    return found


def topics_of(release: Release, top: int) -> list[dict[str, Any]]:
    """Return a release's topics as `topics --json` shows them. top: number of words of each."""
    topics = release.topics(top)
    return [{"topic": topic.topic, "share": round(topic.share, 6), "words": list(topic.words)} for topic in topics]


def heads_of(release: Release, top: int) -> dict[str, Any]:
    """Return a release's heads by task, as `topics --json` shows them. top: number of words for each class."""
    found = {}
    for task in release.heads:
        head = release.head(task)
        topics = list(head.topics)
        classes = release.class_words(task, top)
        words = {name: list(some) for name, some in classes.items()}
        found[task] = {"topics": topics, "documents": head.documents, "classes": words}
    return found


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON shows it."""
    return finite({"id": receipt.id, **asdict(receipt)})


def finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with None for infinities, which JSON does not have."""
    infinite = math.inf, -math.inf
    return {name: None if value in infinite else value for name, value in fields.items()}
