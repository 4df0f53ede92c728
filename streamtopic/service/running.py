"""Finds the processes that work on a model now, as far as Redis and Kafka know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.state.removal import leader

if TYPE_CHECKING:
    from streamtopic.service.assembly import Parts

__all__ = ["running"]


def running(parts: Parts, own: str = "") -> list[str]:
    """Return a sentence for each process that works on the model; [] where none does.

    own: name of a holder of the lease that does not count, as of a command that was killed.

    A scheduler is seen by its lease, ingest processes by their consumer group, and every process of an instance in a
    folder by the lock on it. Nobody can see a publisher: it holds nothing.
    """
    settings = parts.settings
    if parts.layout is not None:
        # The lock is this process's own, or another process has it. A lease may be left over from the last command.
        return [] if parts.leads else [f"a process runs the instance in {settings.dir}"]
    found = []
    holder = leader(parts.connection, settings.model)
    if holder not in {None, own}:
        found.append(f"a scheduler leads ({holder})")
    members = parts.log.members(settings.consumer_group)
    if members:
        hosts = ", ".join(sorted(set(members)))
        found.append(f"{len(members)} ingest process(es) count ({hosts})")
    return found
