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
from streamtopic.service.kept import rounded, shown_calibration
from streamtopic.service.published import topics_of
from streamtopic.service.verify.claims import LIMITS, assumptions_of, statement_of, steps_of
from streamtopic.service.verify.finding import Finding, as_json, passed, relearned
from streamtopic.service.verify.forgotten import read_receipts, read_waiting
from streamtopic.service.verify.proof import read_releases_topic
from streamtopic.service.verify.release_checks import chain_finding, check_release, named_finding, own_check_findings

if TYPE_CHECKING:
    from streamtopic.service.verify.audit_results import Audited
    from streamtopic.service.verify.proof import Proof, ReleasesTopic
    from streamtopic.service.verify.relearn import Verification
    from streamtopic.service.verify.sources import Sources
    from streamtopic.signed import Envelope, Payload, Release

__all__ = ["FORMAT", "PROGRAM", "gather", "plain", "release_findings", "signed_facts"]

FORMAT = 1
PROGRAM = f"streamtopic {__version__}"
_TOP_WORDS = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """A version with all that the service keeps beside it."""

    release: Release
    proof: Proof
    topic: ReleasesTopic
    records: Mapping[int, Mapping[str, Any]]
    ledger: Mapping[int, Mapping[str, Any]]
    refuted: frozenset[int] = frozenset()

    @property
    def record(self) -> Mapping[str, Any]:
        """The version's record in Redis, empty where Redis was set back."""
        return self.records.get(self.release.version, {})


def gather(
    sources: Sources,
    version: int,
    *,
    verify: Callable[[], Verification] | None = None,
    audited: Audited | None = None,
) -> dict[str, Any]:
    """Return the evidence about a published version: values that JSON has, and `passed`, whether no check failed.

    verify: counts and learns again, asked once there is a version to report on; audited: the result of an audit.
    Raises UsageError where there is no such version to report on, CheckFailed where it does not verify.
    """
    known = _known(sources, version)
    verification = None if verify is None else verify()
    release, envelope = known.release, known.release.envelope
    # After the verification, which takes minutes: a report says how things stand when it is written.
    receipts = read_receipts(sources.log, sources.model, sources.keys, version)
    waiting = read_waiting(sources.log, sources.reader, sources.names.documents, _cut(known))
    findings = (
        *_checked(known),
        chain_finding(known.topic),
        receipts.finding(),
        named_finding(receipts, known.topic, known.records),
        waiting.finding(version),
        *(relearned(verification) if verification else ()),
        *((audited.finding(envelope),) if audited else ()),
    )
    evidence = {
        "format": FORMAT,
        "program": PROGRAM,
        "made": datetime.fromtimestamp(sources.clock(), UTC).isoformat(timespec="seconds"),
        "passed": passed(findings),
        "complete": all(finding.passed is not None for finding in findings),
        "verified": verification is not None,
        "model": envelope.model,
        "version": version,
        "newest": max(known.topic.digests),
        "envelope": signed_facts(envelope),
        "proof": _proof(sources, known.proof),
        "claim": _claim(release.payload, envelope),
        "findings": as_json(findings),
        "record": {
            "reason": _nameless(known.record.get("reason")),
            "seconds": known.record.get("seconds"),
            "warm": known.record.get("warm"),
            "self_check": known.record.get("self_check"),
        },
        "spending": _spending(sources, known),
        "capacity": _capacity(sources, envelope),
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


def release_findings(sources: Sources, version: int) -> tuple[Finding, ...]:
    """Return the checks of a version that need no counting or learning; one finding where there is no such version.

    Raises ComponentUnreachable.
    """
    try:
        known = _known(sources, version)
    except CheckFailed as error:
        remedy = "do not use it; find out who else writes to the releases topic"
        return (Finding("signature", passed=False, detail=str(error), source="log", remedy=remedy),)
    except UsageError as error:
        return (Finding("signature", None, str(error), "log", "verify again once there is a version"),)
    receipts = read_receipts(sources.log, sources.model, sources.keys, version)
    return (
        *_checked(known),
        chain_finding(known.topic),
        receipts.finding(),
        named_finding(receipts, known.topic, known.records),
        read_waiting(sources.log, sources.reader, sources.names.documents, _cut(known)).finding(version),
    )


def plain(value: object) -> Any:  # noqa: ANN401 -- whatever JSON has
    """Return a value as JSON has it: lists, maps with text keys, None for infinities and NaN."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _known(sources: Sources, version: int) -> _Known:
    topic = read_releases_topic(sources.log, sources.model, sources.keys, version)
    records = dict(sources.state.releases())
    _refuse_missing(sources, topic, set(records))
    if topic.release is None or topic.proof is None:
        raise UsageError(f"there is no version {version}: `streamtopic versions` lists them")
    refuted = sources.refuted
    return _Known(topic.release, topic.proof, topic, records, sources.state.ledger(), refuted)


def _nameless(reason: str | None) -> str | None:
    """Return a reason without the anchor words that it names: the last document of one may have been forgotten."""
    return None if reason is None else re.sub(r"(anchor words changed):.*", r"\1", reason, flags=re.DOTALL)


def _refuse_missing(sources: Sources, topic: ReleasesTopic, recorded: set[int]) -> None:
    """Raise the reason why there is nothing to report on. Withdrawn goes first: nobody should use such a version."""
    version = topic.wanted
    if version in topic.withdrawn | sources.state.withdrawn():
        raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; report on a later one")
    if version in topic.digests:
        return
    if version in topic.refused:
        raise CheckFailed(f"version {version} in the log does not verify with this key: {topic.refused[version]}")
    if version in topic.retired:
        raise UsageError(f"version {version} was erased for its age (setting `keep_versions`): report on a later one")
    if version in topic.erased:
        raise CheckFailed(
            f"version {version} was erased, and nobody has signed that it is withdrawn: see who may write to the "
            "releases topic; `streamtopic publish` says what it withdrew"
        )
    if version in recorded:
        raise UsageError(f"version {version} is made but not in the log: `streamtopic status` says what is waiting")


def _checked(known: _Known) -> tuple[Finding, ...]:
    release = known.release
    found = check_release(known.topic, release.payload, release.envelope, known.proof, known.records, known.ledger)
    return (*found, *own_check_findings(known.record, release.version, known.refuted))


def _cut(known: _Known) -> dict[int, int] | None:
    """Return up to where the version reflects each partition; None where documents were moved since."""
    cut = known.record.get("cut", {str(p): offset for p, offset in known.release.envelope.cut.items()})
    return {int(partition): offset for partition, offset in cut.items()} or None


def signed_facts(envelope: Envelope) -> dict[str, Any]:
    """Return what an envelope says as JSON has it."""
    found: dict[str, Any] = plain(dataclasses.asdict(envelope))
    return found


def _proof(sources: Sources, proof: Proof) -> dict[str, Any]:
    key = sources.keys.named(proof.key)
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


def _spending(sources: Sources, known: _Known) -> dict[str, Any]:
    """Return epsilon by version since the base; withdrawn versions were seen, so they count."""
    envelope, withdrawn = known.release.envelope, known.topic.withdrawn
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
    return {"budget": sources.epsilon_budget, "versions": versions}


def _capacity(sources: Sources, envelope: Envelope) -> dict[str, Any]:
    """Return the capacity, and how it was found where the base is still the present one."""
    base = sources.state.base_head()
    found = base.fields.get("calibration") if base is not None and base.version == envelope.base else None
    shown = shown_calibration(found)
    return {
        "rule": envelope.capacity_rule,
        "capacity": envelope.capacity,
        "used": envelope.forgotten,
        "left": max(0, envelope.capacity - envelope.forgotten),
        "formula": shown.get("formula"),
        "tried": shown.get("tried", {}),
    }


def _conditions(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of theorem mode's proof, as they were when the version was made."""
    return {
        "checks": rounded(record.get("checks") or []),
        "constants": rounded(record.get("constants") or {}),
        "vacuity": record.get("vacuity"),
    }


def _tasks(payload: Payload, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return heads as published, with sigma and ratio of the record where each has its own noise."""
    kept = record.get("heads") or {}
    heads = [
        {
            "task": task,
            "topics": list(head.topics),
            "classes": list(head.classes),
            "documents": head.documents,
            "withheld": head.w is None,
            "sigma": kept.get(task, {}).get("sigma"),
            "ratio": kept.get(task, {}).get("ratio"),
        }
        for task, head in sorted(payload.heads.items())
    ]
    whole = record.get("labelled_whole")
    return {"heads": heads, "labelled_whole": whole, "unfitted": dict(record.get("unfitted") or {})}
