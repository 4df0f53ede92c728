"""Findings: one check of a version each, with its outcome, its grounds and the remedy.

The result of `streamtopic audit`, which an auditor attaches to a report, is read here and becomes a finding.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streamtopic.service.verify.relearn import Comparison, Verification
    from streamtopic.signed import Envelope

__all__ = [
    "RENEW",
    "Audited",
    "Finding",
    "Source",
    "as_json",
    "fails",
    "holds",
    "not_checked",
    "passed",
    "read_audit",
    "relearned",
]


Source = Literal["signed", "log", "records", "relearned", "audit"]
"""The grounds of a finding.

signed: the signed release.
log: records of the log, each of them signed.
records: the records in Redis.
relearned: the documents of the log, counted and learned from again.
audit: a file that `streamtopic audit` wrote.
"""

RENEW = "`streamtopic retrain` begins a base whose certificates are proven, and withdraws such versions"

_ERASED = (
    "deleted documents have left the log, so only models made from now on can be learned again: `streamtopic "
    "retrain`, then `streamtopic verify`"
)
# By the name of a comparison that found a difference.
_REMEDIES = {
    "counts": "do not trust this state: keep a copy of it, then `streamtopic rebuild --yes` and `streamtopic verify`",
    "base model": "`streamtopic retrain` makes a base that can be checked; verify with the settings it was made with",
    "newest version": "do not use this version: keep a copy of the log, then `streamtopic retrain`",
    "this version": "do not use this version: keep a copy of the log, and take a later one",
    "commitment": "do not use this version: keep a copy of the log, then `streamtopic retrain`",
    "heads": "do not use its heads: keep a copy of the log, then `streamtopic retrain`",
    "settings": "verify with the settings that the version was made with (`--config`, `--set`)",
    "model": "`streamtopic status` says why no model can be made of these documents",
}
# By the name of a comparison that could not be made.
_UNCHECKED = {
    "counts": "run it again once `streamtopic status` shows no lag",
    "newest version": "verify where the noise key is, on a version that is not withdrawn",
    "this version": "verify where the noise key is, on a version that is not withdrawn",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    passed: None where the check could not be made, and `detail` says why.
    remedy: the next thing to do, unless the check passed.
    """

    name: str
    passed: bool | None
    detail: str
    source: Source
    remedy: str = ""


def holds(name: str, detail: str, source: Source) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(name, True, detail, source)  # noqa: FBT003  the outcome is this function's name


def fails(name: str, detail: str, source: Source, remedy: str) -> Finding:
    """Return the finding of a check that failed."""
    return Finding(name, False, detail, source, remedy)  # noqa: FBT003  as above


def not_checked(name: str, detail: str, source: Source, remedy: str) -> Finding:
    """Return the finding of a check that could not be made."""
    return Finding(name, None, detail, source, remedy)


def relearned(verification: Verification, *, exact: bool = False) -> tuple[Finding, ...]:
    """Return the findings of counting and learning again, with remedies.

    exact: with figures of models before noise. Only the operator may see these; a report never has them.
    """
    findings = []
    for check in verification.checks:
        detail = f"{check.detail}; {check.exact}" if exact and check.exact else check.detail
        findings.append(Finding(check.name, check.passed, detail, "relearned", _remedy(check)))
    return tuple(findings)


def passed(findings: Iterable[Finding]) -> bool:
    """Whether no check failed; a check that could not be made has not failed."""
    return all(finding.passed is not False for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON values."""
    return [asdict(finding) for finding in findings]


def _remedy(check: Comparison) -> str:
    if check.passed:
        return ""
    if check.passed is None:
        # One comparison has several reasons why it cannot be made, told apart by their texts in `relearn`.
        if "older program" in check.detail:
            return RENEW
        if "erased" in check.detail:
            return _ERASED
        return _UNCHECKED.get(check.name, _ERASED)
    return _REMEDIES.get(check.name, "`streamtopic doctor` says what is wrong with the service")


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
        # speaks of this version only where the claims are the same.
        if not self.result["passed"]:
            detail = "an attack tells more than the claim allows, or it missed a fault that was built in"
            return fails("audit", detail, "audit", "do not rely on the claim")
        others = _differing(self.result.get("claim"), envelope)
        if others:
            detail = f"it passed, but its claim has another {', '.join(others)} than this version"
            return not_checked("audit", detail, "audit", "run `streamtopic audit` with this version's settings")
        lower = self.result.get("epsilon_lower")
        least = f"{lower:.6g}" if isinstance(lower, int | float) else "-"
        detail = f"attacks show epsilon to be at least {least}, no more than claimed"
        return holds("audit", detail, "audit")

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
