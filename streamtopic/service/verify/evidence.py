"""What is known about an instance and a version: as one list of findings, and for a report as JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from streamtopic import __version__
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.service.finding import as_json, doubt, fails, passed
from streamtopic.service.verify.ledger_checks import read_ledger, read_waiting, release_findings, version_in_log
from streamtopic.service.verify.relearn import Relearning, read_kept
from streamtopic.signed import LedgerProof, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.service.finding import Finding
    from streamtopic.service.opened import Opened
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.service.verify.ledger_checks import InLog, Record, Waiting, WholeLedger
    from streamtopic.service.verify.recount import Progress
    from streamtopic.signed import KeyRing, Release
    from streamtopic.state import Reader

__all__ = ["gather", "verify_instance"]

_PROGRAM = f"streamtopic {__version__}"
_ANYTHING = TypeAdapter[object](object)
_ANCHOR_WORDS = re.compile(r"(anchor words changed):.*", re.DOTALL)

Json = dict[str, Any]


def verify_instance(
    service: Opened, reader: Reader, modeller: Modeller, update: Progress, version: int | None = None
) -> tuple[Finding, ...]:
    """Return every check of an instance: its ledger, its counts and base model, and a version. It need not run.

    reader: of the counts in Redis.
    modeller: the mode in which models are made, as the settings say now.
    update: called with the number of records read so far, and their total.
    version: number of the version; None for the newest.

    Raises UsageError if this number has no version to examine, ComponentUnreachable, SettingsError.
    """
    kept = read_kept(service, reader)
    whole = read_ledger(service.log, service.keys)
    asked = whole.newest if version is None else version
    known: InLog | None = None
    unknown: list[Finding] = []
    try:
        known = version_in_log(service, whole, asked) if asked else None
    except CheckFailed as error:
        unknown.append(fails("release", str(error), "do not use it; find out who else writes to the releases topic"))
    except UsageError as error:
        if version is not None:
            raise
        unknown.append(doubt("release", str(error), "verify again once there is a version"))
    waiting = None if known is None else read_waiting(service, reader, known.envelope)
    relearned = Relearning(service, modeller, whole, update).findings(kept, known)
    return (*_findings(whole, known, waiting), *unknown, *relearned)


def _findings(whole: WholeLedger, known: InLog | None, waiting: Waiting | None) -> Iterator[Finding]:
    """Yield the checks that do not count or learn again."""
    yield from whole.findings()
    if known is not None and waiting is not None:
        yield from release_findings(known)
        yield waiting.finding(known.release.version)


def gather(
    service: Opened, reader: Reader, modeller: Modeller, version: int, update: Progress | None = None
) -> tuple[Json, InLog]:
    """Return the evidence about a published version, a map of JSON values, and the version as it is in the log.

    The `passed` of the evidence says that no check failed.

    reader, modeller: as of `verify_instance`.
    version: number of the version.
    update: given if the report is to count and learn again; as of `verify_instance`.

    Raises UsageError if there is no such version to report on, CheckFailed if it does not verify.
    """
    kept = None if update is None else read_kept(service, reader)
    whole = read_ledger(service.log, service.keys)
    known = version_in_log(service, whole, version)
    waiting = read_waiting(service, reader, known.envelope)
    findings = list(_findings(whole, known, waiting))
    if update is not None and kept is not None:
        findings += Relearning(service, modeller, whole, update).findings(kept, known)
    release, record = known.release, known.record
    evidence = {
        "program": _PROGRAM,
        "made": datetime.fromtimestamp(service.clock(), UTC).isoformat(timespec="seconds"),
        "passed": passed(findings),
        "complete": all(finding.passed is not None for finding in findings),
        "verified": update is not None,
        "model": known.envelope.model,
        "version": version,
        "newest": whole.newest,
        "findings": as_json(findings),
        "envelope": json.loads(line_of(known.envelope)),
        "proof": _proof_facts(release.proof, whole.ledger.keys),
        "published": "tasks" if release.payload.A is None else "topics",
        "record": {
            "reason": _nameless(record.get("reason")),
            "seconds": record.get("seconds"),
            "self_check": record.get("self_check"),
        },
        "spending": {"budget": service.settings.budget, "versions": list(_spending(known))},
        "forgotten": whole.as_json(known.envelope) | {"waiting": asdict(waiting)},
        "conditions": {
            "checks": _rounded(record.get("checks") or []),
            "constants": _rounded(record.get("constants") or {}),
            "vacuity": record.get("vacuity"),
        },
        "tasks": _tasks(release, record),
        "anchors": release.anchors,
        "guided": release.payload.guided,
        "quality": dict(release.quality),
    }
    # None for infinities and NaN, which JSON does not have, and the text of a value that it does not know.
    return json.loads(_ANYTHING.dump_json(evidence, fallback=str)), known


def _proof_facts(text: str, keys: KeyRing) -> Json:
    """Return a proof of the ledger with what it says, and with the key that signed it.

    Raises InvalidRelease, and UnknownKey if none of the keys signed it.
    """
    proof = LedgerProof.parse(text)
    key = keys.signer_of(proof.checkpoint)
    return {"key_id": key.key_id, "public_key": str(key), "index": proof.index, "tlog_proof": text}


def _nameless(reason: str | None) -> str | None:
    # The last document of an anchor word may have been forgotten, so a report does not show the words.
    return None if reason is None else _ANCHOR_WORDS.sub(r"\1", reason)


def _spending(known: InLog) -> Iterator[Json]:
    """Yield the epsilon of each version since the base."""
    for version, envelope in known.whole.versions.items():
        if envelope.base == known.envelope.base and version <= known.envelope.version:
            yield {
                "version": version,
                "kind": envelope.kind,
                "epsilon": envelope.epsilon,
                "cumulative_epsilon": envelope.cumulative_epsilon,
                "forgotten": envelope.forgotten,
                # Withdrawn versions stay in the list: they were seen, so their epsilon is spent.
                "withdrawn": version in known.whole.ledger.withdrawn,
            }


def _tasks(release: Release, record: Record) -> Json:
    """Return the heads of a version, with the noise of each if its record has it."""
    kept: Mapping[str, Mapping[str, Any]] = record.get("heads") or {}
    heads = []
    for task, head in sorted(release.payload.heads.items()):
        # Only if topics are withheld has each head its own noise.
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
    return {"heads": heads, "unfitted": dict(record.get("unfitted") or {})}


def _rounded(value: object) -> Any:  # noqa: ANN401 -- whatever was given
    """Return the numbers of a value with three digits each."""
    # Three are enough to judge a capacity, and more would show more of the model before noise.
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return value
