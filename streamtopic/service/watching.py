"""Metrics and health of one process, made of what its parts report, and the address where others read them.

    Health   which loops have made progress, and which should have
    Watch    health and metrics
    watched  answers `/livez`, `/readyz` and `/metrics` while a process works

Each loop reports its progress, and a silence of `STALLED_AFTER` is a fault. The loop of ingest makes progress with each
partition in which it either counts records or finds the end of the log; the loops of scheduler and publisher with each
round that ends. So a process is not well because it answers, but because its work moves. A partition that is left
behind is seen by its lag.

The parts give numbers, and names that the catalogue of metrics lists: never a document's id and never a word.
"""

from __future__ import annotations

import platform
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily

from streamtopic import __version__
from streamtopic.errors import SettingsError, UsageError
from streamtopic.monitoring import metrics as catalogue
from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from streamtopic.monitoring.metrics import Family
    from streamtopic.service.ingest.partition_ingest import Ingest, Progress
    from streamtopic.settings import Settings

    # A family, the values of its labels, and the present value.
    Gauge = tuple[Family, tuple[object, ...], float]

__all__ = ["PUBLISH", "STALLED_AFTER", "Health", "Watch", "serving", "watched"]

PUBLISH = "publish"
"""Name of the loop that publishes."""

disable_created_metrics()  # type: ignore[no-untyped-call]


STALLED_AFTER = 60.0
"""Seconds without progress after which work that waits is stalled: longer than a server takes to fail over, and than a
client of Kafka takes to give a request up."""

MARGIN = 5.0
"""Seconds beyond the limit: the last sign of life may be a little older than the stall."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a process is, at one moment.

    live: nothing has stood still for too long, or the process is exempt.
    ready: it is live, has begun its work, and neither recovers nor waits for a server.
    findings: what has stopped, and for how long, in words.
    busy: why it is exempt, to seconds since then.
    waiting: why the work does not get on for now, "" while it does.
    """

    live: bool
    ready: bool
    findings: tuple[str, ...]
    busy: Mapping[str, float]
    waiting: str


class Health:
    """Keeps the last sign of life of each loop. Safe with several threads.

    stalled_after: seconds of silence that are too long.
    loops: names of the loops that this process has from its start on; the first one is meant where none is named.
    clock: seconds that only grow.
    """

    def __init__(
        self, stalled_after: float, loops: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = stalled_after + MARGIN
        self._clock = clock
        self._mutex = threading.RLock()
        self._signs: dict[str, float] = dict.fromkeys(loops, clock())
        self._begun = set[str]()
        self._main = loops[0]
        # What takes long now, and since when.
        self._busy: dict[str, float] = {}
        self._waiting: dict[str, str] = {}

    def moved(self, loop: str = "") -> None:
        """Take that a loop has got on."""
        name = loop or self._main
        with self._mutex:
            self._signs[name] = self._clock()
            self._begun.add(name)
            self._waiting.pop(name, None)

    def waits(self, reason: str, loop: str = "") -> None:
        """Note that a loop does not get on for now, until a server answers again."""
        with self._mutex:
            self._waiting[loop or self._main] = reason

    @contextmanager
    def exempt(self, reason: str) -> Iterator[None]:
        """Find nothing as long as the block runs; the time that it takes is no time without progress.

        One block at a time: only the thread that works takes long.
        """
        since = self._clock()
        with self._mutex:
            self._busy = {reason: since}
        try:
            yield
        finally:
            with self._mutex:
                self._busy = {}
                # Not begun again: what has stopped would never be found if models are made again and again.
                now = self._clock()
                self._signs = {name: min(at + now - since, now) for name, at in self._signs.items()}

    @property
    def verdict(self) -> Verdict:
        """How the process is now."""
        with self._mutex:
            now = self._clock()
            idle = {name: now - at for name, at in sorted(self._signs.items())}
            busy = {reason: now - since for reason, since in self._busy.items()}
            findings = tuple(
                _finding(name, seconds, self._waiting.get(name, ""))
                for name, seconds in idle.items()
                if seconds >= self._limit
            )
            live = bool(busy) or not findings
            waiting = next(iter(self._waiting.values()), "")
            ready = live and "recovering" not in busy and not waiting and self._signs.keys() <= self._begun
            return Verdict(live, ready, () if live else findings, busy, waiting)


def _finding(name: str, seconds: float, waiting: str) -> str:
    said = f"{name} has made no progress for {seconds:.0f} s"
    return f"{said}: {waiting}" if waiting else said


class Watch:
    """Keeps metrics and health of one process; safe with several threads.

    Counters and histograms grow when a part reports; gauges are made when somebody asks, of what is known then.

    role: `run`, `ingest`, `schedule` or `serve`; "" if nobody asks, as a command, a test, or a service without
        `metrics_address`.
    health: of the process.
    owned: the partitions that this process counts now.
    looked: gauges of what Redis and the log knew at the last look, all of them; their partitions are owned ones.
    leads: whether this scheduler leads; None if it does not try to.
    blocked: code of the reason why no model can be made, "" if one can be made or is not asked for.
    alive: when this process last wrote into the ledger which version is the newest, seconds since 1970.
    witnesses: how many signed the newest checkpoint of the ledger; None if none is asked.
    """

    def __init__(self, role: str = "") -> None:
        self.role = role
        self.health = Health(STALLED_AFTER, (role, PUBLISH) if role in {"run", "schedule"} else (role,))
        self.owned: Mapping[int, Ingest] = {}
        self.looked: Sequence[Gauge] = ()
        self.leads: bool | None = None
        self.blocked = ""
        self.alive: float | None = None
        self.witnesses: int | None = None
        # Kept when a partition is given up: Redis may be set back while nothing is open.
        self._next: dict[int, int] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)
        # Any: the two kinds have no common type.
        self._events: dict[Family, Any] = {}
        for family in catalogue.CATALOGUE:
            about = (family.name, family.help, family.labels)
            if family.kind == "counter":
                self._events[family] = Counter(*about, registry=self.registry)
            elif family.kind == "histogram":
                self._events[family] = Histogram(*about, registry=self.registry, buckets=family.buckets)

    def add(self, family: Family, *labels: str, amount: float = 1) -> None:
        """Let a counter grow. labels: their values."""
        self._event(family, labels).inc(amount)

    def observe(self, family: Family, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram; one below 0, as of clocks that differ, counts as 0."""
        self._event(family, labels).observe(max(seconds, 0.0))

    def _event(self, family: Family, labels: tuple[str, ...]) -> Any:  # noqa: ANN401  as prometheus-client has it
        held = self._events[family]
        return held.labels(*labels) if labels else held

    def waits(self, error: Exception, reason: str, loop: str = "") -> None:
        """Take that the work was given up and will begin again.

        reason: `unreachable` or `refused`.
        loop: name of the loop that did it, "" for the first one of the process.
        """
        self.add(catalogue.INTERRUPTIONS, reason)
        self.hindered(str(error), loop)

    def hindered(self, reason: str, loop: str = "") -> None:
        """Take why the work does not get on now, in words."""
        self.health.waits(conceal(reason), loop)

    def owns(self, partition: int, ingest: Ingest) -> None:
        """Take that this process counts a partition from now on."""
        self.owned = {**self.owned, partition: ingest}

    def gave_up(self, partition: int, *, taken_over: bool = False) -> None:
        """Take that this process counts a partition no longer; taken_over: another one counts it already."""
        self.owned = {one: ingest for one, ingest in self.owned.items() if one != partition}
        if taken_over:
            self.add(catalogue.INTERRUPTIONS, "taken_over")

    def counted(self, partition: int, progress: Progress) -> None:
        """Take what one flush of a partition counted, and where it goes on."""
        if progress.begin is not None and progress.begin < self._next.get(partition, 0):
            self.add(catalogue.INTERRUPTIONS, "set_back")
        self._next[partition] = progress.next_offset
        for outcome, number in progress.outcomes.items():
            self.add(catalogue.RECORDS, outcome, amount=number)
        for reason, number in progress.reasons.items():
            self.add(catalogue.REJECTED, reason, amount=number)
        if progress.waited:
            # One observation takes microseconds, and a flush may hold thousands of deletions.
            self.observe(catalogue.FORGET_STAGE, max(progress.waited), "counted")
        if progress.records:
            self.observe(catalogue.COMMIT, progress.seconds)

    def staged(self, kind: str) -> None:
        """Take that a version was staged."""
        self.blocked = ""
        self.add(catalogue.RELEASES, kind)

    def confirmed(self, ages: Sequence[float]) -> None:
        """Take that receipts are in the log: the seconds since each delete was sent."""
        if ages:
            self.observe(catalogue.FORGET_STAGE, max(ages), "receipted")
            self.add(catalogue.RECEIPTS, amount=len(ages))

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return bytes(generate_latest(self.registry))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges whose values are known, for the registry."""
        shown: dict[Family, GaugeMetricFamily] = {}
        owned = self.owned
        for family, labels, value in (*self._own(), *self.looked):
            # Another process shows those of a partition that was given up since the last look.
            if "partition" in family.labels and labels[0] not in owned:
                continue
            if family not in shown:
                shown[family] = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            shown[family].add_metric([str(label) for label in labels], value)
        yield from shown.values()

    def _own(self) -> Iterator[Gauge]:
        """Yield the gauges of the process itself."""
        verdict = self.health.verdict
        yield catalogue.BUILD, (self.role, __version__, platform.python_version()), 1
        yield catalogue.LIVE, (), verdict.live
        for what in verdict.busy:
            yield catalogue.BUSY, (what,), 1
        if self.role in {"run", "ingest"}:
            yield catalogue.OWNED, (), len(self.owned)
        # What this scheduler could not do says nothing about another one that leads.
        if self.leads and self.blocked:
            yield catalogue.BLOCKED_RELEASE, (self.blocked,), 1
        known = {catalogue.LEADER: self.leads, catalogue.ALIVE: self.alive, catalogue.WITNESSES: self.witnesses}
        for family, value in known.items():
            if value is not None:
                yield family, (), value


@contextmanager
def watched(settings: Settings, role: str, say: Callable[[dict[str, Any]], None]) -> Iterator[Watch]:
    """Answer at `metrics_address` as long as the block runs; without that setting nobody watches.

    role: `run`, `ingest` or `schedule`.
    say: is told the address.

    Raises SettingsError if the address cannot be had.
    """
    if settings.metrics_address is None:
        yield Watch()
        return
    watch = Watch(role)
    with serving(settings.metrics_address, watch) as address:
        say({"event": "metrics", "address": address})
        yield watch


@contextmanager
def serving(address: str, watch: Watch) -> Iterator[str]:
    """Answer at an address, `[HOST:]PORT`, as long as the block runs; yields the address in use.

    Without a host only this machine can ask; port 0: any that is free. Raises SettingsError if it cannot be had.
    """
    # Here, since a process that nobody watches does without the server.
    try:
        from streamtopic.monitoring.http_server import LOOPBACK, address_of, http_server, listening
    except ModuleNotFoundError as error:
        raise SettingsError(f"setting `metrics_address` needs {error.name}: pip install 'streamtopic[serve]'") from None
    host, _, port = address.rpartition(":")
    try:
        listener = listening(host.strip("[]") or LOOPBACK, int(port))
    except UsageError as error:
        raise SettingsError(f"setting `metrics_address`: {error}; each process of a machine has its own") from None
    with listener:
        server = http_server(_endpoints(watch), listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="endpoint", daemon=True)
        thread.start()
        try:
            yield address_of(listener, secure=False).removeprefix("http://").rstrip("/")
        finally:
            server.should_exit = True
            thread.join()


def _endpoints(watch: Watch) -> Starlette:
    """Return `/metrics`, `/livez` and `/readyz` of a process."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

    def metrics(_: Request) -> Response:
        # Prometheus' own text format; any version of it reads this one.
        return Response(watch.text(), media_type="text/plain; version=0.0.4", headers=headers)

    def probe(request: Request) -> Response:
        verdict = watch.health.verdict
        well = verdict.live if request.url.path == "/livez" else verdict.ready
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return PlainTextResponse(_said(verdict, well=well), status, headers)

    return Starlette(routes=[Route("/metrics", metrics), Route("/livez", probe), Route("/readyz", probe)])


def _said(verdict: Verdict, *, well: bool) -> str:
    """Return a verdict in lines: each fault, or the reason why no fault would be found."""
    lines = list(verdict.findings)
    lines += [f"waits: {verdict.waiting}"] if verdict.waiting and not lines else []
    lines += [f"{what} for {seconds:.0f} s" for what, seconds in verdict.busy.items()]
    nothing = "ok" if well else "has not begun yet"
    return "\n".join(lines or [nothing]) + "\n"
