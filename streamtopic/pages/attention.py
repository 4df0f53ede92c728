"""What a person must act on: each finding in words, with the remedy.

An empty list is a promise: what should run does run, records are counted, deletions are in time, and the service's own
checks passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.console import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.pages.service_facts import ServiceFacts

__all__ = ["Concern", "concerns"]

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
