"""Raise the layout of a model's state once every process is of this version, or take it back for the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.documents.events import keeps_days, keeps_subjects
from streamtopic.errors import StateError, StateMismatch, TakenOver, UsageError
from streamtopic.formats import STATE, refusal
from streamtopic.service.upkeep.rebuild_state import leading
from streamtopic.state.layout import Layouts, announce_layout, layouts, remove_rows, remove_traces, set_layout
from streamtopic.state.partition_writer import PartitionWriter
from streamtopic.state.removal import leader, recorded
from streamtopic.state.scripts import Stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.service.app import Service

__all__ = ["Upgraded", "found_layouts", "step_back", "upgrade"]


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A state after `upgrade` or `step_back`.

    before, after: layouts that were and are written.
    segments: number of segments whose rows were replaced by pairs.
    traces: number of waiting deletions that lost the trace of their request.
    """

    before: Layouts
    after: Layouts
    segments: int = 0
    traces: int = 0


def found_layouts(service: Service) -> Layouts:
    """Return the layouts of the service's model. Raises UsageError where it has no state, StateMismatch for others."""
    model = service.settings.model
    known = recorded(service.connection, model)
    if known is None:
        raise UsageError(f"there is no state of {model} yet: it gets layout {STATE.written} when it is made")
    found = layouts(service.connection, model, known.partitions)
    for layout in sorted(found.all, reverse=True):
        if layout not in STATE.read:
            raise StateMismatch(refusal(STATE, layout, name=f"the state of {model}", writer=found.program))
    return found


def upgrade(service: Service, update: Callable[[int, int | None], None]) -> Upgraded:
    """Give all partitions the newest layout, beside everything that runs. It may be killed anywhere and repeated.

    No data is moved: the layout says what writers may write from now on. Processes of the version before end at
    their next write, with an error that names both numbers.

    update: told how many partitions are done, of how many.
    """
    before = found_layouts(service)
    connection, model = service.connection, service.settings.model
    # First: from here on no program of the version before opens the model, so that none meets a partition half-way.
    announce_layout(connection, model, STATE.newest)
    for partition in range(len(before.partitions)):
        # Stale only where the partition has no state: it gets the model's layout with its first writer.
        set_layout(connection, model, partition, STATE.newest)
        update(partition + 1, len(before.partitions))
    return Upgraded(before, found_layouts(service))


def step_back(service: Service, update: Callable[[int, int | None], None]) -> Upgraded:
    """Give all partitions the layout of the version before. No other process may work on the model.

    Segments that the version before cannot read are written anew, from the counts that they hold. It may be killed
    anywhere and repeated; until it is through, the version before refuses the partitions that are left.

    Raises UsageError where a scheduler leads, StateError where another process takes a partition over.
    """
    before = found_layouts(service)
    connection, model = service.connection, service.settings.model
    limits = service.state.settings.limits
    if keeps_subjects(limits) or keeps_days(limits):
        raise UsageError(
            f"the state of {model} keeps subjects or days of documents, which the version before does not know: run "
            "`streamtopic rebuild` with that version"
        )
    other = leader(connection, model)
    # The lock of a folder says that nobody else is there; a lease may be left over from the last command.
    if other is not None and service.layout is None:
        raise UsageError(f"a scheduler leads ({other}): stop every process of the service, wait for `lease` to end")
    segments = traces = 0
    with leading(service):
        announce_layout(connection, model, STATE.oldest)
        try:
            for partition, layout in enumerate(before.partitions):
                if layout not in {0, STATE.oldest}:
                    rows, traced = _take_back(service, partition)
                    segments += rows
                    traces += traced
                update(partition + 1, len(before.partitions))
        except TakenOver:
            raise StateError(
                "an ingest process has taken a partition over: stop `ingest` and `run` everywhere, then run this again"
            ) from None
    return Upgraded(before, found_layouts(service), segments, traces)


def _take_back(service: Service, partition: int) -> tuple[int, int]:
    """Give one partition the oldest layout; return numbers of segments and traces that were replaced."""
    fixed = service.state.settings
    state = PartitionWriter.open(
        service.connection,
        service.settings.model,
        partition,
        partitions=fixed.partitions,
        weighting=fixed.weighting,
        partitioner=fixed.partitioner,
        limits=fixed.limits,
    )
    segments = remove_rows(state)
    traces = remove_traces(state, service.settings.model)
    result = set_layout(service.connection, service.settings.model, partition, STATE.oldest)
    if isinstance(result, Stale):
        raise StateError(f"partition {partition} was written meanwhile ({result.reason}): stop every process first")
    return segments, traces
