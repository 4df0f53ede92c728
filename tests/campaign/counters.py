"""Compares what all processes together say that they did with what the log says, while nothing is wrong.

A process that is killed takes its last numbers with it, and one whose work was set back counts it twice. So the numbers
are compared exactly over times without a fault, and from 0 on where there was none before.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from campaign.checks import TOTALS
from campaign.monitor import total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from campaign.monitor import Monitor, Series
    from campaign.observer import Observer

__all__ = ["Counters"]

# Gauges are looked up every five seconds, and a process counts what it did a moment after it has done it.
_PATIENCE = 60.0
_PAUSE = 0.5


class Counters:
    """Numbers of the processes beside those of the oracle.

    partitions: of the documents topic.
    """

    def __init__(self, monitor: Monitor, observer: Observer, partitions: int) -> None:
        self._monitor = monitor
        self._observer = observer
        self._partitions = partitions
        self._shown: Mapping[str, float] = {}
        self._true: Mapping[str, float] = {}

    def begin(self) -> None:
        """Compare the work from now on. Without this call, all work since the start is compared."""
        self._true = self._happened()
        self._shown = _counted(self._true, self._monitor.shown())

    def differences(self) -> list[str]:
        """Wait until the processes say what the log says, and return what they still say otherwise after a minute."""
        deadline = time.monotonic() + _PATIENCE
        while (findings := self._compared()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return findings

    def _compared(self) -> list[str]:
        happened, shown = self._happened(), self._monitor.shown()
        counted = _counted(happened, shown)
        findings = []
        for name in sorted(happened):
            grown = counted[name] - self._shown.get(name, 0.0)
            true = happened[name] - self._true.get(name, 0.0)
            if grown != true:
                findings.append(f"processes counted {grown:.0f} {name}, the log says {true:.0f}")
        for name, labels, want in self._standing(shown):
            have = total(shown, name, **labels)
            if have != want:
                findings.append(f"{name} is {have:.0f} of all processes together, the log says {want:.0f}")
        return findings

    def _happened(self) -> dict[str, float]:
        """Return what the log says: name of a number to its value."""
        oracle, witness = self._observer.oracle, self._observer.witness
        found: Counter[str] = Counter()
        for book in oracle.books:
            for outcome in TOTALS:
                found[f"records {outcome}"] += book.totals[outcome]
        for reason in witness.reasons.values():
            found[f"refusals {reason}"] += 1
        found["receipts"] = len(witness.receipts)
        found["versions"] = len(witness.entries)
        return dict(found)

    def _standing(self, shown: Sequence[Mapping[Series, float]]) -> list[tuple[str, dict[str, str], float]]:
        """Return what gauges must show while the service is at rest: name, labels, value."""
        documents = sum(len(book.live) for book in self._observer.oracle.books)
        schedulers = total(shown, "streamtopic_partitions") / self._partitions
        on_their_way = [("streamtopic_forget_pending", {"at": at}, 0.0) for at in ("held", "paused", "counted")]
        return [
            ("streamtopic_partitions_owned", {}, self._partitions),
            ("streamtopic_leader", {}, 1),
            ("streamtopic_lag_records", {}, 0),
            ("streamtopic_outbox_pending", {}, 0),
            # Every scheduler shows the whole model.
            ("streamtopic_documents", {}, documents * schedulers),
            *on_their_way,
        ]


def _counted(names: Iterable[str], shown: Sequence[Mapping[Series, float]]) -> dict[str, float]:
    """Return what the processes say of the numbers with these names."""
    return {name: _told(name, shown) for name in names}


def _told(name: str, shown: Sequence[Mapping[Series, float]]) -> float:
    kind, _, value = name.partition(" ")
    if kind == "records":
        return total(shown, "streamtopic_records_total", outcome=value)
    if kind == "refusals":
        return total(shown, "streamtopic_rejected_total", reason=value)
    return total(shown, "streamtopic_receipts_total" if kind == "receipts" else "streamtopic_releases_total")
