"""All that is known about one version, as plain values: what the report shows, and its JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic import __version__
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.service.evidence.claims import LIMITS, assumptions_of, statement_of, steps_of
from streamtopic.service.evidence.finding import Finding, as_json, passed, relearned
from streamtopic.service.evidence.forgotten import read_receipts, read_waiting
from streamtopic.service.evidence.release_checks import check_release
from streamtopic.service.evidence.sealed import read_shelf
from streamtopic.service.report import topics_of

if TYPE_CHECKING:
    from streamtopic.release import Envelope, Payload, Release
    from streamtopic.service.evidence.audits import Audited
    from streamtopic.service.evidence.sealed import Proof, Shelf
    from streamtopic.service.runner import Service
    from streamtopic.service.verify import Verification

__all__ = ["FORMAT", "PROGRAM", "gather", "plain", "release_findings", "signed_facts"]

FORMAT = 1
PROGRAM = f"streamtopic {__version__}"
_TOP_WORDS = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """A version with all that the service keeps beside it."""

    release: Release
    proof: Proof
    shelf: Shelf
    records: Mapping[int, Mapping[str, Any]]
    ledger: Mapping[int, Mapping[str, Any]]

    @property
    def record(self) -> Mapping[str, Any]:
        """What Redis keeps of the version, empty where it was set back."""
        return self.records.get(self.release.version, {})


def gather(
    service: Service,
    version: int,
    *,
    verify: Callable[[], Verification] | None = None,
    audited: Audited | None = None,
) -> dict[str, Any]:
    """Return the evidence about a published version: values that JSON has, and `passed`, whether no check failed.

    verify: counts and learns again, asked once there is a version to report on; audited: the result of an audit.
    Raises UsageError where there is no such version to report on, CheckFailed where it does not verify.
    """
    known = _known(service, version)
    verification = None if verify is None else verify()
    release, envelope = known.release, known.release.envelope
    receipts = read_receipts(service.log, service.settings.model, service.public_key, version)
    waiting = read_waiting(service, _cut(known))
    findings = (
        *_checked(known),
        receipts.finding(),
        waiting.finding(version),
        *(relearned(verification) if verification else ()),
        *((audited.finding(envelope),) if audited else ()),
    )
    evidence = {
        "format": FORMAT,
        "program": PROGRAM,
        "made": datetime.fromtimestamp(service.clock(), UTC).isoformat(timespec="seconds"),
        "passed": passed(findings),
        "complete": all(finding.passed is not None for finding in findings),
        "verified": verification is not None,
        "model": envelope.model,
        "version": version,
        "newest": max(known.shelf.digests),
        "envelope": signed_facts(envelope),
        "proof": _proof(service, known.proof),
        "claim": _claim(release.payload, envelope),
        "findings": as_json(findings),
        "record": {
            "reason": _nameless(known.record.get("reason")),
            "seconds": known.record.get("seconds"),
            "warm": known.record.get("warm"),
        },
        "spending": _spending(service, known),
        "capacity": _capacity(service, envelope),
        "forgotten": receipts.as_json(envelope.base) | {"waiting": waiting.as_json()},
        "conditions": _conditions(known.record),
        "tasks": _tasks(release.payload, known.record),
        "topics": [] if release.payload.A is None else topics_of(release, _TOP_WORDS),
        "quality": dict(release.quality),
        "audit": audited.as_json() if audited else None,
        "limits": list(LIMITS),
        "steps": [{"shows": shows, "command": command, "needs": needs} for shows, command, needs in steps_of(version)],
    }
    found: dict[str, Any] = plain(evidence)
    return found


def release_findings(service: Service, version: int) -> tuple[Finding, ...]:
    """Return what can be checked about a version without counting or learning again; also that there is none to check.

    Raises ComponentUnreachable.
    """
    try:
        known = _known(service, version)
    except CheckFailed as error:
        remedy = "do not use it; find out who else writes to the releases topic"
        return (Finding("signature", passed=False, detail=str(error), source="log", remedy=remedy),)
    except UsageError as error:
        return (Finding("signature", None, str(error), "log", "verify again once there is a version"),)
    receipts = read_receipts(service.log, service.settings.model, service.public_key, version)
    return (*_checked(known), receipts.finding(), read_waiting(service, _cut(known)).finding(version))


def plain(value: object) -> Any:  # noqa: ANN401 -- whatever JSON has
    """Return a value as JSON has it: None for infinities and what is no number, lists, maps with text keys."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _known(service: Service, version: int) -> _Known:
    shelf = read_shelf(service.log, service.settings.model, service.public_key, version)
    records = dict(service.state.releases())
    _refuse_missing(service, shelf, set(records))
    if shelf.release is None or shelf.proof is None:
        raise UsageError(f"there is no version {version}: `streamtopic versions` lists them")
    return _Known(shelf.release, shelf.proof, shelf, records, service.state.ledger())


def _nameless(reason: str | None) -> str | None:
    """Return a reason without the anchor words that it names: the last document of one may have been forgotten."""
    return None if reason is None else re.sub(r"(anchor words changed):.*", r"\1", reason, flags=re.DOTALL)


def _refuse_missing(service: Service, shelf: Shelf, recorded: set[int]) -> None:
    """Say why there is nothing to report on. Withdrawn goes first: nobody should use such a version."""
    version = shelf.wanted
    if version in shelf.withdrawn | service.state.withdrawn():
        raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; report on a later one")
    if version in shelf.digests:
        return
    if version in shelf.refused:
        raise CheckFailed(f"version {version} in the log does not verify with this key: {shelf.refused[version]}")
    if version in shelf.retired:
        raise UsageError(f"version {version} was erased for its age (setting `keep_versions`): report on a later one")
    if version in recorded:
        raise UsageError(f"version {version} is made but not in the log: `streamtopic status` says what is waiting")


def _checked(known: _Known) -> tuple[Finding, ...]:
    release = known.release
    return check_release(known.shelf, release.payload, release.envelope, known.proof, known.records, known.ledger)


def _cut(known: _Known) -> dict[int, int] | None:
    """Return up to where the version reflects each partition; None where documents were moved since."""
    cut = known.record.get("cut", {str(p): offset for p, offset in known.release.envelope.cut.items()})
    return {int(partition): offset for partition, offset in cut.items()} or None


def signed_facts(envelope: Envelope) -> dict[str, Any]:
    """Return what an envelope says as JSON has it."""
    found: dict[str, Any] = plain(dataclasses.asdict(envelope))
    return found


def _proof(service: Service, proof: Proof) -> dict[str, Any]:
    key = service.public_key
    fingerprint = hashlib.sha256(key.raw).hexdigest()
    return {"key_id": key.key_id, "public_key": key.raw.hex(), "fingerprint": fingerprint} | proof.as_json()


def _claim(payload: Payload, envelope: Envelope) -> dict[str, Any]:
    published = "topics" if payload.A is not None else "tasks"
    return {
        "guarantee": envelope.guarantee,
        "published": published,
        "statement": statement_of(published, envelope),
        "assumptions": list(assumptions_of(published, envelope)),
    }


def _spending(service: Service, known: _Known) -> dict[str, Any]:
    """Return epsilon by version since the base; withdrawn versions were seen, so they count."""
    envelope, withdrawn = known.release.envelope, known.shelf.withdrawn
    versions = [
        {
            "version": version,
            "kind": record["kind"],
            "epsilon": record["epsilon"],
            "cumulative_epsilon": record["cumulative_epsilon"],
            "forgotten": record["forget_set"],
            "withdrawn": version in withdrawn,
        }
        for version, record in sorted(known.records.items())
        if record["base"] == envelope.base and version <= envelope.version
    ]
    return {"budget": service.settings.epsilon_budget, "versions": versions}


def _capacity(service: Service, envelope: Envelope) -> dict[str, Any]:
    """Return the capacity, and how it was found where the base is still the present one.

    Counts of words and shares before noise stay behind: with them, two reports could be subtracted.
    """
    base = service.state.base_head()
    found = base.fields.get("calibration") if base is not None and base.version == envelope.base else None
    tried = (found or {}).get("tried") or {}
    return {
        "rule": envelope.capacity_rule,
        "capacity": envelope.capacity,
        "used": envelope.forgotten,
        "left": max(0, envelope.capacity - envelope.forgotten),
        "formula": (found or {}).get("formula"),
        "tried": _rounded({name: tried[name] for name in _TRIED if name in tried}),
    }


_TRIED = (
    "limit",
    "random_limit",
    "aimed_limit",
    "updates",
    "complete",
    "sampled",
    "whole",
    "utility",
    "probability",
    "random",
    "aimed",
)


def _conditions(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the proof of theorem mode asks, as it was when the version was made."""
    return {
        "checks": _rounded(record.get("checks") or []),
        "constants": _rounded(record.get("constants") or {}),
        "vacuity": record.get("vacuity"),
    }


def _rounded(value: object) -> Any:  # noqa: ANN401 -- whatever was given
    """Return values with three digits each: enough to judge, and no more of the model before noise than that."""
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _tasks(payload: Payload, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return heads as published, with what the record adds where each has its own noise."""
    kept = record.get("heads") or {}
    heads = [
        {
            "task": task,
            "topics": list(head.topics),
            "classes": list(head.classes),
            "documents": head.documents,
            "withheld": head.w is None,
            **{name: kept.get(task, {}).get(name) for name in ("sigma", "ratio")},
        }
        for task, head in sorted(payload.heads.items())
    ]
    whole = record.get("labelled_whole")
    return {"heads": heads, "labelled_whole": whole, "unfitted": dict(record.get("unfitted") or {})}
