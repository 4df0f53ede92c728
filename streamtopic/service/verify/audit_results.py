"""The result of `streamtopic audit`, as an auditor attaches it to a report."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.service.verify.finding import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.signed import Envelope

__all__ = ["Audited", "read_audit"]

_MOST_BYTES = 4 << 20
_CLAIMED = ("epsilon", "delta")


@dataclass(frozen=True, slots=True)
class Audited:
    """What a file says: result, the object that `audit --json` printed; sha256 of the file, hexadecimal."""

    result: dict[str, Any]
    sha256: str

    def finding(self, envelope: Envelope) -> Finding:
        """Say whether the audit passed, and whether it attacked what this version claims.

        It is of the mechanism, on deletions made up for the purpose, not of one version's bytes.
        """
        passed, claim = self.result["passed"], self.result.get("claim")
        if not passed:
            detail = "an attack tells more than the claim allows, or a fault that was built in was missed"
            return Finding("audit", passed=False, detail=detail, source="audit", remedy="do not rely on the claim")
        others = [name for name in _CLAIMED if isinstance(claim, dict) and _differs(claim.get(name), envelope, name)]
        if others:
            detail = f"it passed, on a claim of other {', '.join(others)} than this version's"
            return Finding("audit", None, detail, "audit", "run `streamtopic audit` with this version's settings")
        lower = self.result.get("epsilon_lower")
        least = f"{lower:.6g}" if isinstance(lower, int | float) else "-"
        detail = f"attacks show epsilon to be at least {least}, no more than claimed"
        return Finding("audit", passed=True, detail=detail, source="audit")

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {"sha256": self.sha256, "result": self.result}


def _differs(claimed: object, envelope: Envelope, name: str) -> bool:
    return isinstance(claimed, int | float) and claimed != getattr(envelope, name)


def read_audit(path: Path) -> Audited:
    """Read a file that `streamtopic audit --json` printed. Raises UsageError for one that is not such a thing."""
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
