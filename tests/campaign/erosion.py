"""Takes records from the log by compaction and by retention, and compares the service with the records left."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgpack
from kafka import KafkaAdminClient, TopicPartition

from campaign import checks
from campaign.oracle import Oracle
from campaign.tail import TopicTail
from streamtopic.streams import Message, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from campaign.cluster import Cluster
    from campaign.observer import Observer

__all__ = ["Eroder", "compact", "delete_records", "what_is_left"]

# The broker closes segments and compacts them as soon as it can.
_HASTY = {
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "200",
}
_USUAL = {"min.cleanable.dirty.ratio": "0.5", "segment.ms": "604800000"}
_BEAT: bytes = msgpack.packb({"op": "heartbeat"})
_DEADLINE = 180.0
_PAUSE = 1.5
# Exit status, and words of the message, of an ingest that finds a gap in the log.
_REFUSED = 1
_GAP = "left the log before they were counted"
_REMEDY = "`streamtopic rebuild`"


def compact(
    servers: str, topic: str, partitions: int, usual: dict[str, str], beat: bytes | None = _BEAT
) -> tuple[int, int]:
    """Make the broker compact a topic until no record is left that another one has replaced.

    usual: settings of the topic, which it has again afterwards.
    beat: value of a record that means nothing in the topic.

    Returns the number of records before and after, without heartbeats after. Raises TimeoutError.
    """
    log, _ = open_log(servers)
    # The newest records of each partition are in an open file, which brokers do not compact: heartbeats close it.
    beats = [Message(b"st:heartbeat", beat, partition=partition) for partition in range(partitions)]
    with closing(log):
        before = sum(1 for _ in _records(servers, topic, partitions))
        log.configure(topic, _HASTY)
        deadline = time.monotonic() + _DEADLINE
        try:
            while True:
                log.append_many(topic, beats)
                time.sleep(_PAUSE)
                keys = [(r.partition, r.key) for r in _records(servers, topic, partitions) if r.key != beats[0].key]
                if len(keys) == len(set(keys)):
                    return before, len(keys)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} was not compacted in {_DEADLINE:.0f} s")
        finally:
            log.configure(topic, {**_USUAL, **usual})


def delete_records(servers: str, topic: str, offsets: dict[int, int]) -> None:
    """Remove the records before these offsets, as retention does.

    offsets: by partition.
    """
    log, _ = open_log(servers)
    # A broker refuses that for a topic that is only compacted, as `init` makes it; an operator may have changed it.
    with closing(log):
        log.configure(topic, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    admin: Any = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.delete_records({TopicPartition(topic, partition): offset for partition, offset in offsets.items()})
    finally:
        admin.close()


def what_is_left(servers: str, topic: str, partitions: int) -> Oracle:
    """Return an oracle that has read only the records which the log holds now."""
    oracle, tail = Oracle(partitions), TopicTail(servers, topic, partitions, anew=True)
    try:
        for record in tail.read():
            oracle.take(record.partition, record.offset, record.key, record.value, record.headers, record.time_ms)
        for partition, offset in tail.positions.items():
            oracle.reach(partition, offset)
    finally:
        tail.close()
    return oracle


def _records(servers: str, topic: str, partitions: int) -> Sequence[Any]:
    tail = TopicTail(servers, topic, partitions, anew=True)
    try:
        return list(tail.read())
    finally:
        tail.close()


class Eroder:
    """Takes records from a cluster's documents topic, such as it may lose and such as it must not lose.

    Each method returns its findings.

    feed: sends this many events.
    rest: waits until everything is counted, makes every check and returns the findings.
    say: called with a line about each step.
    """

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        feed: Callable[[int], None],
        rest: Callable[[], list[str]],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._feed = feed
        self._rest = rest
        self._say = say
        self._topic = cluster.names.documents
        self._partitions = len(observer.oracle.books)

    def compact(self) -> list[str]:
        """Compact the log at rest: the records left must give the counts that are stored."""
        usual, requests = self._cluster.names.settings(), self._cluster.names.requests
        servers = self._cluster.kafka.servers
        try:
            # Schedulers that start later know from the ledger which requests are done.
            compact(servers, requests, 1, usual[requests], None)
            before, after = compact(servers, self._topic, self._partitions, usual[self._topic])
        except TimeoutError as error:
            return [str(error)]
        self._say(f"  compacted: {before} records, {after} left")
        findings = self._rest()
        findings += self._compared(totals=False)
        # With a compacted log an older copy of Redis would come to the same counts, but not to the same history.
        self._cluster.forget_copies()
        return findings

    def rebuild(self) -> list[str]:
        """Make the state anew from the records left in the log, as an operator does."""
        for worker in self._cluster.staff:
            worker.terminate()
        answer = self._cluster.ask("rebuild", "--yes", "--json")
        if answer.returncode:
            return [f"`streamtopic rebuild` ended with status {answer.returncode}:\n{answer.stderr[-2000:]}"]
        self._observer.look()
        findings = self._compared(totals=True)
        self._say(f"  state made anew from the records left, {len(findings)} findings")
        # Nobody knows any more what became of records that have left the log, so totals are of the records left.
        left = what_is_left(self._cluster.kafka.servers, self._topic, self._partitions)
        for book, known in zip(self._observer.oracle.books, left.books, strict=True):
            book.totals = known.totals
        return findings

    def go_on(self, events: int) -> list[str]:
        """Continue after a rebuild, and after all counted records have left the log."""
        self._feed(events)
        findings = self._rest()
        counted = {p: meta.next_offset for p, meta in self._observer.reader.positions().items()}
        # Heartbeats are counted since the last look, and the oracle cannot read them once they have left the log.
        self._observer.look()
        delete_records(self._cluster.kafka.servers, self._topic, counted)
        self._say("  all counted records have left the log")
        self._feed(events)
        return findings + self._rest()

    def refuse(self, events: int) -> list[str]:
        """Let records leave the log before they are counted: ingest must refuse to run, and name the remedy.

        The remedy is then applied: the state is made anew from the records left.
        """
        for worker in self._cluster.staff:
            worker.terminate()
        counted = {p: meta.next_offset for p, meta in self._observer.reader.positions().items()}
        self._feed(events)
        self._observer.look()
        ends = {p: book.next_offset for p, book in enumerate(self._observer.oracle.books)}
        # Half of the records that were not counted, so that some are lost and some are left in each partition.
        delete_records(self._cluster.kafka.servers, self._topic, {p: (counted[p] + ends[p] + 1) // 2 for p in ends})
        self._say("  records that were not counted have left the log")
        return self._refusal(_GAP) + self.rebuild()

    def _refusal(self, *words: str) -> list[str]:
        """Start an ingest alone: it must end by itself, and say these words and the remedy."""
        ingest = self._cluster.ingests[0]
        ingest.start()
        deadline = time.monotonic() + _DEADLINE
        while not ingest.deaths and time.monotonic() < deadline:
            ingest.check()
            time.sleep(0.2)
        said, status = ingest.tail(12), ingest.deaths[:]
        ingest.kill()
        ingest.deaths.clear()
        if status == [_REFUSED] and all(word in said for word in (*words, _REMEDY)):
            return []
        return [f"ingest should refuse with {words}, ended with {status or 'nothing'} and said:\n{said}"]

    def _compared(self, *, totals: bool) -> list[str]:
        """Compare Redis with the records that the log still holds."""
        oracle = what_is_left(self._cluster.kafka.servers, self._topic, self._partitions)
        found = checks.check_counts(oracle, self._observer.reader, totals=totals)
        found += checks.check_documents(oracle, self._observer.stored())
        return [f"compared with the records left in the log: {finding}" for finding in found]
