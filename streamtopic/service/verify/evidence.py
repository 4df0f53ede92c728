"""Evidence about one version: everything known about it, as plain values that a report shows and prints as JSON."""

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
from streamtopic.errors import CheckFailed, SettingsError, UsageError
from streamtopic.formats import REPORT
from streamtopic.service.publish.published import topics_of
from streamtopic.service.schedule.version import rounded, shown_calibration
from streamtopic.service.verify.claims import LIMITS, assumptions_of, statement_of, steps_of
from streamtopic.service.verify.finding import as_json, fails, not_checked, passed, relearned
from streamtopic.service.verify.proof import read_receipts, read_releases_topic, read_waiting
from streamtopic.service.verify.release_checks import chain_finding, check_release, named_finding, own_check_findings

if TYPE_CHECKING:
    from streamtopic.service.verify.finding import Audited, Finding
    from streamtopic.service.verify.proof import ChainSummary, Proof, ReleasesTopic, WaitingDeletions
    from streamtopic.service.verify.relearn import Verification
    from streamtopic.service.verify.sources import Sources
    from streamtopic.signed import Envelope, Payload, Release

__all__ = ["FORMAT", "PROGRAM", "gather", "plain", "release_findings", "signed_facts"]

FORMAT = REPORT.written
PROGRAM = f"streamtopic {__version__}"
_TOP_WORDS = 8
_ANCHOR_WORDS = re.compile(r"(anchor words changed):.*", re.DOTALL)

Json = dict[str, Any]
Record = Mapping[str, Any]
"""What Redis keeps of a version beside its release."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A version with everything that log and Redis hold about it.

    release, proof: from the log.
    topic: the other versions in the log.
    records: version to its record in Redis.
    ledger: version to its scale and slack in Redis.
    refuted: versions that failed the service's own check.
    """

    release: Release
    proof: Proof
    topic: ReleasesTopic
    records: Mapping[int, Record]
    ledger: Mapping[int, Record]
    refuted: frozenset[int] = frozenset()

    @property
    def record(self) -> Record:
        """The version's record in Redis, empty if Redis was set back to before it."""
        return self.records.get(self.release.version, {})

    @property
    def cut(self) -> dict[int, int] | None:
        """Partition to the offset up to which its records are in the version; None if documents were moved since."""
        envelope = self.release.envelope
        signed = {str(partition): offset for partition, offset in envelope.cut.items()}
        # The record comes first: an instance empties its cut when documents move, while a signed cut stays.
        cut = self.record.get("cut", signed)
        return {int(partition): offset for partition, offset in cut.items()} or None


def gather(
    sources: Sources,
    version: int,
    *,
    verify: Callable[[], Verification] | None = None,
    audited: Audited | None = None,
) -> Json:
    """Return the evidence about a published version: a map of JSON values. Its `passed` says that no check failed.

    version: number of the version.
    verify: counts and learns again; called once it is certain that there is a version to report on.
    audited: result of an audit, to go with the evidence.

    Raises UsageError if there is no such version to report on, CheckFailed if it does not verify.
    """
    known = _known(sources, version)
    # Which takes minutes, so not before it is certain that there is a version.
    verification = None if verify is None else verify()
    # After the verification, which takes minutes: a report says how things stand when it is written.
    receipts, waiting = _deletions(sources, known)
    findings = list(_findings(known, receipts, waiting))
    release = known.release
    record = known.record
    payload = release.payload
    envelope = release.envelope
    if verification is not None:
        findings += relearned(verification)
    if audited is not None:
        findings.append(audited.finding(envelope))
    complete = all(finding.passed is not None for finding in findings)
    made = datetime.fromtimestamp(sources.clock(), UTC)
    newest = max(known.topic.digests)
    forgotten = receipts.as_json(envelope.base) | {"waiting": waiting.as_json()}
    topics = [] if payload.A is None else topics_of(release, _TOP_WORDS)
    audit = None if audited is None else audited.as_json()
    steps = [{"shows": shows, "command": command, "needs": needs} for shows, command, needs in steps_of(version)]
    evidence = {
        "format": FORMAT,
        "program": PROGRAM,
        "made": made.isoformat(timespec="seconds"),
        "passed": passed(findings),
        "complete": complete,
        "verified": verification is not None,
        "model": envelope.model,
        "version": version,
        "newest": newest,
        "envelope": signed_facts(envelope),
        "proof": _proof(sources, known.proof),
        "claim": _claim(payload, envelope),
        "findings": as_json(findings),
        "record": _making(record),
        "spending": _spending(sources, known),
        "capacity": _capacity(sources, envelope),
        "forgotten": forgotten,
        "conditions": _conditions(record),
        "tasks": _tasks(payload, record),
        "topics": topics,
        "quality": dict(release.quality),
        "audit": audit,
        "limits": list(LIMITS),
        "steps": steps,
    }
    found: Json = plain(evidence)
    return found


def release_findings(sources: Sources, version: int) -> tuple[Finding, ...]:
    """Return the checks of a version that do not count or learn again; one finding if there is no such version.

    Raises ComponentUnreachable, SettingsError.
    """
    name = "signature"
    try:
        known = _known(sources, version)
    except CheckFailed as error:
        remedy = "do not use it; find out who else writes to the releases topic"
        return (fails(name, str(error), "log", remedy),)
    except SettingsError:
        # Whoever may not read the log has not verified anything.
        raise
    except UsageError as error:
        return (not_checked(name, str(error), "log", "verify again once there is a version"),)
    receipts, waiting = _deletions(sources, known)
    return _findings(known, receipts, waiting)


def _deletions(sources: Sources, known: _Known) -> tuple[ChainSummary, WaitingDeletions]:
    """Return the receipts of a version, and the deletions that still wait."""
    receipts = read_receipts(sources.log, sources.model, sources.keys, known.release.version)
    waiting = read_waiting(sources.log, sources.reader, sources.names.documents, known.cut)
    return receipts, waiting


def _findings(known: _Known, receipts: ChainSummary, waiting: WaitingDeletions) -> tuple[Finding, ...]:
    """Return the checks of a version that do not count or learn again."""
    release = known.release
    topic = known.topic
    records = known.records
    return (
        *check_release(topic, release.payload, release.envelope, known.proof, records, known.ledger),
        *own_check_findings(known.record, release.version, known.refuted),
        chain_finding(topic),
        receipts.finding(),
        named_finding(receipts, topic, records),
        waiting.finding(release.version),
    )


def plain(value: object) -> Any:  # noqa: ANN401 -- whatever JSON has
    """Return a value as JSON has it: lists, maps with text keys, None for infinities and NaN.

    Any other value becomes its text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        # Python would write Infinity and NaN, which other readers of JSON refuse.
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _known(sources: Sources, version: int) -> _Known:
    """Return the known facts about a version. Raises UsageError or CheckFailed as `gather`."""
    topic = read_releases_topic(sources.log, sources.model, sources.keys, version)
    records = dict(sources.state.releases())
    _refuse_missing(sources, topic, set(records))
    if topic.release is None or topic.proof is None:
        raise UsageError(f"there is no version {version}: `streamtopic versions` lists them")
    return _Known(topic.release, topic.proof, topic, records, sources.state.ledger(), sources.refuted)


def _refuse_missing(sources: Sources, topic: ReleasesTopic, recorded: set[int]) -> None:
    """Raise the reason why this version cannot be reported on, if there is one."""
    version = topic.wanted
    # First, since nobody should use a withdrawn version, whether or not its bytes are still in the log.
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
            "releases topic; `streamtopic publish` names the versions that it withdrew"
        )
    if version in recorded:
        raise UsageError(f"version {version} is made but not in the log: `streamtopic status` says what is waiting")


def signed_facts(envelope: Envelope) -> Json:
    """Return the fields of an envelope as JSON values."""
    found: Json = plain(dataclasses.asdict(envelope))
    return found


def _proof(sources: Sources, proof: Proof) -> Json:
    """Return the proof of a version, with the public key that verifies it."""
    key = sources.keys.named(proof.key)
    fingerprint = hashlib.sha256(key.raw).hexdigest()
    public = {"key_id": key.key_id, "public_key": key.raw.hex(), "fingerprint": fingerprint}
    return public | proof.as_json()


def _claim(payload: Payload, envelope: Envelope) -> Json:
    """Return the claim of a version in words, and its assumptions."""
    published = "topics" if payload.A is not None else "tasks"
    statement = statement_of(published, envelope)
    assumptions = list(assumptions_of(published, envelope))
    return {
        "guarantee": envelope.guarantee,
        "published": published,
        "statement": statement,
        "assumptions": assumptions,
    }


def _making(record: Record) -> Json:
    """Return how the version was made: its reason, seconds, whether it started warm, and the service's own check."""
    return {
        "reason": _nameless(record.get("reason")),
        "seconds": record.get("seconds"),
        "warm": record.get("warm"),
        "self_check": record.get("self_check"),
    }


def _nameless(reason: str | None) -> str | None:
    # The last document of an anchor word may have been forgotten, so a report does not show the words.
    return None if reason is None else _ANCHOR_WORDS.sub(r"\1", reason)


def _spending(sources: Sources, known: _Known) -> Json:
    """Return epsilon by version since the base."""
    envelope = known.release.envelope
    versions = []
    for version, record in sorted(known.records.items()):
        if record["base"] != envelope.base or version > envelope.version:
            continue
        spent = {
            "version": version,
            "kind": record["kind"],
            "epsilon": record["epsilon"],
            "cumulative_epsilon": record["cumulative_epsilon"],
            "forgotten": record["forget_set"],
            # Withdrawn versions stay in the list: they were seen, so their epsilon is spent.
            "withdrawn": version in known.topic.withdrawn,
        }
        versions.append(spent)
    return {"budget": sources.epsilon_budget, "versions": versions}


def _capacity(sources: Sources, envelope: Envelope) -> Json:
    """Return the deletion capacity of a version's base, and how it was calibrated."""
    base = sources.state.base_head()
    found = None
    # Redis keeps the calibration of the present base only.
    if base is not None and base.version == envelope.base:
        found = base.fields.get("calibration")
    shown = shown_calibration(found)
    left = max(0, envelope.capacity - envelope.forgotten)
    return {
        "rule": envelope.capacity_rule,
        "capacity": envelope.capacity,
        "used": envelope.forgotten,
        "left": left,
        "formula": shown.get("formula"),
        "tried": shown.get("tried", {}),
    }


def _conditions(record: Record) -> Json:
    """Return the conditions of theorem mode's proof, as they were when the version was made."""
    checks = rounded(record.get("checks") or [])
    constants = rounded(record.get("constants") or {})
    return {"checks": checks, "constants": constants, "vacuity": record.get("vacuity")}


def _tasks(payload: Payload, record: Record) -> Json:
    """Return the heads of a version, with the noise of each where its record has it."""
    kept = record.get("heads") or {}
    heads = []
    for task, head in sorted(payload.heads.items()):
        # Only where topics are withheld has each head its own noise.
        noise = kept.get(task, {})
        fields = {
            "task": task,
            "topics": list(head.topics),
            "classes": list(head.classes),
            "documents": head.documents,
            "withheld": head.w is None,
            "sigma": noise.get("sigma"),
            "ratio": noise.get("ratio"),
        }
        heads.append(fields)
    unfitted = dict(record.get("unfitted") or {})
    return {"heads": heads, "labelled_whole": record.get("labelled_whole"), "unfitted": unfitted}
