"""Every metric that a process of the service shows: one typed catalogue, and the values of one process.

CATALOGUE  all families: name, kind, labels with their values, buckets, meaning
Metrics    the values of one process, in a registry of its own

A label is a partition's number or one of the values that the catalogue lists; whatever else a caller gives is shown as
`other`. So no id and no word can reach a label, whatever a record, a setting or an error says.
"""

from __future__ import annotations

import platform
import threading
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import Counter, Histogram
    from prometheus_client.core import Metric

__all__ = ["CATALOGUE", "OTHER", "PREFIX", "ROOMS", "Family", "Metrics"]

PREFIX = "streamtopic_"
OTHER = "other"
"""Shown in place of a label's value that the catalogue does not list."""
MOST = 30
"""Families at most: a catalogue that nobody can read is no help."""

Values = tuple[str, ...]
Known = Values | Literal["number", "program"]
"""What a label may show: values that are listed, the number of a partition, or a version of the program itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric family.

    name: with the prefix, and with the unit at its end.
    kind: counters only grow while a process runs; gauges are absent until they are known.
    help: what it measures, for an operator.
    unit: of the values, in words; "" for a number of things.
    labels: what each label may show, in their order.
    buckets: upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    unit: str = ""
    labels: Mapping[str, Known] = field(default_factory=lambda: MappingProxyType({}))
    buckets: tuple[float, ...] = ()

    def shown(self, labels: Mapping[str, object]) -> Values:
        """Return the values to show for these labels, in the order of the family. Raises KeyError for one too few."""
        return tuple(_shown(labels[name], values) for name, values in self.labels.items())


def _shown(value: object, known: Known) -> str:
    if known == "number":
        return str(value) if isinstance(value, int) else OTHER
    return str(value) if known == "program" or value in known else OTHER


def _counter(name: str, text: str, **labels: Values) -> Family:
    return Family(f"{PREFIX}{name}", "counter", text, labels=MappingProxyType(dict(labels)))


def _gauge(name: str, text: str, unit: str = "", **labels: Known) -> Family:
    return Family(f"{PREFIX}{name}", "gauge", text, unit, MappingProxyType(dict(labels)))


def _seconds(name: str, text: str, buckets: tuple[float, ...], **labels: Values) -> Family:
    return Family(f"{PREFIX}{name}", "histogram", text, "seconds", MappingProxyType(dict(labels)), buckets)


ROLES = ("run", "ingest", "schedule", "serve")
OUTCOMES = (
    "added",
    "replaced",
    "unchanged",
    "deleted",
    "not_found",
    "rejected",
    "deleted_by_refusal",
    "too_short",
    "forwarded",
    "misplaced",
)
"""Outcomes of a record.

    deleted_by_refusal  a rejected record that removed the document of its id
    too_short           a document, added or replaced, that has no pair of words
    misplaced           a rejected record in another partition than its key's
    forwarded           a delete in another partition than its key's, which becomes a request

The first three are counted beside the record's own outcome."""
REASONS = (
    "content",
    "count",
    "counts-length",
    "counts-type",
    "counts-words",
    "format",
    "headers",
    "key-encoding",
    "key-missing",
    "key-reserved",
    "key-size",
    "key-structured",
    "labels",
    "op",
    "partition",
    "path",
    "reader",
    "request",
    "subject",
    "subjects",
    "suppressed",
    "text-size",
    "text-type",
    "ts",
    "value-count",
    "value-size",
    "word",
)
STAGES = ("state", "log", "file", "backups")
KINDS = ("retrain", "unlearn")
BLOCKED = (
    "anchor mass",
    "anchors",
    "candidates",
    "certificate",
    "classes",
    "documents",
    "guided",
    "head constants",
    "head tolerance",
    "negative",
    "noise",
    "pairs",
    "rank",
    "release-size",
    "task topics",
    "tasks",
    "words",
)

_COMMIT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STEP = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
_STAGE = (1.0, 10.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)

BUILD = Family(
    f"{PREFIX}build_info",
    "gauge",
    "Always 1; the labels say which program runs, in which role.",
    labels=MappingProxyType({"role": ROLES, "version": "program", "python": "program"}),
)
LIVE = _gauge("live", "1 while `/livez` is green, 0 once a loop or a partition has made no progress for too long.")
BUSY = _gauge(
    "busy",
    "1 while `/livez` is exempt: partitions are recovered, a model is made, or logs are read through.",
    what=("recovering", "learning", "clearing"),
)
INTERRUPTIONS = _counter(
    "interruptions_total",
    "Interruptions by reason: a server did not answer (`unreachable`) or refused (`refused`), so that the work was "
    "begun again; another process took over a partition unnoticed, as while this one was stopped (`taken_over`); a "
    "position went back, since Redis was restored or lost its end (`set_back`); a look at Redis or the log failed, so "
    "that gauges are old (`look_failed`).",
    reason=("unreachable", "refused", "taken_over", "set_back", "look_failed"),
)

RECORDS = _counter(
    "records_total",
    "Records counted, by outcome; `missed` are documents that were removed because their deletes had left the log.",
    outcome=(*OUTCOMES, "missed"),
)
REJECTED = _counter("rejected_total", "Records that were refused, by reason.", reason=REASONS)
LAG_RECORDS = _gauge(
    "lag_records",
    "Records of the log that are not counted yet: those that can be read, and those that an open transaction hides.",
    partition="number", kind=("readable", "hidden"),
)  # fmt: skip
LAG_SECONDS = _gauge(
    "lag_seconds", "Age of the oldest record that is not counted yet, by the log's clock; 0 without one.", "seconds",
    partition="number",
)  # fmt: skip
LAST_COMMIT = _gauge(
    "last_commit_timestamp_seconds", "When the partition's last change was committed, by Redis's clock.",
    "seconds since 1970", partition="number",
)  # fmt: skip
COMMIT = _seconds("commit_seconds", "Time that a flush took to be counted and committed.", _COMMIT)
WORDS = _gauge(
    "words_ratio", "Word ids given so far, of all that a partition has; at 1 ingest stops.", partition="number"
)
OWNED = _gauge("partitions_owned", "Partitions that this process counts.")

LEADER = _gauge("leader", "1 while this scheduler leads, 0 while it stands by.")
PARTITIONS = _gauge("partitions", "Partitions of the model; as many must be owned by all ingest processes together.")
DOCUMENTS = _gauge("documents", "Live documents.")
STATE_BYTES = _gauge(
    "state_bytes", "Memory of Redis by kind of content; `redis` is all that the server uses.", "bytes",
    kind=("documents", "changes", "words", "counts", "redis"),
)  # fmt: skip
FORGET_PENDING = _gauge(
    "forget_pending",
    "Deletions on their way, by where they are: `held` and `paused` are documents or subjects that requests name; "
    "`counted` are deletions and replacements that wait for a version and their receipt; the others are deleted "
    "documents that have left traces in the state, the log, Redis's file, or backups.",
    at=("held", "paused", "counted", *STAGES),
)
FORGET_OLDEST = _gauge(
    "forget_oldest_timestamp_seconds",
    "When the oldest of them was sent, by the broker's clock (`counted`), or was counted out (traces); absent without "
    "one.", "seconds since 1970", at=("counted", *STAGES),
)  # fmt: skip
FORGET_LIMIT = _gauge("forget_limit_seconds", "`max_forget_lag`, the longest that a deletion may wait.", "seconds")
FORGET_STAGE = _seconds(
    "forget_stage_seconds",
    "How long the oldest among deletions that reach a stage together took: up to `counted`, and to `receipted`, from "
    "the broker's time of the delete; up to the end of its traces from when it was counted out.",
    _STAGE, stage=("counted", "receipted", *STAGES),
)  # fmt: skip
BUDGET = _gauge(
    "budget_used_ratio",
    "What is used up: the forget set over the deletion capacity, absent where the capacity is 0; and the newest "
    "version's cumulative epsilon over `epsilon_budget`.", of=("capacity", "epsilon"),
)  # fmt: skip
RELEASE = _gauge("release_timestamp_seconds", "When the newest version was made.", "seconds since 1970")
STEP = _seconds(
    "step_seconds", "Time of a step that made a version, by stage.", _STEP,
    kind=KINDS, stage=("learn", "try_deletions", "self_check", "release"),
)  # fmt: skip
RELEASES = _counter("releases_total", "Versions staged, by kind.", kind=KINDS)
SELF_CHECKS = _counter(
    "self_checks_total", "The service's own checks of an update, by result.", result=("passed", "failed", "undecided")
)
BLOCKED_RELEASE = _gauge(
    "release_blocked", "1 for the reason why no model can be made of the present documents; absent otherwise.",
    reason=BLOCKED,
)  # fmt: skip
OUTBOX = _gauge("outbox_pending", "Records staged for the releases topic that are not published yet.")

RECEIPTS = _counter("receipts_total", "Receipts that were issued and confirmed by the log.")
ALIVE = _gauge(
    "alive_timestamp_seconds", "When this process last wrote into the ledger which version is the newest.",
    "seconds since 1970",
)  # fmt: skip
WITNESSES = _gauge(
    "ledger_witnesses", "Witnesses who signed the newest checkpoint of the ledger; absent where none is asked."
)

ROOMS: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "Process": (BUILD, LIVE, BUSY, INTERRUPTIONS),
        "Ingest": (RECORDS, REJECTED, LAG_RECORDS, LAG_SECONDS, LAST_COMMIT, COMMIT, WORDS, OWNED),
        "Model": (
            LEADER, PARTITIONS, DOCUMENTS, STATE_BYTES, BUDGET, RELEASE, STEP, RELEASES, SELF_CHECKS, BLOCKED_RELEASE,
        ),
        "Forgetting": (FORGET_PENDING, FORGET_OLDEST, FORGET_LIMIT, FORGET_STAGE),
        "Publishing": (OUTBOX, RECEIPTS, ALIVE, WITNESSES),
    }
)  # fmt: skip
"""The families by the part of the service that they are about."""

CATALOGUE = tuple(family for families in ROOMS.values() for family in families)


class Metrics:
    """The values of one process. Safe with several threads; loads prometheus-client when it is made.

    role: of the process, as `build_info` shows it. version: of the program.
    registry: of prometheus-client, which holds the counters and histograms and asks `collect` for the gauges. A gauge
    is shown only while its value is known.
    """

    def __init__(self, role: str, version: str) -> None:
        # Here: whoever does not watch, the library above all, does without it.
        from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counters: dict[Family, Counter] = {}
        self._histograms: dict[Family, Histogram] = {}
        self._gauges: dict[Family, dict[Values, float]] = {}
        self._mutex = threading.Lock()
        for family in CATALOGUE:
            labels = tuple(family.labels)
            if family.kind == "counter":
                made = Counter(family.name, family.help, labels, registry=self.registry)
                self._counters[family] = made
                # From 0 on: an increase from nothing would not be seen as one.
                listed = [values for values in family.labels.values() if isinstance(values, tuple)]
                for shown in product(*listed) if labels else ():
                    made.labels(*shown)
            elif family.kind == "histogram":
                buckets = family.buckets
                self._histograms[family] = Histogram(
                    family.name, family.help, labels, registry=self.registry, buckets=buckets
                )
            else:
                self._gauges[family] = {}
        self.registry.register(self)
        self.show(BUILD, 1, role=role, version=version, python=platform.python_version())

    def add(self, family: Family, amount: float = 1, /, **labels: object) -> None:
        """Let a counter grow."""
        shown = family.shown(labels)
        counter = self._counters[family]
        (counter.labels(*shown) if shown else counter).inc(amount)

    def observe(self, family: Family, seconds: float, /, **labels: object) -> None:
        """Add a duration to a histogram; one below 0, as of clocks that differ, counts as 0."""
        shown = family.shown(labels)
        histogram = self._histograms[family]
        (histogram.labels(*shown) if shown else histogram).observe(max(seconds, 0.0))

    def show(self, family: Family, value: float | None, /, **labels: object) -> None:
        """Let a gauge show a value; None: nothing at all, since it is not known."""
        shown = family.shown(labels)
        with self._mutex:
            if value is None:
                self._gauges[family].pop(shown, None)
            else:
                self._gauges[family][shown] = float(value)

    def clear(self, family: Family, /) -> None:
        """Let a gauge show nothing."""
        with self._mutex:
            self._gauges[family].clear()

    def give_up(self, partition: int) -> None:
        """Remove every series of a partition, the first label: another process shows it from now on."""
        with self._mutex:
            for family, series in self._gauges.items():
                if "partition" in family.labels:
                    others = {shown: value for shown, value in series.items() if shown[0] != str(partition)}
                    self._gauges[family] = others

    def text(self) -> bytes:
        """Return all values as Prometheus reads them."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self.registry))

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as the registry asks its collectors."""
        from prometheus_client.core import GaugeMetricFamily

        with self._mutex:
            gauges = {family: dict(series) for family, series in self._gauges.items()}
        for family, series in gauges.items():
            shown = GaugeMetricFamily(family.name, family.help, labels=tuple(family.labels))
            for values, value in series.items():
                shown.add_metric(values, value)
            yield shown
