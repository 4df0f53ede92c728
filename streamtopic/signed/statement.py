"""What is the newest version, said and signed again and again, so that nobody can withhold one or put one back.

A log can be cut short, a record in it erased or written again by whoever may write to it, and every signature in it
still holds. A statement says what must be there, and when that was so.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import pack, unpack
from streamtopic.signed.sealed import open_sealed, seal
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = [
    "KEYS_KEY",
    "STATEMENT_KEY",
    "Statement",
    "keys_message",
    "open_statement",
    "seal_statement",
    "statement_message",
]

FORMAT = 1
KIND = "statement"
STATEMENT_KEY = b"st:statement"
KEYS_KEY = b"st:keys"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a service says of its releases topic, after it has read it to its end.

    sequence: number of the statement; it only grows. made: milliseconds since 1970. interval: milliseconds within which
    the next one is promised, 0 where none is. newest: version, 0 before the first; digest: SHA-256 of its sealed
    bytes, "" before the first. withdrawn: versions that must not be used.
    """

    model: str
    sequence: int
    made: int
    interval: int
    newest: int
    digest: str
    withdrawn: tuple[int, ...] = ()
    format: int = FORMAT


def seal_statement(statement: Statement, key: SigningKey) -> bytes:
    """Signed bytes of a statement."""
    return seal(KIND, {"statement": pack(dataclasses.asdict(statement))}, key)


def open_statement(data: bytes, key: Verifier) -> Statement:
    """The statement in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    sealed = open_sealed(KIND, data, key)
    try:
        fields: dict[str, Any] = unpack(sealed.parts["statement"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(f"a statement of format {fields['format']}: this program reads {FORMAT}, update it")
        numbers = {name: int(fields[name]) for name in ("sequence", "made", "interval", "newest")}
        withdrawn = tuple(int(version) for version in fields["withdrawn"])
        found = Statement(model=str(fields["model"]), digest=str(fields["digest"]), withdrawn=withdrawn, **numbers)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRelease(f"a signed statement has malformed fields ({error}): update this program") from error
    key.admit(sealed.key, KIND, found.sequence, sealed.digest)
    return found


def statement_message(data: bytes) -> Message:
    """Record of a sealed statement; compaction keeps the last one."""
    return Message(STATEMENT_KEY, data, partition=0)


def keys_message(data: bytes) -> Message:
    """Record of a sealed key list."""
    return Message(KEYS_KEY, data, partition=0)
