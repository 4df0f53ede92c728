"""Findings: one check each, with its outcome and the remedy. The doctor and a verification make them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Finding", "as_json", "doubt", "fails", "holds", "passed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    passed: None if the check could not be made, or if something that works is worth a look; `detail` says why.
    remedy: the next thing to do, unless the check passed.
    """

    name: str
    passed: bool | None
    detail: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """A line for a person: the facts, and what to do about them."""
        return f"{self.detail}: {self.remedy}" if self.remedy else self.detail


def holds(name: str, detail: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(name, True, detail)  # noqa: FBT003  the outcome is this function's name


def fails(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that failed."""
    return Finding(name, False, detail, remedy)  # noqa: FBT003  as above


def doubt(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that could not be made, or that found what is worth a look."""
    return Finding(name, None, detail, remedy)


def passed(findings: Iterable[Finding]) -> bool:
    """Whether no check failed; a check that could not be made has not failed."""
    return all(finding.passed is not False for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON values: name, passed, detail and remedy of each."""
    return [asdict(finding) for finding in findings]
