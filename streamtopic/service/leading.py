"""The work of a service. `Leader` does what one process at a time does; `Embedded` does all of it, when it is asked to.

A process of a service (processes.py) counts in a consumer group and publishes in a thread; a command on an instance in
a folder counts all partitions, and goes on until nothing more is due. Both decide, learn and clear by a `Leader`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.service.assembly import ingest_opener, modeller_of, publisher_of
from streamtopic.service.ingest.partition_ingest import Ingest, count_to_the_end
from streamtopic.service.inspection.facts import versions_of
from streamtopic.service.publish.erasure import ResidueKeeper
from streamtopic.service.requests.request_mover import Movements, RequestMover
from streamtopic.service.schedule.decide import decision_text
from streamtopic.service.schedule.scheduler import Scheduler
from streamtopic.service.sending import silent
from streamtopic.streams import FileLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamtopic.service.opened import Opened
    from streamtopic.service.publish.publisher import Publisher
    from streamtopic.service.watching import Watch
    from streamtopic.state import ModelState

__all__ = ["Embedded", "Leader", "SettleReport", "embedded", "publish"]

# A version begets another only while documents arrive; more than this many in a row would be a loop.
MOST_VERSIONS = 8


@dataclass(frozen=True, slots=True)
class SettleReport:
    """The work of one `settle`.

    ingested: number of events by outcome.
    versions: the versions that were made, as `versions --json` shows them.
    decision: the last decision, with its reason.
    receipts: number of receipts that were published.
    """

    ingested: Mapping[str, int]
    versions: list[dict[str, Any]]
    decision: str
    receipts: int


class Leader:
    """Decides and stages versions, moves requests, and clears the traces of deletions, if this process leads.

    watch: is told what was done.
    staged: called once there is a version to publish.
    """

    def __init__(self, service: Opened, watch: Watch | None = None, staged: Callable[[], None] = silent) -> None:
        settings = service.settings
        self._service = service
        self.scheduler = Scheduler(service, modeller_of(service), watch, staged)
        reader = self.scheduler.reader
        self.mover = RequestMover(service, reader)
        self.residue = ResidueKeeper(service.state, reader, service.log, settings, clock=service.clock)

    def close(self) -> None:
        """Give leadership up."""
        self.scheduler.close()

    def move_requests(self) -> Movements:
        """Move requests for deletions as far as they can go, if this process leads. May be repeated.

        Raises as RequestMover.step.
        """
        with self.scheduler.leading() as lease:
            return Movements() if lease is None else self.mover.step(lease)

    def clear_residue(self, *, whole: bool = False) -> bool:
        """Remove the traces that deletions leave, if this process leads; return whether marks have moved.

        whole: read the logs to their ends at once, if that is due.

        May be repeated. Raises as ResidueKeeper.step.
        """
        # A compaction has just erased records, so the logs are worth a look before the next one is due.
        compacted = self._compact_log()
        with self.scheduler.leading() as lease:
            return lease is not None and self.residue.step(whole=whole, again=compacted)

    def _compact_log(self) -> bool:
        """Compact a log in files if that is due, as Kafka does by itself; return whether it was done."""
        log, names, settings = self._service.log, self._service.names, self._service.settings
        if not isinstance(log, FileLog):
            return False
        return log.compact_when_due(
            (names.documents, names.requests, names.releases),
            longest_ms=max(int(settings.residue_max_age * 1000), 1),
            tombstones_ms=int(settings.delete_retention * 1000),
        )


def publish(publisher: Publisher) -> int:
    """Publish until nothing more is due; return the number of receipts. May be repeated after any error."""
    receipts = 0
    while (done := publisher.step()).did_something:
        receipts += done.receipts
    return receipts


@contextmanager
def embedded(service: Opened) -> Iterator[Embedded]:
    """Take ownership of all partitions of an instance in a folder, as long as the block runs."""
    open_ingest = ingest_opener(service)
    ingests = [open_ingest(partition) for partition in range(service.settings.partitions)]
    with closing(Leader(service)) as leader:
        publisher = publisher_of(service, service.state, service.ledger)
        yield Embedded(service.state, ingests, leader, publisher)


@dataclass(frozen=True, slots=True)
class Embedded:
    """Does all the work of a service in one process.

    state: the model's global keys.
    ingests: the writer of each partition.
    leader: decides, learns and clears.
    publisher: publishes what is due.
    """

    state: ModelState
    ingests: list[Ingest]
    leader: Leader
    publisher: Publisher

    def settle(
        self,
        update: Callable[[int, int | None], None] = silent,
        *,
        announce: Callable[[str], None] = silent,
    ) -> SettleReport:
        """Ingest all records of the log, then decide, learn and publish until nothing more is due.

        update: told how many records are counted, of how many.
        announce: told the name of the present stage.
        """
        announce("counting")
        ingested = self._count(update)
        # What requests delete is counted before a version is made.
        while self.leader.move_requests():
            ingested.update(self._count(update))
        announce("publishing")
        # A version that was staged before must be in the ledger before the next one is.
        receipts = publish(self.publisher)
        made: list[int] = []
        decision = ""
        while len(made) < MOST_VERSIONS:
            announce("learning")
            step = self.leader.scheduler.step()
            decision = decision_text(step.decision)
            announce("publishing")
            receipts += publish(self.publisher)
            if step.version is None:
                break
            made.append(step.version)
        self._clear()
        announce("")
        versions = versions_of(self.state, len(made)) if made else []
        return SettleReport(dict(ingested), versions, decision, receipts)

    def _count(self, update: Callable[[int, int | None], None]) -> Counter[str]:
        """Count the records of all partitions; return the number of events by outcome."""
        for ingest in self.ingests:
            ingest.went_back()
        outcomes = Counter[str]()
        for progress in count_to_the_end(self.ingests, update):
            outcomes.update(progress.outcomes)
        return outcomes

    def _clear(self) -> None:
        """Remove the traces of deletions, and end requests."""
        # Changes are summed up once versions are out: nobody waits for it.
        for ingest in self.ingests:
            # Twice: a deleted document leaves them with the second generation that begins after it.
            for _ in range(2):
                ingest.sum_if_due()
        self.leader.clear_residue(whole=True)
        publish(self.publisher)
        # The receipts of requests are there now.
        self.leader.move_requests()
