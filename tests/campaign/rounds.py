"""Runs rounds of events and faults, each followed by rest and by every check."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

from campaign.cluster import PARTITIONS
from campaign.inject import EVERY_KIND, SHARDED_KINDS, Injector, draw
from campaign.observer import Observer
from campaign.stream import EventStream
from streamtopic.errors import ComponentUnreachable
from streamtopic.streams import open_log

# Events that are sent together, and in one round.
_BATCH = 20
_ROUND_EVENTS = 240
# Seconds within which these and the faults of a round happen.
_WINDOW = 6.0
# About how many documents live at a time.
_LIVE = 400
# The longest that the service may take to come to rest, in seconds, and how long it is given once there is a finding:
# the rest then tells little.
_REST, _PATIENCE = 240.0, 20.0
# The first rest may take this many times as long: on a fresh machine every process compiles the kernels, all at once.
_WARMING = 4.0


@dataclass(slots=True)
class Report:
    """The result of a campaign.

    faults: number by kind.
    events: number of events that were sent.
    rest: seconds that each round took to come to rest after its last fault was undone.
    figures: other numbers by their names, as of the last round.
    findings: [] if the service kept all its promises.
    """

    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0
    rest: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def run(cluster, seed, faults, *, kinds=None, round_faults=8, say=lambda _: None):
    """Run a campaign on a cluster that was just started, and return its result.

    seed: of events and faults.
    faults: number at which it ends, with its round; a round with a finding ends it as well.
    kinds: kind of fault to share; None: every kind that fits the target.
    round_faults: number in one round.
    say: called with a line about each round and each fault.
    """
    kinds = kinds or (SHARDED_KINDS if cluster.sharded else EVERY_KIND)
    start, rng = time.monotonic(), Random(seed)
    with closing(Observer(cluster, PARTITIONS)) as observer:
        campaign = _Campaign(cluster, observer, EventStream(Random(seed), PARTITIONS, _LIVE), say)
        campaign.begin()
        report = campaign.report
        while not report.findings and (left := faults - report.faults.total()) > 0:
            campaign.round(draw(rng, min(round_faults, left), _WINDOW, kinds), rng.uniform(0, _WINDOW))
    report.figures["seconds, whole campaign"] = time.monotonic() - start
    return report


class _Campaign:
    """A cluster under observation, and what was done to it and found so far: `report`."""

    def __init__(self, cluster, observer, stream, say):
        self._cluster = cluster
        self._observer = observer
        self._stream = stream
        self._say = say
        self._injector = Injector(cluster)
        self.report = Report()

    def begin(self):
        """Reach a first model without any fault."""
        # A finding after it is then the work of a fault.
        for worker in self._cluster.staff:
            worker.start()
        self._feed(_LIVE, 0)
        self._conclude(_WARMING * _REST)
        self._injector.copy_redis()

    def round(self, faults, copied):
        """Do faults amid events, then let the service come to rest and make every check.

        copied: seconds after which Redis is copied.
        """
        start = time.monotonic()
        with ThreadPoolExecutor(len(faults) + 2) as pool:
            doing = [pool.submit(self._do, fault, start) for fault in faults]
            doing.append(pool.submit(self._feed, _ROUND_EVENTS, _WINDOW))
            # In the middle of the faults, so that a later fault sets Redis back to a moment of disorder.
            doing.append(pool.submit(self._copy, copied))
            while not all(future.done() for future in doing):
                self._watch()
                time.sleep(0.1)
            for future in doing:
                future.result()
        self._observer.restart_subscriber()
        self.report.faults.update(fault.kind for fault in faults)
        self._conclude(_REST)

    def _do(self, fault, start):
        time.sleep(max(0.0, start + fault.delay - time.monotonic()))
        self._say(f"  {fault.kind}")
        self._injector.do(fault)

    def _copy(self, delay):
        time.sleep(delay)
        self._injector.copy_redis()

    def _feed(self, events, seconds):
        """Send events, spread over some seconds. Lost or not, the oracle knows only what is in the log."""
        names = self._cluster.names
        log, _ = open_log(self._cluster.kafka.servers)
        with closing(log):
            for _ in range(events // _BATCH):
                batch = self._stream.batch(_BATCH)
                for topic, messages in ((names.documents, batch), (names.requests, self._stream.requests())):
                    try:
                        log.append_many(topic, messages)
                    except ComponentUnreachable as error:
                        self._say(f"  (a batch of events was not confirmed: {error})")
                self.report.events += _BATCH
                time.sleep(seconds * _BATCH / events)

    def _watch(self):
        """Follow log and published topics. A process that ended by itself is a finding."""
        self._observer.look()
        self.report.findings += self._cluster.deaths()

    def _conclude(self, rest_seconds):
        """Undo the rest of the faults, wait for rest, and make every check."""
        self._cluster.proxy.disarm()
        start = time.monotonic()
        calm = 0
        # Twice in a row, since a record that was moved to its own partition may have come between.
        while calm < 2:
            for worker in self._cluster.staff:
                worker.start()
            self._watch()
            unrest = self._observer.unrest()
            calm = 0 if unrest else calm + 1
            if time.monotonic() - start > (_PATIENCE if self.report.findings else rest_seconds):
                wrote = [f"{worker.name} last wrote:\n{worker.tail(5)}" for worker in self._cluster.staff]
                self.report.findings += [*(f"not at rest: {what}" for what in unrest), *wrote]
                break
            time.sleep(0.2)
        self.report.rest.append(time.monotonic() - start)
        self.report.findings += self._injector.findings
        self.report.findings += self._observer.check()
        self._summarise()

    def _summarise(self):
        report, witness = self.report, self._observer.witness
        report.figures = {
            "replies lost": self._cluster.proxy.lost,
            "receipts of requests": len(witness.covering),
            "documents": sum(len(book.live) for book in self._observer.oracle.books),
            "versions": len(witness.entries),
            "receipts": len(witness.receipts),
            "ledger's records too late": witness.book.strays,
        }
        told = ", ".join(f"{report.figures[name]} {name}" for name in ("documents", "versions", "receipts"))
        self._say(
            f"round {len(report.rest)}: {report.faults.total()} faults, {report.events} events, {told}, at rest after "
            f"{report.rest[-1]:.1f} s, {len(report.findings)} findings"
        )
