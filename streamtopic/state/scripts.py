"""Guarded writes: the Lua scripts in `lua/`, of which `Connection.change` runs one for nearly all; and their outcomes.

A script checks everything before its first write, and recognises its own repetition. A change names what it is based
on. Offsets, versions and tokens may count up to the same numbers again after Redis was set back to an older snapshot;
the id of the last change cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

__all__ = ["UPLOAD_SECONDS", "AlreadyApplied", "Applied", "Check", "Command", "Outcome", "Stale", "outcome"]

UPLOAD_SECONDS = 600
"""Life of a string that is uploaded before its commit, seconds. A commit keeps its strings; those of a process that
died expire by themselves."""

Command = Sequence[str | bytes | int]

Check = tuple[Command, str | bytes, str]
"""A command that reads, its answer as text if the change may be made, and the reason to give if it is another one. Of
an answer of several parts the last one counts; "" is no answer."""

_FOLDER = files("streamtopic.state") / "lua"


def _text(*names: str) -> str:
    """Return files of `lua/` as one script."""
    return "\n".join((_FOLDER / f"{name}.lua").read_text(encoding="utf-8") for name in names)


CHANGE = _text("change")
READ_BUCKETS = _text("read_buckets")

# A partition is written by its one writer, and a rebuild takes it from that.
CLAIM_PARTITION = _text("lasting_stream", "claim_partition")
READ_DOCUMENTS = _text("read_documents")
REMOVE_POSITION = _text("lasting_stream", "remove_position")
PUT_FORGETS = _text("lasting_stream", "put_forgets")

# A model's own keys are written by the leading scheduler; requests are received by whoever may.
ACQUIRE_LEASE = _text("acquire_lease")
RECEIVE_DELETION = _text("receive_deletion")


@dataclass(frozen=True, slots=True)
class Applied:
    """The change was written now.

    at_ms: when, by Redis's clock, milliseconds since 1970; 0 if nobody asked.
    """

    at_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The change had been written before, so nothing was written now. This is a success."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The change was based on a state that has changed since, so nothing was written: read again, then decide again."""

    reason: str


Outcome = Applied | AlreadyApplied | Stale


def outcome(answer: Sequence[bytes]) -> Outcome:
    """Return the value for a script's answer."""
    match answer[0]:
        case b"applied":
            return Applied(*map(int, answer[1:]))
        case b"already":
            return AlreadyApplied()
        case _:
            return Stale(answer[1].decode())
