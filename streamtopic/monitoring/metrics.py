"""Every metric that a process of the service shows: one typed catalogue. `service/watching.py` keeps the values.

A label is the number of a partition, or a code that is in this program's source: callers pass no text of a record,
a setting or an error on, so no id and no word reaches a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CATALOGUE", "PREFIX", "ROOMS", "Family"]

PREFIX = "streamtopic_"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family.

    name: with the prefix, and with the unit at its end.
    kind: counters only grow while a process runs; gauges are absent until they are known.
    help: what it measures, for an operator.
    labels: their names.
    buckets: upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(f"{PREFIX}{name}", "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(f"{PREFIX}{name}", "gauge", text, labels)


def _seconds(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Family:
    return Family(f"{PREFIX}{name}", "histogram", text, labels, buckets)


_COMMIT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STAGE = (1.0, 10.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)

BUILD = _gauge("build_info", "Always 1; the labels say which program runs, in which role.", "role", "version", "python")
LIVE = _gauge("live", "1 while `/livez` is green, 0 once a loop or a partition has made no progress for too long.")
BUSY = _gauge(
    "busy",
    "1 while `/livez` is exempt: partitions are recovered (`recovering`), or a model is made (`learning`).",
    "what",
)
INTERRUPTIONS = _counter(
    "interruptions_total",
    "Interruptions by reason: a server did not answer (`unreachable`) or refused (`refused`), so that the work was "
    "begun again; another process took over a partition unnoticed, as while this one was stopped (`taken_over`); a "
    "position went back, since Redis was restored or lost its end (`set_back`); a look at Redis or the log failed, so "
    "that gauges are old (`look_failed`).",
    "reason",
)

RECORDS = _counter(
    "records_total",
    "Records counted, by outcome: `added`, `replaced`, `unchanged`, `deleted`, `not_found`, `rejected`; "
    "`deleted_by_refusal`: a rejected record removed the document of its id; `misplaced`: a rejected record lay in "
    "another partition than its key's; `forwarded`: a delete there became a request; `missed`: a tombstone was "
    "written, since the delete of a document had left the log.",
    "outcome",
)
REJECTED = _counter("rejected_total", "Records that were refused, by reason ([records](records.md)).", "reason")
LAG_RECORDS = _gauge(
    "lag_records",
    "Records of the log that are not counted yet: those that can be read (`readable`), and those that an open "
    "transaction hides (`hidden`).",
    "partition",
    "kind",
)
LAG_SECONDS = _gauge(
    "lag_seconds", "Age of the oldest record that is not counted yet, by the log's clock; 0 without one.", "partition"
)
LAST_COMMIT = _gauge("last_commit_timestamp_seconds", "When the partition's last change was committed.", "partition")
COMMIT = _seconds("commit_seconds", "Time that a flush took to be counted and committed.", buckets=_COMMIT)
WORDS = _gauge("words_ratio", "Word ids given so far, of all that a partition has; at 1 ingest stops.", "partition")
OWNED = _gauge("partitions_owned", "Partitions that this process counts.")

LEADER = _gauge("leader", "1 while this scheduler leads, 0 while it waits to lead.")
PARTITIONS = _gauge("partitions", "Partitions of the model; as many must be owned by all ingest processes together.")
DOCUMENTS = _gauge("documents", "Live documents.")
FORGET_PENDING = _gauge(
    "forget_pending",
    "Deletions on their way, by where they are: `held` and `paused` are documents or subjects that requests name; "
    "`counted` are deletions and replacements that wait for a version and their receipt; `state`, `log`, `file` and "
    "`backups` are deleted documents that have left traces there.",
    "at",
)
FORGET_OLDEST = _gauge(
    "forget_oldest_timestamp_seconds",
    "When the oldest of them was sent, by the broker's clock (`counted`), or was counted out (`state`, `log`, `file`, "
    "`backups`); absent without one.",
    "at",
)
FORGET_LIMIT = _gauge("forget_limit_seconds", "`max_forget_lag`, the longest that a deletion may wait.")
FORGET_STAGE = _seconds(
    "forget_stage_seconds",
    "How long the oldest among deletions that reach a stage together took, from the broker's time of the delete: up to "
    "`counted`, and to `receipted`.",
    "stage",
    buckets=_STAGE,
)
BUDGET = _gauge(
    "budget_used_ratio",
    "What is used up: the forget set over the deletion capacity, absent where the capacity is 0 (`capacity`); and the "
    "newest version's cumulative epsilon over `epsilon_budget` (`epsilon`).",
    "of",
)
RELEASE = _gauge("release_timestamp_seconds", "When the newest version was made.")
RELEASES = _counter("releases_total", "Versions staged, by kind: `retrain` or `unlearn`.", "kind")
SELF_CHECKS = _counter(
    "self_checks_total",
    "The service's own checks of an update, by result: `passed` or `failed`.",
    "result",
)
BLOCKED_RELEASE = _gauge(
    "release_blocked", "1 for the reason why no model can be made of the present documents; absent otherwise.", "reason"
)
OUTBOX = _gauge("outbox_pending", "Records staged for the releases topic that are not published yet.")

RECEIPTS = _counter("receipts_total", "Receipts that were issued and confirmed by the log.")
ALIVE = _gauge("alive_timestamp_seconds", "When this process last wrote into the ledger which version is the newest.")
WITNESSES = _gauge(
    "ledger_witnesses", "Witnesses who signed the newest checkpoint of the ledger; absent where none is asked."
)

ROOMS: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "Process": (BUILD, LIVE, BUSY, INTERRUPTIONS),
        "Ingest": (RECORDS, REJECTED, LAG_RECORDS, LAG_SECONDS, LAST_COMMIT, COMMIT, WORDS, OWNED),
        "Model": (LEADER, PARTITIONS, DOCUMENTS, BUDGET, RELEASE, RELEASES, SELF_CHECKS, BLOCKED_RELEASE),
        "Forgetting": (FORGET_PENDING, FORGET_OLDEST, FORGET_LIMIT, FORGET_STAGE),
        "Publishing": (OUTBOX, RECEIPTS, ALIVE, WITNESSES),
    }
)  # fmt: skip
"""The families by the part of the service that they are about."""

CATALOGUE = tuple(family for families in ROOMS.values() for family in families)
