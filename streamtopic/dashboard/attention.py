"""What a person must act on: each finding in words, with the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.console import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.dashboard.page_facts import QueuedDeletions, ServiceFacts

__all__ = ["Concern", "concerns", "of_ledger"]

_NEARLY = 0.8


@dataclass(frozen=True, slots=True)
class Concern:
    """Something to act on.

    urgent: whether a promise is broken or the work stands still; else it is a warning.
    said: what it is, in a sentence.
    remedy: what to do, with commands between backticks.
    """

    urgent: bool
    said: str
    remedy: str


def concerns(facts: ServiceFacts) -> list[Concern]:
    """Return what a person must act on, the urgent first."""
    found = [
        *_progress(facts.status),
        *_deletions(facts.queued),
        *_requests(facts.paused),
        *_checks(facts.status),
        *_budgets(facts.status),
    ]
    return sorted(found, key=lambda one: not one.urgent)


def _progress(status: Mapping[str, Any]) -> Iterator[Concern]:
    if not status["running"]:
        yield Concern(urgent=False, said="No service works on this instance.", remedy="Start it: `streamtopic run`.")
    if status["stalled_partitions"]:
        names = ", ".join(map(str, status["stalled_partitions"]))
        yield Concern(
            urgent=True,
            said=f"Records wait in partition {names}, and none was counted for a while.",
            remedy="Look whether `streamtopic ingest` runs; `streamtopic doctor` says which server is away.",
        )
    if status["hidden"]:
        yield Concern(
            urgent=not status["healthy"],
            said="Records stand behind open transactions, so nobody can read them.",
            remedy="End the transaction at its producer, or abort it with Kafka's tool `kafka-transactions`.",
        )


def _deletions(queued: QueuedDeletions) -> Iterator[Concern]:
    if queued.late:
        yield Concern(
            urgent=True,
            said=f"A deletion has waited {duration(queued.age or 0.0)}; it may wait {duration(queued.limit)}.",
            remedy="Look whether `streamtopic schedule` runs; the decision below says why no version is made.",
        )


def _requests(paused: int | None) -> Iterator[Concern]:
    if paused:
        yield Concern(
            urgent=True,
            said=f"The brake has paused requests for deletions: {paused:,}.",
            remedy="Approve or cancel them on the page of requests, or with `streamtopic deletions approve`.",
        )


def _checks(status: Mapping[str, Any]) -> Iterator[Concern]:
    checked = status["self_check"]
    if checked["passed"] is False:
        yield Concern(
            urgent=True,
            said=f"The service's own check did not bear out version {checked['version']}.",
            remedy="Run `streamtopic verify`; the version was not published.",
        )
    yield from of_ledger(status["ledger"])
    for remark in status["remarks"]:
        yield Concern(urgent=False, said=remark, remedy="`streamtopic status` shows it too.")


def of_ledger(ledger: Mapping[str, Any]) -> Iterator[Concern]:
    """Yield what a person must act on for the sake of the ledger. ledger: as `status` shows it."""
    if ledger["unread"]:
        yield Concern(urgent=False, said="The ledger cannot be read here.", remedy=ledger["unread"])
        return
    if ledger["gaps"]:
        yield Concern(
            urgent=True,
            said=f"The topic of the ledger has lost entries: {ledger['gaps']:,}.",
            remedy="Restore the topic from a copy; `streamtopic verify` says which entries are missing.",
        )
    due = None if ledger["alive"] is None else ledger["alive"]["due"]
    if due is not None and due < 0:
        yield Concern(
            urgent=False,
            said=f"The ledger's word on the newest version is {duration(-due)} late.",
            remedy="Look whether `streamtopic schedule` runs; subscribers notice it too.",
        )


def _budgets(status: Mapping[str, Any]) -> Iterator[Concern]:
    spent = status["cumulative_epsilon"]
    budget = status["epsilon_budget"]
    if spent is None or spent > _NEARLY * budget:
        yield Concern(
            urgent=False,
            said="Most of the budget of ε is spent since the base model.",
            remedy="Nothing to do: the release that would exceed it is a retrain, which takes longer.",
        )
    capacity = status["capacity"]
    if capacity and status["forget_set"] > _NEARLY * capacity:
        yield Concern(
            urgent=False,
            said="Most of the deletion capacity of the base model is used.",
            remedy="Nothing to do: beyond it deletions make a retrain. `streamtopic capacity` shows the rule.",
        )
