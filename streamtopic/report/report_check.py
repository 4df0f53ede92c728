"""A report read back from its file, and checked with a public key alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.report.rendering import shown
from streamtopic.report.version_report import DATA, report_page
from streamtopic.service.verify.claims import LIMITS, UNPROVEN, assumptions_of, statement_of
from streamtopic.service.verify.evidence import FORMAT, PROGRAM, signed_facts
from streamtopic.service.verify.finding import Finding
from streamtopic.service.verify.proof import Proof
from streamtopic.service.verify.release_checks import certificate_findings, reopened_finding

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.signed import Envelope, Verifier

__all__ = ["ReportFile", "read_report"]

# The file comes from a stranger, so what it costs to read is bounded.
_MOST_BYTES = 64 << 20
_EMBEDDED = re.compile(rf'<script type="application/json" id="{DATA}">([^<]*)</script>')
_FORGED = "do not rely on this file: ask the operator for the version itself"
_OTHER = "check it with the program that made it; what is signed counts"


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report read from its file.

    evidence: the values that `gather` returned to the report's maker.
    written: the page; None for a plain JSON file.
    """

    evidence: dict[str, Any]
    written: str | None

    def check(self, key: Verifier) -> tuple[Finding, ...]:
        """Compare the file with the bytes that `key` signed.

        Findings inside the file are its maker's word: the file says how to repeat them.
        """
        try:
            proof = Proof.parse(self.evidence["proof"])
            envelope, signer = proof.opened(key)
        except InvalidRelease as error:
            return (Finding("signature", passed=False, detail=str(error), source="signed", remedy=_FORGED),)
        told = f"key {signer} signed version {envelope.version} of {envelope.model}"
        return (
            Finding("signature", passed=True, detail=told, source="signed"),
            self._facts(envelope),
            self._words(envelope),
            reopened_finding(self.evidence, proof, envelope, key),
            *(certificate_findings(envelope) if envelope.unproven else ()),
            *((self._page(),) if self.written is not None else ()),
        )

    def _facts(self, envelope: Envelope) -> Finding:
        said, signed = self.evidence["envelope"], signed_facts(envelope)
        if envelope.revision == 0 and "revision" not in said:
            # Neither the signed bytes nor reports of an older program have this field.
            del signed["revision"]
        # Versions from before they named the one before, and reports on them, lack these.
        for name in ("previous", "commitment"):
            if not envelope.bound and name not in said:
                del signed[name]
        names = sorted(name for name in {*said, *signed} if said.get(name) != signed.get(name))
        # The report says these two once more outside the envelope, where its title takes them from.
        names += [name for name in ("model", "version") if self.evidence.get(name) != signed[name]]
        detail = f"{len(signed)} facts of the envelope are those that were signed"
        if names:
            detail = f"not what was signed: {', '.join(dict.fromkeys(names))}"
        return Finding("facts", not names, detail, "signed", _FORGED if names else "")

    def _words(self, envelope: Envelope) -> Finding:
        """Compare the claim and its limits with the words of this program."""
        claim = self.evidence["claim"]
        published = claim.get("published")
        ours, assumed = list(assumptions_of(published, envelope)), claim.get("assumptions")
        if envelope.unproven and isinstance(assumed, list) and UNPROVEN not in assumed:
            # The program that made the version could not know; a finding of its own says it instead.
            ours.remove(UNPROVEN)
        wording = [statement_of(published, envelope), ours, list(LIMITS)]
        same = wording == [claim.get("statement"), assumed, self.evidence.get("limits")]
        return self._compared(
            "wording", "promise, assumptions and limits are", "in this program's own words", same=same
        )

    def _page(self) -> Finding:
        """Compare the page that a person reads with the page that its data gives."""
        try:
            same = report_page(self.evidence) == self.written
        except Exception:  # noqa: BLE001 - a page that this program cannot write is not one that it wrote
            same = False
        return self._compared("page", "what the page shows is", "what its own data says", same=same)

    def _compared(self, name: str, what: str, as_expected: str, *, same: bool) -> Finding:
        """Return a finding on a part that this program writes itself; another version may have written it otherwise."""
        if same:
            return Finding(name, passed=True, detail=f"{what} {as_expected}", source="signed")
        detail = f"{what} not {as_expected}"
        if (program := self.evidence.get("program")) != PROGRAM:
            detail += f"; {shown(program)} wrote it, this is {PROGRAM}"
            return Finding(name, None, detail, "signed", _OTHER)
        return Finding(name, passed=False, detail=detail, source="signed", remedy=_FORGED)


def read_report(path: Path) -> ReportFile:
    """Read a report's file, .json or .html. Raises UsageError for a file that is not a report."""
    try:
        written = path.read_text(encoding="utf-8") if path.stat().st_size <= _MOST_BYTES else ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        # Not text, so not a report either: the refusal below says so.
        written = ""
    embedded = _EMBEDDED.search(written)
    try:
        evidence = json.loads(embedded[1] if embedded else written)
    except (ValueError, RecursionError):
        # Brackets nested thousands deep end in RecursionError.
        evidence = None
    if not isinstance(evidence, dict) or not all(isinstance(evidence.get(k), dict) for k in _NEEDED):
        raise UsageError(f"{path} is not a report: give a file that `streamtopic report VERSION --to FILE` wrote")
    if evidence.get("format") != FORMAT:
        raise UsageError(
            f"{path} is a report of format {evidence.get('format')}: this program reads {FORMAT}, update it"
        )
    return ReportFile(evidence, written if embedded else None)


_NEEDED = ("envelope", "proof", "claim")
