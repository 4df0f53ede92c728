"""Guarded writes: the Lua scripts in `lua/`, one a file, and the outcomes that they answer.

A script checks everything before its first write, recognises its own repetition, and answers a word that `outcome`
turns into a value. Values to write are plain arguments; the first argument says, as msgpack, which of them go where:
ranges of arguments are passed on as they are, without building tables.

A plan names the change that it is based on. Offsets, versions and tokens can coincide after Redis was restored from an
older snapshot and moved on; the id of the last change cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["AlreadyApplied", "Applied", "Outcome", "Stale", "outcome"]

_FOLDER = files("streamtopic.state") / "lua"


def _text(*names: str) -> str:
    """Return files of `lua/` as one script."""
    return "\n".join((_FOLDER / f"{name}.lua").read_text(encoding="utf-8") for name in names)


# A hash, read by everyone.
SCAN_HASH = _text("scan_hash")

# A partition, written by its one writer; epochs begin by the scheduler.
CLAIM_PARTITION = _text("claim_partition")
READ_DOCUMENTS = _text("read_documents")
COMMIT_FLUSH = _text("hash_slices", "commit_flush")
SWAP_SEGMENTS = _text("hash_slices", "swap_segments")
NOTE_ERASED = _text("note_erased")
BEGIN_EPOCH = _text("begin_epoch")

# What a model has once, written by the leading scheduler and by whoever asks something of it.
CREATE_MODEL = _text("create_model")
ACQUIRE_LEASE = _text("acquire_lease")
RELEASE_LEASE = _text("release_lease")
STAGE_VERSION = _text("stage_version")
ADOPT_VERSION = _text("leads", "adopt_version")
WITHDRAW_VERSIONS = _text("leads", "withdraw_versions")
DROP_BASE = _text("leads", "drop_base")
FULFIL_REQUEST = _text("fulfil_request")
NEXT_STATEMENT = _text("next_statement")

# Receipts, written by the publisher.
APPEND_RECEIPTS = _text("append_receipts")

# A rebuild, which takes partitions and lease from whoever has them.
SEIZE_LEASE = _text("seize_lease")
REMOVE_POSITION = _text("remove_position")
PUT_FORGETS = _text("put_forgets")


@dataclass(frozen=True, slots=True)
class Applied:
    """It was written now."""


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """It had been written before, so nothing was written now: success."""


@dataclass(frozen=True, slots=True)
class Stale:
    """It was based on a state that has changed since, and nothing was written: read again, then decide anew."""

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
