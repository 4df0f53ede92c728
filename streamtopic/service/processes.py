"""Run the parts of the service as processes of their own, until they are told to stop.

If a component is unreachable, a part waits and is opened again. Nothing is lost by that, since each part can be
killed at any moment.

    run_part     one process: `ingest` counts, `schedule` decides and publishes, `run` does both
    Leading      publishes in a thread of its own, while the loop decides and learns
    looked_at    looks at the state of a service, for its gauges, every few seconds

A model may take minutes to make, and no receipt may wait for it: publishing has a thread and a connection of its own.
So has a look, since a gauge must move while the work does not. A look writes nothing.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from streamtopic.errors import (
    ComponentFull,
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateError,
    StateMismatch,
    StateMissing,
    StreamtopicError,
)
from streamtopic.monitoring.metrics import INTERRUPTIONS
from streamtopic.service.assembly import ingest_opener, publisher_of
from streamtopic.service.ingest.worker import IngestWorker
from streamtopic.service.inspection.facts import ModelFacts, cosigned, show_gauges
from streamtopic.service.instance import key_ring
from streamtopic.service.leading import Leader
from streamtopic.service.opened import fixed_of, open_ledger, opened
from streamtopic.service.publish.publisher import ALIVE_EVERY, Published
from streamtopic.service.requests.request_mover import Movements
from streamtopic.service.schedule.decide import Wait, decision_text
from streamtopic.service.schedule.scheduler import Step
from streamtopic.service.watching import PUBLISH, Watch
from streamtopic.state import CutGone, ModelState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings

    Role = Literal["run", "ingest", "schedule"]
    # Told each event, as the command prints it.
    Say = Callable[[dict[str, Any]], None]

__all__ = [
    "EVERY",
    "Leading",
    "leave_in_time",
    "looked_at",
    "run_part",
]


EVERY = 5.0
"""Seconds between two looks."""
_LEAVE = 2.0


@contextmanager
def looked_at(service: Opened, watch: Watch, every: float = EVERY) -> Iterator[None]:
    """Look now and then as long as the block runs, where a service is watched. every: seconds between looks."""
    if not watch.role:
        yield
        return
    # Made here and not in the thread that looks: the service's parts are made by the thread that works.
    _ = service.log
    state = ModelState(service.connect(), service.settings.model, fixed_of(service.settings))
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                show_gauges(ModelFacts(service, state), watch)
            except StreamtopicError:
                # The work meets the same error and says so; here it means only that gauges are old.
                if not done.is_set():
                    watch.add(INTERRUPTIONS, "look_failed")
            done.wait(every)

    thread = threading.Thread(target=look, name="looks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # A server that does not answer must not hold the process up: the thread ends with it.
        thread.join(_LEAVE)


# Seconds to wait for records, between decisions, or between two rounds in which nothing was to be published.
IDLE = 1.0
_LOOK = 0.02
_LOOK_SHARE = 20
LONGEST_PAUSE = 10.0
# Seconds. A process has 10 s to end once it was told to stop, and learning may take longer.
GRACE = 8.0
# Seconds within which a page is written, if nothing is wrong.
_SOON = 0.5


def run_part(role: Role, settings: Settings, stop: threading.Event, say: Say, *, watch: Watch | None = None) -> None:
    """Do the work of a role until told to stop. Wait where a component is unreachable.

    role: `ingest` counts the records of its share of the partitions. `schedule` leads, or stands by until the leader
        is gone: it decides, learns, stages, and publishes in a second thread. `run` does both in turn.
    stop: ends it after the present flush.
    say: told each event, as the command prints it.
    watch: keeps metrics and health.

    Raises StateMismatch if state, settings and log do not fit together.
    """
    watch = watch or Watch()
    leave_in_time(stop)

    def work() -> None:
        with opened(settings, resident=True) as service, ExitStack() as parts:
            service.refuse_others()
            service.connection.ping()
            parts.enter_context(looked_at(service, watch))
            leading = parts.enter_context(closing(Leading(service, watch, say))) if role != "ingest" else None
            worker = parts.enter_context(closing(worker_of(service, watch))) if role != "schedule" else None
            _work(worker, leading, watch, stop, say)

    _insist(work, stop, watch, say)


def _work(
    worker: IngestWorker | None,
    leading: Leading | None,
    watch: Watch,
    stop: threading.Event,
    say: Say,
) -> None:
    """Count, decide and learn in turn, as far as this process does so."""
    records = 0
    owned: frozenset[int] = frozenset()
    while not stop.is_set():
        if leading is not None:
            leading.check()
        if worker is not None:
            # What was counted just now is decided on as soon as no record follows it.
            done = worker.step(0.0 if records else IDLE)
            records = done.records
            # A round without partitions is no progress while the group does not answer.
            if done.waiting:
                watch.hindered(done.waiting)
            else:
                watch.health.moved()
            if done.partitions != owned:
                owned = done.partitions
                say({"event": "partitions", "partitions": sorted(owned)})
            if records:
                say({"event": "counted", "records": records, "outcomes": dict(done.outcomes)})
        # A model of half the log would be out of date at once, so counting catches up first.
        if leading is None or records:
            continue
        counted = leading.leader.scheduler.offsets() if worker is None else {}
        changed = leading.step()
        if worker is None:
            watch.health.moved()
            if not changed:
                leading.wait(counted, stop, IDLE)


def worker_of(service: Opened, watch: Watch) -> IngestWorker:
    """Return the ingest worker of a service's process, which takes part in its group until it is closed."""
    settings, log, topic = service.settings, service.log, service.names.documents
    session_ms = int(settings.session_timeout * 1000)
    return IngestWorker(
        log,
        topic,
        log.join(topic, settings.consumer_group, session_ms),
        ingest_opener(service, watch),
        heartbeat=settings.residue_max_age / 2,
        clock=service.clock,
        watch=watch,
    )


class Leading:
    """Decides and learns step by step, and publishes in a thread of its own, until it is closed.

    service: whose log and settings are used; the thread reaches Redis over a connection of its own.
    say: told each event.
    """

    def __init__(self, service: Opened, watch: Watch, say: Say) -> None:
        settings = service.settings
        self._watch = watch
        self._say = say
        self._witnessed = settings.witnesses is not None
        # Set when there may be something to publish, and when the last decision may be out of date.
        self._due, self._undecided, self._done = threading.Event(), threading.Event(), threading.Event()
        self._said = ""
        self._failure: BaseException | None = None
        self.leader = Leader(service, watch, self._due.set)
        # Opened here and not in the thread: what is opened belongs to the thread that works.
        connection = service.connect()
        state = ModelState(connection, settings.model, service.state.settings)
        self._acquire = partial(state.acquire, service.holder, int(settings.lease * 1000))
        self._ledger = open_ledger(service, connection, key_ring(settings))
        self._publisher = publisher_of(service, state, self._ledger, watch=watch, alive_every=ALIVE_EVERY)
        # Minutes, if Redis has lost the index of a long ledger.
        with watch.health.exempt("recovering"):
            self._ledger.catch_up()
        self._thread = threading.Thread(target=self._run, name=PUBLISH, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and give leadership up."""
        self._done.set()
        self._due.set()
        # A server that does not answer must not hold the process up: the thread ends with it.
        self._thread.join(_LEAVE)
        # Last, since the thread takes the lease too.
        self.leader.close()

    def check(self) -> None:
        """Raise the error that has ended the thread, if one has."""
        if self._failure is not None:
            raise self._failure

    def step(self) -> bool:
        """Decide and act once; return whether that differs from the last time. A decision is reported once."""
        self._undecided.clear()
        counted, moved = True, Movements()
        try:
            # First: a Redis that was set back may have forgotten a request whose deletions are counted in part.
            moved = self.leader.move_requests()
            step = self.leader.scheduler.step()
        except StateMissing as error:
            counted = False
            step = Step(Wait(f"not every partition has been counted yet: {error}"))
        except CutGone as error:
            # The next step begins with newer counts. What the scheduler holds in memory stays right.
            step = Step(Wait(f"documents changed faster than a model could be made of them: {error}"))
        # After a version the publisher has the processor for itself.
        if counted and step.version is None and self.leader.clear_residue():
            self._due.set()
        if moved:
            self._due.set()
            self._undecided.set()
            self._say({"event": "requests", **{name: moved[name] for name in ("paused", "sent", "completed")}})
        before, self._said = self._said, self._told(step)
        return self._said != before

    def _told(self, step: Step) -> str:
        """Report a step, unless its decision was reported last; return the decision in words."""
        text = decision_text(step.decision)
        said = {"decision": _public(text)}
        if step.version is not None:
            self._say({"event": "staged", "version": step.version, **said, "seconds": dict(step.seconds)})
            # Before it is published the next one cannot be decided.
            self._undecided.wait(_SOON)
            return f"{text} (version {step.version})"
        if text != self._said or step.withdrawn:
            self._say({"event": "decided", **said, "withdrawn": list(step.withdrawn)})
        return text

    def wait(self, counted: Mapping[int, int], stop: threading.Event, seconds: float) -> None:
        """Wait until there may be something to decide: more is counted than before, or something was published.

        counted: as of `Scheduler.offsets` before the last decision.
        seconds: the longest wait, after which requests of operators and times of day are looked at.
        """
        deadline = time.monotonic() + seconds
        while not stop.is_set() and (start := time.monotonic()) < deadline:
            if self.leader.scheduler.offsets() != counted:
                # The receipt of a delete without a document waits for no version.
                self._due.set()
                return
            # Looks must not keep Redis busy if there are many partitions.
            if self._undecided.wait(max(_LOOK, _LOOK_SHARE * (time.monotonic() - start))):
                return

    def _run(self) -> None:
        try:
            _insist(self._publish, self._done, self._watch, self._say, PUBLISH)
        except BaseException as error:  # noqa: BLE001 -- the loop that works raises it
            self._failure = error

    def _publish(self) -> None:
        """Publish once, or stand by; then wait until something may be due."""
        # Before the look: what is staged meanwhile is seen by the next one.
        self._due.clear()
        done = Published() if self._acquire() is None else self._publisher.step()
        self._watch.health.moved(PUBLISH)
        if done.page and self._witnessed:
            self._watch.witnesses = cosigned(self._ledger.ledger.checkpoint)
        if done.did_something:
            # The next version may have waited for this one.
            self._undecided.set()
            names = ("versions", "receipts", "records", "erased")
            self._say({"event": "published", **{name: getattr(done, name) for name in names}})
        elif not self._done.is_set():
            self._due.wait(IDLE)


def _public(decision: str) -> str:
    """Return a decision without the errors that it quotes, which may name words; `status` has all of it."""
    kind, _, reason = decision.partition(": ")
    return f"{kind}: {reason.partition(';')[0].partition(': ')[0]}"


def _insist(attempt: Callable[[], None], stop: threading.Event, watch: Watch, say: Say, loop: str = "") -> None:
    """Attempt something until told to stop; after a failure that may pass, wait before the next attempt.

    loop: that does it, "" for the first one of the process.
    """
    pause, was_well, began = 0.0, False, time.monotonic()
    while not stop.is_set():
        try:
            attempt()
        except (ComponentUnreachable, SettingsError, StateError) as error:
            # What publishes ends with the work, and what it uses is closed by then.
            if loop and stop.is_set():
                return
            # Work that went on for a while was well: the pause grows only while attempts fail at once.
            if time.monotonic() - began > LONGEST_PAUSE:
                pause, was_well = 0.0, True
            if not _may_pass(error, was_well=was_well):
                raise
            pause = min(max(2 * pause, 0.2), LONGEST_PAUSE)
            # Drawn at random, so that many processes do not come back to a broker in the same moment.
            pause *= random.uniform(0.8, 1.2)
            answers = isinstance(error, ComponentFull) or not isinstance(error, ComponentUnreachable)
            watch.waits(error, "refused" if answers else "unreachable", loop)
            say({"event": "waiting", "reason": str(error), "seconds": round(pause, 1)})
            began = time.monotonic() + pause
            stop.wait(pause)


def _may_pass(error: StreamtopicError, *, was_well: bool) -> bool:
    """Return whether the work may go on later, once somebody has mended the cause of an error.

    was_well: whether the work went well for a while since the process began. Then its settings were right, and a server
    that refuses its user or shows another certificate has changed. At the start, settings are the likely fault.
    """
    if isinstance(error, SettingsError):
        return was_well
    # A state that is corrupt or does not fit stays so; a server that is full or still loading may recover.
    return isinstance(error, StateMissing) or not isinstance(error, StateMismatch | StateCorrupt)


def leave_in_time(stop: threading.Event) -> None:
    """End the process a few seconds after it was told to stop, even in the middle of learning."""

    def leave() -> None:
        stop.wait()
        threading.Event().wait(GRACE)
        # Compiled code cannot be interrupted by an exception. Nothing is lost: state and offset move in one commit.
        os._exit(0)

    threading.Thread(target=leave, name="leave in time", daemon=True).start()
