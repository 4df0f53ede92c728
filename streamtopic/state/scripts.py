"""Guarded writes: the Lua scripts in `lua/`, one a file, and the outcomes that they answer.

A script checks everything before its first write, recognises its own repetition, and answers with a word that
`outcome` turns into a value. The first argument of a large script is its plan (msgpack); the plan says which ranges of
the other arguments go where.

A plan names the change that it is based on. Offsets, versions and tokens may count up to the same numbers again after
Redis was set back to an older snapshot; the id of the last change cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["UPLOAD_SECONDS", "AlreadyApplied", "Applied", "Outcome", "Stale", "outcome"]

UPLOAD_SECONDS = 600
"""Life of a string that is uploaded before its commit, seconds. A commit keeps its strings; those of a process that
died expire by themselves."""

_FOLDER = files("streamtopic.state") / "lua"


def _text(*names: str) -> str:
    """Return files of `lua/` as one script."""
    return "\n".join((_FOLDER / f"{name}.lua").read_text(encoding="utf-8") for name in names)


# Read by everyone.
SCAN_HASH = _text("scan_hash")
READ_BUCKETS = _text("read_buckets")

# A partition is written by its one writer.
CLAIM_PARTITION = _text("lasting_stream", "claim_partition")
READ_DOCUMENTS = _text("read_documents")
COMMIT_FLUSH = _text("commit_flush")
SUM_CHANGES = _text("sum_changes")

# A model's own keys are written by the leading scheduler. FULFIL_REQUEST needs no lease: a request is removed by its
# unique value.
CREATE_MODEL = _text("create_model")
ACQUIRE_LEASE = _text("acquire_lease")
RELEASE_LEASE = _text("release_lease")
STAGE_VERSION = _text("stage_version")
ADOPT_VERSION = _text("leads", "adopt_version")
WITHDRAW_VERSIONS = _text("leads", "withdraw_versions")
WRITE_COUNTS = _text("leads", "write_counts")
FULFIL_REQUEST = _text("fulfil_request")

# The index of the ledger follows its topic, whoever reads it: the offset that was reached is compared.
SAVE_INDEX = _text("save_index")

# Requests are received and cancelled by whoever may; only the leading scheduler moves them on.
RECEIVE_DELETION = _text("receive_deletion")
MOVE_DELETION = _text("leads", "move_deletion")

# A rebuild takes partitions and lease from their holders.
SEIZE_LEASE = _text("seize_lease")
REMOVE_POSITION = _text("lasting_stream", "remove_position")
PUT_FORGETS = _text("lasting_stream", "put_forgets")


@dataclass(frozen=True, slots=True)
class Applied:
    """The change was written now."""


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
            return Applied()
        case b"already":
            return AlreadyApplied()
        case _:
            return Stale(answer[1].decode())
