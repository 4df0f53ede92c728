"""Results of `streamtopic audit`, which an auditor attaches to a report."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.service.verify.finding import fails, holds, not_checked

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.service.verify.finding import Finding
    from streamtopic.signed import Envelope

__all__ = ["Audited", "read_audit"]

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
