"""One thing that was checked about a version, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamtopic.service.verify.relearn import Comparison, Verification

__all__ = ["RENEW", "Finding", "Source", "as_json", "passed", "relearned"]

Source = Literal["signed", "log", "records", "relearned", "audit"]
"""The grounds of a finding: the signed release; records of the log, each signed; the records in Redis; the documents of
the log, counted and learned from again; a file that `streamtopic audit` wrote."""

RENEW = "`streamtopic retrain` begins a base whose certificates are proven, and withdraws such versions"

_ERASED = (
    "what was deleted has left the log, so only models made from now on can be learned again: `streamtopic retrain`, "
    "then `streamtopic verify`"
)
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


def relearned(verification: Verification, *, exact: bool = False) -> tuple[Finding, ...]:
    """Return the findings of counting and learning again, with remedies.

    exact: with figures of models before noise. Only the operator may see these; a report never has them.
    """
    return tuple(
        Finding(check.name, check.passed, _told(check, exact=exact), "relearned", _remedy(check))
        for check in verification.checks
    )


def _told(check: Comparison, *, exact: bool) -> str:
    return f"{check.detail}; {check.exact}" if exact and check.exact else check.detail


def passed(findings: Iterable[Finding]) -> bool:
    """Whether no check failed; a check that could not be made has not failed."""
    return all(finding.passed is not False for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON has them."""
    return [asdict(finding) for finding in findings]


def _remedy(check: Comparison) -> str:
    if check.passed:
        return ""
    if check.passed is None:
        if "older program" in check.detail:
            return RENEW
        return _ERASED if "erased" in check.detail else _UNCHECKED.get(check.name, _ERASED)
    return _REMEDIES.get(check.name, "`streamtopic doctor` says what is wrong with the service")
