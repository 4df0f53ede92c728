"""Findings: one check each, with its outcome and the remedy. The result of `streamtopic audit` becomes one, too."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streamtopic.signed import Envelope

__all__ = ["Audited", "Finding", "as_json", "fails", "holds", "not_checked", "passed", "read_audit"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    passed: None if the check could not be made, and `detail` says why.
    remedy: the next thing to do, unless the check passed.
    """

    name: str
    passed: bool | None
    detail: str
    remedy: str = ""


def holds(name: str, detail: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(name, True, detail)  # noqa: FBT003  the outcome is this function's name


def fails(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that failed."""
    return Finding(name, False, detail, remedy)  # noqa: FBT003  as above


def not_checked(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that could not be made."""
    return Finding(name, None, detail, remedy)


def passed(findings: Iterable[Finding]) -> bool:
    """Whether no check failed; a check that could not be made has not failed."""
    return all(finding.passed is not False for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON values: name, passed, detail and remedy of each."""
    return [asdict(finding) for finding in findings]


# A result has some kilobytes; a file of another kind is not read into memory.
_MOST_BYTES = 4 << 20
_CLAIMED = ("epsilon", "delta")


@dataclass(frozen=True, slots=True)
class Audited:
    """The content of a file that `streamtopic audit --json` printed.

    result: the JSON object.
    sha256: of the file, hexadecimal.
    """

    result: dict[str, Any]
    sha256: str

    def finding(self, envelope: Envelope) -> Finding:
        """Return whether the audit passed, and whether it attacked the claim of this version."""
        # An audit attacks the mechanism, on deletions made up for the purpose, and not the bytes of one version. So it
        # speaks of this version only if the claims are the same.
        if not self.result["passed"]:
            detail = "an attack tells more than the claim allows, or it missed a fault that was built in"
            return fails("audit", detail, "do not rely on the claim")
        others = _differing(self.result.get("claim"), envelope)
        if others:
            detail = f"it passed, but its claim has another {', '.join(others)} than this version"
            return not_checked("audit", detail, "run `streamtopic audit` with this version's settings")
        lower = self.result.get("epsilon_lower")
        least = f"{lower:.6g}" if isinstance(lower, int | float) else "-"
        detail = f"attacks show epsilon to be at least {least}, no more than claimed"
        return holds("audit", detail)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"sha256": self.sha256, "result": self.result}


def _differing(claim: object, envelope: Envelope) -> list[str]:
    """Return the names of the parameters in which an audit's claim differs from a version's."""
    if not isinstance(claim, dict):
        return []
    differing = []
    for name in _CLAIMED:
        claimed = claim.get(name)
        if isinstance(claimed, int | float) and claimed != getattr(envelope, name):
            differing.append(name)
    return differing


def read_audit(path: Path) -> Audited:
    """Return the content of a file that `streamtopic audit --json` printed. Raises UsageError for any other file."""
    try:
        data = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else b""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        # JSON knows no infinities and no NaN, though Python writes them.
        result = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict) or not isinstance(result.get("passed"), bool):
        raise UsageError(f"{path} is not the result of an audit: give what `streamtopic audit --json` printed")
    return Audited(result, hashlib.sha256(data).hexdigest())
