"""Runs rounds of events and faults, each followed by rest and by every check."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from campaign.cluster import PARTITIONS
from campaign.inject import Injector
from campaign.observer import Observer
from campaign.people_checks import check_people, open_demands
from campaign.plan import EVERY_KIND, SHARDED_KINDS, draw
from campaign.stream import EventStream
from streamtopic.errors import ComponentUnreachable
from streamtopic.streams import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping


# Events that are sent together.
_BATCH = 20
# Seconds to wait for rest once there is a finding: the rest then tells little.
_PATIENCE = 20.0
# The first rest may take this many times as long: on a fresh machine every process compiles the kernels, all at once.
_WARMING = 4.0


@dataclass(frozen=True, slots=True)
class Options:
    """A campaign. It ends after the round that reaches `faults`, or that has a finding.

    seed: of events and faults.
    faults: number at which it ends.
    kinds: kind of fault to share; None: every kind that fits the target.
    round_faults, round_events: numbers in one round.
    window: seconds within which these happen.
    live: about how many documents live at a time.
    rest_seconds: the longest that the service may take to come to rest.
    """

    seed: int
    faults: int = 40
    kinds: Mapping[str, float] | None = None
    round_faults: int = 8
    round_events: int = 240
    window: float = 6.0
    live: int = 400
    rest_seconds: float = 240.0


@dataclass(slots=True)
class Report:
    """The result of a campaign.

    faults: number by kind.
    events: number of events that were sent.
    rest: seconds that each round took to come to rest after its last fault was undone.
    deletions, versions, documents: receipts and versions published, documents that live.
    lost_replies: number of replies that the proxy has lost.
    strays: records of the ledger that somebody wrote late, when others had their place.
    requests: those that have their receipt.
    seconds: that it took.
    findings: [] if the service kept all its promises.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0
    rest: list[float] = field(default_factory=list)
    deletions: int = 0
    versions: int = 0
    documents: int = 0
    lost_replies: int = 0
    strays: int = 0
    requests: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def rounds(self):
        """Rounds that came to rest."""
        return len(self.rest)


def run(cluster, options, say=lambda _: None):
    """Run a campaign on a cluster that was just started, and return its result.

    say: called with a line about each round and each fault.
    """
    with Observer(cluster, PARTITIONS) as observer:
        return _Campaign(cluster, options, observer, say).run()


class _Campaign:
    def __init__(self, cluster, options, observer, say):
        self._cluster = cluster
        self._options = options
        self._observer = observer
        self._say = say
        self._rng = Random(options.seed)
        self._stream = EventStream(Random(options.seed), PARTITIONS, options.live)
        self._injector = Injector(cluster)
        self._unconfirmed = []
        self._report = Report(options.seed)
        self._kinds = options.kinds or (SHARDED_KINDS if cluster.sharded else EVERY_KIND)

    def run(self):
        start = time.monotonic()
        self._begin()
        report, options = self._report, self._options
        while not report.findings and (left := options.faults - report.faults.total()) > 0:
            self._round(draw(self._rng, min(options.round_faults, left), options.window, self._kinds))
        report.seconds = time.monotonic() - start
        return report

    def _begin(self):
        """Reach a first model without any fault."""
        # A finding after it is then the work of a fault.
        for worker in self._cluster.staff:
            worker.start()
        self._feed(self._options.live, 0)
        self._conclude(_WARMING * self._options.rest_seconds)
        self._cluster.copy()

    def _round(self, faults):
        start = time.monotonic()
        with ThreadPoolExecutor(len(faults) + 2) as pool:
            doing = [pool.submit(self._do, fault, start) for fault in faults]
            doing.append(pool.submit(self._feed, self._options.round_events, self._options.window))
            # In the middle of the faults, so that a later fault sets Redis back to a moment of disorder.
            doing.append(pool.submit(self._copy, self._rng.uniform(0, self._options.window)))
            while not all(future.done() for future in doing):
                self._watch()
                time.sleep(0.1)
            for future in doing:
                future.result()
        self._observer.subscribers[1].restart()
        self._report.faults.update(fault.kind for fault in faults)
        self._conclude(self._options.rest_seconds)

    def _do(self, fault, start):
        time.sleep(max(0.0, start + fault.delay - time.monotonic()))
        self._say(f"  {fault.kind}")
        self._injector.do(fault)

    def _copy(self, delay):
        time.sleep(delay)
        self._injector.copy()

    def _feed(self, events, seconds=0.0):
        """Send events, spread over some seconds."""
        log, _ = open_log(self._cluster.kafka.servers)
        try:
            for _ in range(-(-events // _BATCH)):
                self._append(log, self._cluster.names.documents, self._stream.batch(_BATCH))
                self._ask(log, self._stream.requests())
                self._report.events += _BATCH
                time.sleep(seconds * _BATCH / events)
        finally:
            log.close()

    def _append(self, log, topic, batch):
        """Send records; return whether that was confirmed. Lost or not, the oracle knows only what is in the log."""
        try:
            log.append_many(topic, batch)
        except ComponentUnreachable as error:
            self._say(f"  (a batch of events was not confirmed: {error})")
            return False
        return True

    def _ask(self, log, requests):
        """Send requests to forget people, and once more those that were not confirmed: people ask until they are."""
        sent = [*self._unconfirmed, *requests]
        confirmed = not sent or self._append(log, self._cluster.names.requests, sent)
        self._unconfirmed = [] if confirmed else sent

    def _ask_again(self):
        """Send the requests that were not confirmed."""
        if self._unconfirmed:
            log, _ = open_log(self._cluster.kafka.servers)
            with closing(log):
                self._ask(log, [])

    def _unrest(self):
        """Return the work that the service still has; [] if it has come to rest."""
        return self._observer.unrest() + open_demands(self._observer.oracle, self._observer.witness)[:1]

    def _watch(self):
        """Follow log and published topics. A process that ended by itself is a finding."""
        self._observer.look()
        self._report.findings += self._cluster.deaths()

    def _conclude(self, rest_seconds):
        """Undo the rest of the faults, wait for rest, and make every check."""
        self._cluster.proxy.disarm()
        start = time.monotonic()
        calm = 0
        # Twice in a row, since a record that was moved to its own partition may have come between.
        while calm < 2:
            for worker in self._cluster.staff:
                worker.start()
            self._ask_again()
            self._watch()
            unrest = self._unrest()
            calm = 0 if unrest else calm + 1
            patience = _PATIENCE if self._report.findings else rest_seconds
            if time.monotonic() - start > patience:
                wrote = [f"{worker.name} last wrote:\n{worker.tail(5)}" for worker in self._cluster.staff]
                self._report.findings += [*(f"not at rest: {what}" for what in unrest), *wrote]
                break
            time.sleep(0.2)
        self._report.rest.append(time.monotonic() - start)
        self._report.findings += self._injector.findings
        self._report.findings += self._observer.check()
        self._report.findings += check_people(self._observer.oracle, self._observer.witness)
        self._summarise()

    def _summarise(self):
        report, witness = self._report, self._observer.witness
        report.deletions = len(witness.receipts)
        report.versions = len(witness.entries)
        report.requests = len(witness.covering)
        report.documents = sum(len(book.live) for book in self._observer.oracle.books)
        report.lost_replies, report.strays = self._cluster.proxy.lost, witness.ledger.strays
        self._say(
            f"round {report.rounds}: {report.faults.total()} faults, {report.events} events, {report.documents} "
            f"documents, {report.versions} versions, {report.deletions} receipts, "
            f"at rest after {report.rest[-1]:.1f} s, {len(report.findings)} findings"
        )
