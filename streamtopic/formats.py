"""The numbers of all formats of bytes: those that this program writes, those that it reads, and its error about others.

TABLE     all formats; a module takes the numbers of its bytes from here
refusal   the text of an error about bytes of another number

A number changes where an older program would misread new bytes, or refuse them as damage. State is the only thing that
two versions of the program write at the same time. So the state says itself which layout is written into it, and
only `streamtopic upgrade` changes that (docs/decisions/0055-upgrades.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BACKUP",
    "COMPLETION",
    "DELETION_STATEMENT",
    "KEY_LIST",
    "RECEIPT",
    "RELEASE",
    "REPORT",
    "ROWS_FROM",
    "SETTINGS",
    "STATE",
    "STATEMENT",
    "STORED_DOCUMENT",
    "TABLE",
    "TRACES_FROM",
    "Format",
    "program",
    "refusal",
]


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of bytes.

    name: the thing in an error's text, such as "a release".
    written: number that this program writes.
    read: all numbers that this program reads.
    newer: remedy where the number is larger than these.
    older: remedy where it is smaller.
    number: name of the number.
    """

    name: str
    written: int
    read: Sequence[int]
    newer: str
    older: str = "use the version of the program that wrote it"
    number: str = "format"

    @property
    def oldest(self) -> int:
        """The smallest number that is read."""
        return min(self.read)

    @property
    def newest(self) -> int:
        """The largest number that is read."""
        return max(self.read)

    @property
    def numbers(self) -> str:
        """The numbers that are read, in words."""
        return " and ".join(map(str, self.read))


_UPDATE = "update this program"
_COUNT_ANEW = "or count the state anew from the log with this one (`streamtopic rebuild`)"

STATE = Format(
    "the state in Redis",
    written=4,
    read=(3, 4),
    newer=f"use the version of the program that wrote it, {_COUNT_ANEW}",
    older=f"use the version of the program that wrote it, {_COUNT_ANEW}",
    number="layout",
)
"""Layout of a model's keys, and the meaning of their numbers. New states have the newest layout; a state that is there
keeps its own until `streamtopic upgrade`."""

ROWS_FROM = 4
"""Layout from which on a segment may hold the rows of its documents in the place of their pairs."""

TRACES_FROM = 4
"""Layout from which on a deletion that waits for its receipt may name the trace of its request."""

STORED_DOCUMENT = Format("a stored document", 1, (1,), newer=_COUNT_ANEW.removeprefix("or "))
RELEASE = Format("a release", 1, (1,), newer=_UPDATE)
STATEMENT = Format("a statement", 1, (1,), newer=_UPDATE)
KEY_LIST = Format("a key list", 1, (1,), newer=_UPDATE)
RECEIPT = Format("a receipt", 3, (2, 3), newer=_UPDATE)
COMPLETION = Format("a signed completion", 1, (1,), newer=_UPDATE)
DELETION_STATEMENT = Format("a statement of a deleted model", 1, (1,), newer=_UPDATE)
REPORT = Format("a report", 1, (1,), newer=_UPDATE)
BACKUP = Format("a backup", 1, (1,), newer="restore it with the program that wrote it")
SETTINGS = Format("the settings", 1, (1,), newer="use the version of the program that they were written for")

TABLE = (
    STATE,
    STORED_DOCUMENT,
    RELEASE,
    STATEMENT,
    KEY_LIST,
    RECEIPT,
    COMPLETION,
    DELETION_STATEMENT,
    REPORT,
    BACKUP,
    SETTINGS,
)


def program() -> str:
    """Return the version of this program, such as "0.2.0"."""
    # Imported here: `streamtopic --help` must not read the metadata of packages.
    from importlib.metadata import version

    return version("streamtopic")


def refusal(of: Format, found: object, *, name: str = "", writer: str = "") -> str:
    """Return the text of an error about bytes that this program does not read.

    of: their kind.
    found: the number that they have; anything, since others may have written it.
    name: the thing, where it is not `of.name`.
    writer: version of the program that wrote it, "" where that is not known.
    """
    number = str(found)[:20]
    newer = number.isdecimal() and int(number) > of.newest
    remedy = of.newer if newer else of.older
    by = f", written by streamtopic {writer}" if writer else ""
    if newer and not writer:
        by = ", written by a newer program"
    thing = name or of.name
    return f"{thing} has {of.number} {number}{by}; this program, streamtopic {program()}, reads {of.numbers}: {remedy}"
