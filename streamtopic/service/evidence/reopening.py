"""A report read back from its file and checked by nothing but a public key."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.service.evidence.claims import LIMITS, assumptions_of, statement_of
from streamtopic.service.evidence.finding import Finding
from streamtopic.service.evidence.gathering import FORMAT, PROGRAM, signed_facts
from streamtopic.service.evidence.markup import shown
from streamtopic.service.evidence.page import DATA, page
from streamtopic.service.evidence.sealed import Proof

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.release import Envelope
    from streamtopic.signing import PublicKey

__all__ = ["Reopened", "reopen"]

_MOST_BYTES = 64 << 20
_EMBEDDED = re.compile(rf'<script type="application/json" id="{DATA}">([^<]*)</script>')
_FORGED = "do not rely on this file: ask the operator for the version itself"
_OTHER = "check it with the program that made it; what is signed counts"


@dataclass(frozen=True, slots=True)
class Reopened:
    """A report as its file has it. evidence: what `gather` returned; written: the page, None of a plain JSON file."""

    evidence: dict[str, Any]
    written: str | None

    def check(self, key: PublicKey) -> tuple[Finding, ...]:
        """Hold the file against what `key` signed. Findings that it tells of are its maker's word: repeat them."""
        try:
            envelope = Proof.parse(self.evidence["proof"]).open(key)
        except InvalidRelease as error:
            return (Finding("signature", passed=False, detail=str(error), source="signed", remedy=_FORGED),)
        told = f"key {key.key_id} signed version {envelope.version} of {envelope.model}"
        return (
            Finding("signature", passed=True, detail=told, source="signed"),
            self._facts(envelope),
            self._words(envelope),
            *((self._page(),) if self.written is not None else ()),
        )

    def _facts(self, envelope: Envelope) -> Finding:
        said, signed = self.evidence["envelope"], signed_facts(envelope)
        names = sorted(name for name in {*said, *signed} if said.get(name) != signed.get(name))
        names += [name for name in ("model", "version") if self.evidence.get(name) != signed[name]]
        detail = f"{len(signed)} facts of the envelope are those that were signed"
        if names:
            detail = f"not what was signed: {', '.join(dict.fromkeys(names))}"
        return Finding("facts", not names, detail, "signed", _FORGED if names else "")

    def _words(self, envelope: Envelope) -> Finding:
        """Whether the claim and its limits are worded as this program words them."""
        claim = self.evidence["claim"]
        published = claim.get("published")
        ours = [statement_of(published, envelope), list(assumptions_of(published, envelope)), list(LIMITS)]
        same = ours == [claim.get("statement"), claim.get("assumptions"), self.evidence.get("limits")]
        return self._compared(
            "wording", "promise, assumptions and limits are", "in this program's own words", same=same
        )

    def _page(self) -> Finding:
        """Whether what a person reads is what the data says."""
        try:
            same = page(self.evidence) == self.written
        except (KeyError, TypeError, ValueError, AttributeError):
            same = False
        return self._compared("page", "what the page shows is", "what its own data says", same=same)

    def _compared(self, name: str, what: str, as_expected: str, *, same: bool) -> Finding:
        """Say that something is as this program writes it; another version may have written it otherwise."""
        if same:
            return Finding(name, passed=True, detail=f"{what} {as_expected}", source="signed")
        detail = f"{what} not {as_expected}"
        if (program := self.evidence.get("program")) != PROGRAM:
            detail += f"; {shown(program)} wrote it, this is {PROGRAM}"
            return Finding(name, None, detail, "signed", _OTHER)
        return Finding(name, passed=False, detail=detail, source="signed", remedy=_FORGED)


def reopen(path: Path) -> Reopened:
    """Read a report's file, .json or .html. Raises UsageError for one that is none."""
    try:
        written = path.read_text(encoding="utf-8") if path.stat().st_size <= _MOST_BYTES else ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        written = ""
    embedded = _EMBEDDED.search(written)
    try:
        evidence = json.loads(embedded[1] if embedded else written)
    except (ValueError, RecursionError):
        evidence = None
    if not isinstance(evidence, dict) or not all(isinstance(evidence.get(k), dict) for k in _NEEDED):
        raise UsageError(f"{path} is no report: give what `streamtopic report VERSION --to FILE` wrote")
    if evidence.get("format") != FORMAT:
        raise UsageError(
            f"{path} is a report of format {evidence.get('format')}: this program reads {FORMAT}, update it"
        )
    return Reopened(evidence, written if embedded else None)


_NEEDED = ("envelope", "proof", "claim")
