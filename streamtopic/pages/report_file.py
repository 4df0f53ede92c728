"""The page of a version read from its file, and checked with a public key alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.formats import REPORT, refusal
from streamtopic.pages.rendering import shown
from streamtopic.pages.version_page import DATA, version_page
from streamtopic.service.verify.evidence import FORMAT, PROGRAM, proof_facts
from streamtopic.service.verify.finding import Finding, doubt, fails, holds
from streamtopic.service.verify.release_checks import entry_facts
from streamtopic.signed import Envelope, LedgerProof

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from streamtopic.signed import KeyRing

__all__ = ["ReportFile", "read_report"]

# The file comes from a stranger, so the cost of reading it is bounded.
_MOST_BYTES = 64 << 20
_EMBEDDED = re.compile(rf'<script type="application/json" id="{DATA}">([^<]*)</script>')
_FORGED = "do not rely on this file: ask the operator for the version itself"
_OTHER = "check it with the program that made it; only the entry in the ledger counts"
_NEEDED = ("envelope", "proof")
_TITLE = ("model", "version")


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report read from its file.

    evidence: the values that `version_facts` returned to the report's maker.
    written: the page; None for a plain JSON file.
    """

    evidence: dict[str, Any]
    written: str | None

    def check(self, keys: KeyRing) -> tuple[Finding, ...]:
        """Compare the file with the entry of the ledger that its proof leads to.

        keys: of the ledger.

        Findings inside the file are claims of its maker; the file tells how to repeat them.
        """
        # JSON may hold halves of characters, which no proof holds.
        text = str(self.evidence["proof"].get("tlog_proof")).encode(errors="replace").decode()
        try:
            logged = LedgerProof.parse(text).verify(keys)
            proof = proof_facts(text, keys)
        except InvalidRelease as error:
            return (fails("proof", str(error), _FORGED),)
        envelope = logged.entry
        if not isinstance(envelope, Envelope):
            return (fails("proof", f"entry {logged.index} of the ledger is not that of a version", _FORGED),)
        told = f"version {envelope.version} of {envelope.model} is entry {logged.index} of the ledger"
        findings = [holds("proof", f"{told}, signed by key {proof['key_id']}")]
        findings.append(self._facts(envelope, proof))
        if self.written is not None:
            findings.append(self._page())
        return tuple(findings)

    def _facts(self, envelope: Envelope, proof: Mapping[str, Any]) -> Finding:
        """Compare the facts of the file with those of the ledger. proof: what the proof says by itself."""
        evidence, known = self.evidence, entry_facts(envelope)
        # The report has these two a second time, and its title shows those.
        pairs = [(evidence["envelope"], known), (evidence["proof"], proof)]
        pairs.append(({name: evidence.get(name) for name in _TITLE}, {name: known[name] for name in _TITLE}))
        changed = list[str]()
        for said, proved in pairs:
            changed += [name for name in sorted({*said, *proved}) if said.get(name) != proved.get(name)]
        if changed:
            differing = ", ".join(dict.fromkeys(changed))
            return fails("facts", f"facts differ from those in the ledger: {differing}", _FORGED)
        return holds("facts", f"all {len(known)} facts of the version are those in the ledger")

    def _page(self) -> Finding:
        """Compare the page that a person reads with the page that its data gives."""
        try:
            same = version_page(self.evidence) == self.written
        except Exception:  # noqa: BLE001 - this program cannot have written a page that it fails to write
            same = False
        name, what = "page", "the page that a person reads is"
        if same:
            return holds(name, f"{what} as its own data gives it")
        detail, program = f"{what} not as its own data gives it", self.evidence.get("program")
        # Another version of the program may write it differently, so the finding stays open.
        if program != PROGRAM:
            return doubt(name, f"{detail}; {shown(program)} wrote it, this is {PROGRAM}", _OTHER)
        return fails(name, detail, _FORGED)


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
    complete = isinstance(evidence, dict) and all(isinstance(evidence.get(part), dict) for part in _NEEDED)
    if not complete:
        raise UsageError(
            f"{path} is not a report: give a file that `streamtopic export VERSION --evidence --to FILE` wrote"
        )
    if evidence.get("format") != FORMAT:
        raise UsageError(refusal(REPORT, evidence.get("format"), name=f"report {path}"))
    return ReportFile(evidence, written if embedded else None)
