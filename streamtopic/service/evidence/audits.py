"""The result of `streamtopic audit`, as an auditor attaches it to a report."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.service.evidence.finding import Finding

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Audited", "read_audit"]

_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Audited:
    """What a file says: result, the object that `audit --json` printed; sha256 of the file, hexadecimal."""

    result: dict[str, Any]
    sha256: str

    def finding(self) -> Finding:
        """Say whether the audit passed. It is of the mechanism on made-up deletions, not of one version."""
        passed = self.result["passed"]
        detail = "the attacks found no more than the claim allows, and every control was caught"
        if not passed:
            detail = "an attack tells more than the claim allows, or a control was missed: see the audit's own result"
        return Finding("audit", passed, detail, "audit", "" if passed else "do not rely on the claim; report it")

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {"sha256": self.sha256, "result": self.result}


def read_audit(path: Path) -> Audited:
    """Read a file that `streamtopic audit --json` printed. Raises UsageError for one that is no such thing."""
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
        raise UsageError(f"{path} is no result of an audit: give what `streamtopic audit --json` printed")
    return Audited(result, hashlib.sha256(data).hexdigest())
