"""Every metric that a process of the service shows: one typed catalogue, and the values of one process.

CATALOGUE  all families: name, kind, labels with their values, buckets, meaning
Metrics    the values of one process, in a registry of its own

A label is a partition's number or one of the values that the catalogue lists; whatever else a caller gives is shown as
`other`. So no id and no word can reach a label, whatever a record, a setting or an error says.
"""

from __future__ import annotations

import platform
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

__all__ = ["CATALOGUE", "OTHER", "PREFIX", "ROOMS", "Family", "Metrics"]

PREFIX = "streamtopic_"
OTHER = "other"
"""Shown in place of a label's value that the catalogue does not list."""
MOST = 40
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
    forwarded           a delete in another partition than its key's, which is sent to the right one

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
    "suppression",
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
_FORGET = (1.0, 10.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0, 604_800.0)
_STAGE = (*_FORGET, 2_592_000.0)

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
    "Times that the work was given up and begun again, by reason: a server did not answer, or it refused.",
    reason=("unreachable", "refused"),
)
LOOKS_FAILED = _counter("looks_failed_total", "Looks at Redis or the log that failed, so that gauges are old.")

RECORDS = _counter("records_total", "Records counted, by outcome.", outcome=OUTCOMES)
REJECTED = _counter("rejected_total", "Records that were refused, by reason.", reason=REASONS)
LAG_RECORDS = _gauge("lag_records", "Records of the log that are not counted yet.", partition="number")
LAG_SECONDS = _gauge(
    "lag_seconds", "Age of the oldest record that is not counted yet, by the log's clock; 0 without one.", "seconds",
    partition="number",
)  # fmt: skip
HIDDEN = _gauge("hidden_records", "Records behind an open transaction, which nobody can read yet.", partition="number")
LAST_COMMIT = _gauge(
    "last_commit_timestamp_seconds", "When the partition's last change was committed, by Redis's clock.",
    "seconds since 1970", partition="number",
)  # fmt: skip
COMMIT = _seconds("commit_seconds", "Time that a flush took to be counted and committed.", _COMMIT)
WORDS = _gauge(
    "words_ratio", "Word ids given so far, of all that a partition has; at 1 ingest stops.", partition="number"
)
OWNED = _gauge("partitions_owned", "Partitions that this process counts.")
TAKEN_OVER = _counter(
    "taken_over_total", "Partitions that another process took over unnoticed, as while this one was stopped."
)
SET_BACK = _counter(
    "set_back_total", "Times that a partition's position went back: Redis was restored, or lost its end."
)
MISSED = _counter(
    "missed_deletes_total", "Documents removed because their deletes had left the log before they were read."
)

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
    "`counted` are deletions and replacements that wait for a version and their receipt.",
    at=("held", "paused", "counted"),
)  # fmt: skip
FORGET_OLDEST = _gauge(
    "forget_oldest_timestamp_seconds", "When the oldest of them was sent, by the broker's clock; absent without one.",
    "seconds since 1970",
)  # fmt: skip
FORGET_LIMIT = _gauge("forget_limit_seconds", "`max_forget_lag`, the longest that a deletion may wait.", "seconds")
RESIDUE_PENDING = _gauge("residue_pending", "Deleted documents that have not reached a stage yet.", stage=STAGES)
RESIDUE_OLDEST = _gauge(
    "residue_oldest_timestamp_seconds", "When the oldest of them was counted out; absent without one.",
    "seconds since 1970", stage=STAGES,
)  # fmt: skip
FORGET_STAGE = _seconds(
    "forget_stage_seconds",
    "How long deletions took to reach a stage: `counted` of each, from the broker's time of the delete; later "
    "stages of the oldest among those that reach it together, from when it was counted out.",
    _STAGE, stage=("counted", *STAGES),
)  # fmt: skip
CAPACITY = _gauge("capacity_used_ratio", "Forget set over deletion capacity; absent where the capacity is 0.")
EPSILON = _gauge("epsilon_spent_ratio", "Cumulative epsilon of the newest version over `epsilon_budget`.")
RELEASE = _gauge("release_timestamp_seconds", "When the newest version was made.", "seconds since 1970")
STEP = _seconds(
    "step_seconds", "Time of a step that made a version, by stage.", _STEP,
    kind=KINDS, stage=("learn", "try_deletions", "self_check", "release"),
)  # fmt: skip
RELEASES = _counter("releases_total", "Versions staged, by kind.", kind=KINDS)
WITHDRAWN = _counter("withdrawn_total", "Versions withdrawn.")
SELF_CHECKS = _counter(
    "self_checks_total", "The service's own checks of an update, by result.", result=("passed", "failed", "undecided")
)
BLOCKED_RELEASE = _gauge(
    "release_blocked", "1 for the reason why no model can be made of the present documents; absent otherwise.",
    reason=BLOCKED,
)  # fmt: skip
OUTBOX = _gauge("outbox_pending", "Records staged for the releases topic that are not published yet.")

RECEIPTS = _counter("receipts_total", "Receipts that were issued and confirmed by the log.")
FORGET = _seconds("forget_seconds", "From the broker's time of a delete to its receipt, confirmed by the log.", _FORGET)
ALIVE = _gauge(
    "alive_timestamp_seconds", "When this process last wrote into the ledger which version is the newest.",
    "seconds since 1970",
)  # fmt: skip
WITNESSES = _gauge(
    "ledger_witnesses", "Witnesses who signed the newest checkpoint of the ledger; absent where none is asked."
)

ROOMS: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "Process": (BUILD, LIVE, BUSY, INTERRUPTIONS, LOOKS_FAILED),
        "Ingest": (
            RECORDS, REJECTED, LAG_RECORDS, LAG_SECONDS, HIDDEN, LAST_COMMIT, COMMIT, WORDS, OWNED, TAKEN_OVER,
            SET_BACK, MISSED,
        ),
        "Model": (
            LEADER, PARTITIONS, DOCUMENTS, STATE_BYTES, CAPACITY, EPSILON, RELEASE, STEP, RELEASES, WITHDRAWN,
            SELF_CHECKS, BLOCKED_RELEASE,
        ),
        "Forgetting": (
            FORGET_PENDING, FORGET_OLDEST, FORGET_LIMIT, FORGET_STAGE, FORGET, RESIDUE_PENDING, RESIDUE_OLDEST,
        ),
        "Publishing": (OUTBOX, RECEIPTS, ALIVE, WITNESSES),
    }
)  # fmt: skip
"""The families by the part of the service that they are about."""

CATALOGUE = tuple(family for families in ROOMS.values() for family in families)


class _Durations:
    """A histogram's values under one set of labels: how many fell into each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: Iterable[float]) -> None:
        """Count durations; one below 0, as of clocks that differ, counts as 0."""
        for one in seconds:
            spent = max(one, 0.0)
            self.counts[bisect_left(self.bounds, spent)] += 1
            self.total += spent

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and how many durations are not above it, as Prometheus counts."""
        names = [*map(str, self.bounds), "+Inf"]
        totals = map(float, accumulate(self.counts))
        return list(zip(names, totals, strict=True))


class Metrics:
    """The values of one process. Safe with several threads; loads prometheus-client when it is made.

    role: of the process, as `build_info` shows it. version: of the program.

    Values are kept here, and prometheus-client writes them: its own counters take 20 us for each duration, and a flush
    may hold thousands of deletes.
    """

    def __init__(self, role: str, version: str) -> None:
        # Here: whoever does not watch, the library above all, does without it.
        from prometheus_client import CollectorRegistry

        self._mutex = threading.Lock()
        self._numbers: dict[str, dict[Values, float]] = {f.name: {} for f in CATALOGUE if f.kind != "histogram"}
        self._durations: dict[str, dict[Values, _Durations]] = {f.name: {} for f in CATALOGUE if f.kind == "histogram"}
        for family in CATALOGUE:
            self._begin(family)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.set(BUILD, 1, role=role, version=version, python=platform.python_version())

    def _begin(self, family: Family) -> None:
        """Show counters of listed values from 0 on: an increase from nothing would not be seen as one."""
        if family.kind == "counter":
            listed = [values for values in family.labels.values() if isinstance(values, tuple)]
            self._numbers[family.name] = dict.fromkeys(product(*listed), 0.0)
        elif family.kind == "histogram" and not family.labels:
            self._durations[family.name][()] = _Durations(family.buckets)

    def add(self, family: Family, amount: float = 1, /, **labels: object) -> None:
        """Let a counter grow."""
        shown = family.shown(labels)
        with self._mutex:
            series = self._numbers[family.name]
            series[shown] = series.get(shown, 0.0) + amount

    def observe(self, family: Family, seconds: Iterable[float], /, **labels: object) -> None:
        """Add durations to a histogram."""
        shown = family.shown(labels)
        with self._mutex:
            series = self._durations[family.name]
            durations = series.setdefault(shown, _Durations(family.buckets))
            durations.add(seconds)

    def set(self, family: Family, value: float | None, /, **labels: object) -> None:
        """Let a gauge show a value; None: nothing at all, since it is not known."""
        shown = family.shown(labels)
        with self._mutex:
            if value is None:
                self._numbers[family.name].pop(shown, None)
            else:
                self._numbers[family.name][shown] = float(value)

    def clear(self, family: Family, /) -> None:
        """Let a gauge show nothing."""
        with self._mutex:
            self._numbers[family.name].clear()

    def give_up(self, partition: int) -> None:
        """Remove every series of a partition: another process shows it from now on."""
        shown = str(partition)
        with self._mutex:
            for family in CATALOGUE:
                if "partition" in family.labels:
                    place = tuple(family.labels).index("partition")
                    series = self._numbers[family.name]
                    for values in [values for values in series if values[place] == shown]:
                        del series[values]

    def text(self) -> bytes:
        """Return all values as Prometheus reads them."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))

    def samples(self) -> dict[tuple[str, Values], float]:
        """Return the value of every series: name and labels' values, those of buckets included."""
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for metric in self._registry.collect()
            for sample in metric.samples
        }

    def collect(self) -> Iterator[Metric]:
        """Yield all families, as the registry asks its collectors."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._mutex:
            numbers = {name: sorted(series.items()) for name, series in self._numbers.items()}
            durations = {name: _histograms(series) for name, series in self._durations.items()}
        for family in CATALOGUE:
            labels = tuple(family.labels)
            if family.kind == "histogram":
                histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
                for values, buckets, total in durations[family.name]:
                    histogram.add_metric(values, buckets, total)
                yield histogram
                continue
            made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            shown = made(family.name, family.help, labels=labels)
            for values, value in numbers[family.name]:
                shown.add_metric(values, value)
            yield shown


def _histograms(series: Mapping[Values, _Durations]) -> list[tuple[Values, list[tuple[str, float]], float]]:
    """Return labels' values, buckets and sum of each series, ascending."""
    return [(values, one.buckets, one.total) for values, one in sorted(series.items())]
