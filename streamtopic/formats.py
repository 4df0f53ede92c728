"""The numbers of all formats of bytes, and the error about bytes of another number.

refusal   the text of an error about bytes of another number

A number changes with its bytes. This program reads and writes one number of each kind, and refuses every other.
"""

from dataclasses import dataclass

__all__ = [
    "STATE",
    "STORED_DOCUMENT",
    "Format",
    "refusal",
]


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of bytes.

    name: the thing in an error's text, such as "a release".
    number: of its format.
    remedy: what to do about another number.
    """

    name: str
    number: int
    remedy: str = "use the version of the program that wrote it; if it is newer, update this program"


_REBUILD = "run `streamtopic rebuild`, which counts the log again"

STATE = Format("the state in Redis", 14, _REBUILD)
STORED_DOCUMENT = Format("a stored document", 2, _REBUILD)


def refusal(of: Format, found: object, *, name: str = "") -> str:
    """Return the text of an error about bytes that this program does not read.

    of: their kind.
    found: the number that they have; anything, since others may have written it.
    name: the thing, if it is not `of.name`.
    """
    # Imported here: `streamtopic --help` must not read the metadata of packages.
    from importlib.metadata import version

    number = str(found)[:20]
    program = f"streamtopic {version('streamtopic')}"
    return f"{name or of.name} has format {number}, and {program} reads format {of.number}: {of.remedy}"
