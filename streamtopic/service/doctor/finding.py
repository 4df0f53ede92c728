"""One line of what the doctor says."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "fail", "ok", "warn"]


class Level(StrEnum):
    """How bad it is: fine, worth a look, or something will not work or be lost."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and, unless that is fine, what to do."""

    name: str
    level: Level
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, Level.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    """It works, but not as well or as long as it might."""
    return Finding(name, Level.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str) -> Finding:
    """It does not work, or data will be lost."""
    return Finding(name, Level.FAIL, detail, remedy)
