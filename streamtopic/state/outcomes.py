"""What became of a guarded write."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AlreadyApplied", "Applied", "Outcome", "Stale", "outcome"]


@dataclass(frozen=True, slots=True)
class Applied:
    """It was written now."""


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """It had been written before, so nothing was written now: success."""


@dataclass(frozen=True, slots=True)
class Stale:
    """It was based on a state that is no longer, and nothing was written: read again, then decide anew."""

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
