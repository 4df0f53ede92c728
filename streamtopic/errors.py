"""Every error a user can meet, in one tree.

    StreamtopicError               exit status
    ├── UsageError                     2   wrong arguments or input
    │   └── SettingsError              2
    ├── ComponentUnreachable           3   Redis, Kafka or a file store cannot be reached
    │   └── ComponentFull              3   its memory or disk is full
    ├── InvalidEvent                   1   a record that is not a valid event (reason code in `.reason`)
    ├── CountsError                    1
    │   ├── NegativeCounts             1   a document was subtracted that was never counted
    │   └── CountsOverflow             1   a sum would leave int64
    ├── StateError                     1   the state in Redis does not fit the request
    │   ├── StateMismatch              1   made with another partition count, weighting, schema or key
    │   │   ├── StateMissing           1   nothing has been counted into this Redis yet
    │   │   └── TakenOver              1   another process writes this partition now
    │   └── StateCorrupt               1   something in Redis is damaged or lost
    ├── CannotLearn                    1   no model can be made of these counts (`.reason`)
    ├── UnreliableArithmetic           1   this machine's floating point is not IEEE 754's
    ├── InvalidRelease                 1   signature, digest or order of a release is wrong
    │   ├── UnknownKey                 1   signed with a key that the reader does not know
    │   └── StaleRelease               1   a release without a recent statement that it is the newest
    └── CheckFailed                    1   a verification found a difference

Errors from other packages are mapped to these where they enter: `state` for Redis, `streams` for logs.
"""

__all__ = [
    "CannotLearn",
    "CheckFailed",
    "ComponentFull",
    "ComponentUnreachable",
    "CountsError",
    "CountsOverflow",
    "InvalidEvent",
    "InvalidRelease",
    "NegativeCounts",
    "SettingsError",
    "StaleRelease",
    "StateCorrupt",
    "StateError",
    "StateMismatch",
    "StateMissing",
    "StreamtopicError",
    "TakenOver",
    "UnknownKey",
    "UnreliableArithmetic",
    "UsageError",
]


class StreamtopicError(Exception):
    """Base of all errors raised on purpose; its text is one line that names the thing and the remedy."""

    exit_status = 1


class UsageError(StreamtopicError):
    """Arguments or input that cannot be used."""

    exit_status = 2


class SettingsError(UsageError):
    """A setting that is unknown, malformed or out of range."""


class ComponentUnreachable(StreamtopicError):
    """A server or store that the program needs does not answer."""

    exit_status = 3


class ComponentFull(ComponentUnreachable):
    """A server that answers has no room for a write: its memory or its disk is full."""


class InvalidEvent(StreamtopicError):
    """A record of the documents topic that is not a valid event; `reason` is a short stable code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CountsError(StreamtopicError):
    """Counts that cannot be right."""


class NegativeCounts(CountsError):
    """A sum fell below zero: something was subtracted that was never added."""


class CountsOverflow(CountsError):
    """A sum would not fit into 64 bits."""


class StateError(StreamtopicError):
    """State in Redis that does not fit the request."""


class StateMismatch(StateError):
    """State made with other settings, partitions or schema."""


class StateMissing(StateMismatch):
    """Redis holds no state of a partition: no ingest has ever opened it there."""


class TakenOver(StateMismatch):
    """Another process has become the writer of a partition."""


class StateCorrupt(StateError):
    """State that fails its checksum or is missing a part."""


class CannotLearn(StreamtopicError):
    """No model can be made of these counts; `reason` is a short stable code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreliableArithmetic(StreamtopicError):
    """A computation with a known answer gave another one: decisions here could differ from those of other machines."""


class InvalidRelease(StreamtopicError):
    """A release whose signature, digest, order or form is wrong."""


class UnknownKey(InvalidRelease):
    """A signature of a key that the reader does not know: a forgery, or a key that has come into use since."""


class StaleRelease(InvalidRelease):
    """A release that is stale: within the last `max_age`, no signed statement has called it the newest."""


class CheckFailed(StreamtopicError):
    """A verification that found a difference."""
