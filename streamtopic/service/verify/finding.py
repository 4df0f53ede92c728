"""Findings: one check of a version each, with its outcome, its grounds and the remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamtopic.service.verify.relearn import Comparison, Verification

__all__ = ["RENEW", "Finding", "Source", "as_json", "fails", "holds", "not_checked", "passed", "relearned"]

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
