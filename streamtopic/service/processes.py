"""Run the parts of the service as processes of their own, until they are told to stop.

Where a component is unreachable, a part waits and is opened again. Nothing is lost by that, since each part can be
killed at any moment.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamtopic.errors import ComponentUnreachable, StateCorrupt, StateError, StateMismatch, StateMissing, UsageError
from streamtopic.service.app import Service
from streamtopic.service.ingest.worker import IngestWorker, WorkerOptions
from streamtopic.service.looks import looked_at
from streamtopic.service.schedule.decide import Wait, decision_text
from streamtopic.service.schedule.scheduler import Step
from streamtopic.service.watching import Watch
from streamtopic.streams.membership import open_membership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.settings import Settings

__all__ = ["run_all", "run_ingest", "run_publish", "run_schedule", "worker_of"]


WAIT = 0.5
LONGEST_PAUSE = 10.0
# Seconds. A process has 10 s to end once it was told to stop, and learning may take longer.
GRACE = 8.0


def run_ingest(
    settings: Settings, stop: threading.Event, say: Callable[[dict[str, Any]], None], *, watch: Watch | None = None
) -> None:
    """Count the records of this process's share of the partitions. Wait where a component is unreachable.

    stop: ends it after the present flush.
    say: told each event, as the command prints it.
    watch: keeps metrics and health.

    Raises StateMismatch where state, settings and log do not fit together.
    """

    def work(service: Service) -> None:
        with worker_of(service) as worker:
            owned: frozenset[int] = frozenset()
            while not stop.is_set():
                done = worker.step(WAIT)
                service.watch.moved("ingest")
                if done.partitions != owned:
                    owned = done.partitions
                    say({"event": "partitions", "partitions": sorted(owned)})
                if done.records:
                    say({"event": "counted", "records": done.records, "outcomes": dict(done.outcomes)})

    _persevere(settings, stop, say, work, watch)


def run_schedule(
    settings: Settings,
    stop: threading.Event,
    say: Callable[[dict[str, Any]], None],
    *,
    interval: float,
    watch: Watch | None = None,
) -> None:
    """Lead, or stand by until the leader is gone: decide, learn, stage.

    stop, say: as in `run_ingest`.
    interval: seconds between decisions.
    """

    def work(service: Service) -> None:
        said = ""
        while not stop.is_set():
            before, said = said, _one_step(service, said, say)
            service.watch.moved("schedule")
            if said == before:
                stop.wait(interval)

    _persevere(settings, stop, say, work, watch)


def run_publish(
    settings: Settings,
    stop: threading.Event,
    say: Callable[[dict[str, Any]], None],
    *,
    interval: float,
    watch: Watch | None = None,
) -> None:
    """Publish the outbox, and the receipts of deletions.

    stop, say: as in `run_ingest`.
    interval: seconds between looks at the outbox.
    """

    def work(service: Service) -> None:
        while not stop.is_set():
            published = _publish_once(service, say)
            service.watch.moved("publish")
            if not published:
                stop.wait(interval)

    _persevere(settings, stop, say, work, watch)


def run_all(
    settings: Settings,
    stop: threading.Event,
    say: Callable[[dict[str, Any]], None],
    *,
    interval: float,
    watch: Watch | None = None,
) -> None:
    """Do the work of all three in one process, in turn. Other processes may share it.

    stop, say: as in `run_ingest`.
    interval: seconds to wait for records.
    """

    def work(service: Service) -> None:
        said = ""
        with worker_of(service) as worker:
            while not stop.is_set():
                done = worker.step(interval)
                service.watch.moved("run")
                if done.records:
                    say({"event": "counted", "records": done.records, "outcomes": dict(done.outcomes)})
                    # A model of half the log would be out of date at once, so counting catches up first.
                    continue
                said = _one_step(service, said, say)
                _publish_once(service, say)

    _persevere(settings, stop, say, work, watch)


@contextmanager
def worker_of(service: Service) -> Iterator[IngestWorker]:
    """Open the ingest worker of a service's process. It leaves its group at the end."""
    settings, names = service.settings, service.names
    session_ms = int(settings.session_timeout * 1000)
    membership = open_membership(service.log, names.documents, settings.consumer_group, session_ms)
    options = WorkerOptions(settings.linger, settings.heartbeat)
    worker = IngestWorker(
        service.log,
        names.documents,
        membership,
        service.open_ingest,
        options,
        clock=service.clock,
        watch=service.watch,
    )
    try:
        yield worker
    finally:
        worker.close()


def _one_step(service: Service, said: str, say: Callable[[dict[str, Any]], None]) -> str:
    """Decide and act once; return the decision in words. A decision that equals `said` is not reported again."""
    try:
        step = service.scheduler.step()
    except StateMissing as error:
        step = Step(Wait(f"not every partition has been counted yet: {error}"))
    else:
        service.clear_residue()
    text = decision_text(step.decision)
    if step.version is not None:
        say({"event": "staged", "version": step.version, "decision": _public(text), "seconds": dict(step.seconds)})
        return f"{text} (version {step.version})"
    if text != said or step.withdrawn:
        say({"event": "decided", "decision": _public(text), "withdrawn": list(step.withdrawn)})
    return text


def _public(decision: str) -> str:
    """Return a decision without the errors that it quotes, which may name words; `status` has all of it."""
    kind, _, reason = decision.partition(": ")
    return f"{kind}: {reason.partition(';')[0].partition(': ')[0]}"


def _publish_once(service: Service, say: Callable[[dict[str, Any]], None]) -> bool:
    """Publish versions, receipts and statements that wait; return whether there were any."""
    records = service.publisher.drain()
    receipts = service.issue_receipts()
    completed = service.issue_completion()
    service.statements.publish(changed=bool(records))
    if records or receipts or completed:
        say({"event": "published", "records": records, "receipts": receipts, "completed": completed})
    return bool(records or receipts or completed)


def _persevere(
    settings: Settings,
    stop: threading.Event,
    say: Callable[[dict[str, Any]], None],
    work: Callable[[Service], None],
    watch: Watch | None,
) -> None:
    """Do the work until `stop`, and open the service again after each failure that may pass."""
    pause = 0.0
    watch = watch or Watch()
    _leave_in_time(stop)
    while not stop.is_set():
        began = time.monotonic()
        try:
            with Service(settings, resident=True, watch=watch) as service:
                if service.layout is not None and not service.leads:
                    raise UsageError(f"another process already runs the instance in {settings.dir}: stop it first")
                service.connection.ping()
                with looked_at(service):
                    work(service)
        except (ComponentUnreachable, StateError) as error:
            # A state that is corrupt or does not fit stays so; a server that is full or still loading may recover.
            if isinstance(error, StateMismatch | StateCorrupt) and not isinstance(error, StateMissing):
                raise
            # A part that ran for a while was well: the pause grows only while attempts fail at once.
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = 0.0
            pause = min(max(2 * pause, 0.2), LONGEST_PAUSE)
            # Drawn at random, so that many processes do not come back to a broker in the same moment.
            pause *= random.uniform(0.8, 1.2)
            watch.waits(error, "unreachable" if isinstance(error, ComponentUnreachable) else "refused")
            say({"event": "waiting", "reason": str(error), "seconds": round(pause, 1)})
            stop.wait(pause)


def _leave_in_time(stop: threading.Event) -> None:
    """End the process a few seconds after it was told to stop, even in the middle of learning."""

    def leave() -> None:
        stop.wait()
        threading.Event().wait(GRACE)
        # Compiled code cannot be interrupted by an exception. Nothing is lost: state and offset move in one commit.
        os._exit(0)

    threading.Thread(target=leave, name="leave in time", daemon=True).start()
