"""Statements: the service signs again and again which version is the newest, so that nobody can withhold one.

Whoever may write to a log can cut it short, erase a record or write an old one again, and every signature in it still
holds. A statement says which versions must be there, and when that was so.
"""

import dataclasses
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.sealed import open_sealed, pack, reading_fields, seal, unpack_fields
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
# One key for all statements and one for all key lists, so that compaction keeps the newest of each.
STATEMENT_KEY = b"st:statement"
KEYS_KEY = b"st:keys"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about a releases topic that the service has read to its end.

    sequence: number of the statement; it only grows.
    made: milliseconds since 1970.
    interval: milliseconds within which the service promises the next statement; 0 if it promises no other.
    newest: number of the newest version; 0 before the first.
    digest: SHA-256 of its sealed bytes, hexadecimal; "" before the first.
    withdrawn: versions that must not be used.
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
    """Return the signed bytes of a statement."""
    return seal(KIND, {"statement": pack(dataclasses.asdict(statement))}, key)


def open_statement(data: bytes, key: Verifier) -> Statement:
    """Return the statement in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    sealed = open_sealed(KIND, data, key)
    with reading_fields("statement"):
        fields = unpack_fields(sealed.parts["statement"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(f"a statement of format {fields['format']}: this program reads {FORMAT}, update it")
        found = Statement(
            model=str(fields["model"]),
            sequence=int(fields["sequence"]),
            made=int(fields["made"]),
            interval=int(fields["interval"]),
            newest=int(fields["newest"]),
            digest=str(fields["digest"]),
            withdrawn=tuple(int(version) for version in fields["withdrawn"]),
        )
    # Only now is the number known that a revoked key is asked about.
    key.admit(sealed.key, KIND, found.sequence, sealed.digest)
    return found


def statement_message(data: bytes) -> Message:
    """Return the record of a sealed statement, for the releases topic."""
    return Message(STATEMENT_KEY, data, partition=0)


def keys_message(data: bytes) -> Message:
    """Return the record of a sealed key list, for the releases topic."""
    return Message(KEYS_KEY, data, partition=0)
