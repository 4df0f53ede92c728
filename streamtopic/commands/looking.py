"""Commands that look at an instance: its state, versions, refused records and problems."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.checking import finding_lines
from streamtopic.commands.common_arguments import answer, command, instance_settings, open_instance, whole_number
from streamtopic.console import aligned, duration, instant, number, plain, say, table
from streamtopic.errors import StreamtopicError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.ingest.rejections import Rejection
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings

__all__ = ["register", "versions_table"]

# Fields of the status that are milliseconds since 1970.
_TIMES = frozenset({"at", "decided", "made"})


def register(subparsers: Subparsers) -> None:
    """Add the four commands."""
    command(subparsers, "status", _run_status, "show documents, forget set, last decision and health")
    command(subparsers, "versions", _run_versions, "list the published versions and their guarantees")
    parser = command(subparsers, "rejected", _run_rejected, "list the records that were refused")
    parser.add_argument("--last", type=whole_number(0), default=20, metavar="N", help="the newest N (default: 20)")
    command(subparsers, "doctor", _run_doctor, "check Redis, Kafka, keys, settings and state, and name remedies")


def _run_status(args: argparse.Namespace) -> int:
    """Print the state of the instance without changing it."""
    from streamtopic.service.inspection.examination import concerns
    from streamtopic.service.inspection.facts import ModelFacts, status_fields

    with open_instance(args) as service:
        facts = ModelFacts(service)
        found = status_fields(facts, [one.text for one in concerns(facts)])
    # How many deletions wait is enough for a person; --json has since when.
    waiting = {name: one["documents"] for name, one in found["residue"]["waiting"].items()}
    shown = {name: plain(_with_times(name, value)) for name, value in (found | {"residue": waiting}).items()}
    return answer(args, found, *aligned(shown))


def _with_times(name: str, value: object) -> object:
    """Return a field of the status with times as a person reads them. name: its name in JSON."""
    if isinstance(value, dict):
        return {key: _with_times(key, part) for key, part in value.items()}
    return instant(value, "seconds") if name in _TIMES and isinstance(value, int) else value


def _run_versions(args: argparse.Namespace) -> int:
    """Print all versions, oldest first."""
    from streamtopic.service.publish.published import versions_of

    with open_instance(args) as service:
        versions = versions_of(service.state)
    none = "no version has been published yet; `streamtopic status` says why"
    return answer(args, {"versions": versions}, block=versions_table(versions) if versions else none)


def versions_table(versions: list[dict[str, Any]]) -> str:
    """Lay out versions for a person."""
    head = ["version", "kind", "documents", "forgotten", "(unlearning ε, δ)", "sigma", "certificate", "time"]
    rows = [_version_row(version) for version in versions]
    # Most models have no task: a column of dashes would make the table wider than a terminal for nothing.
    if any(version["heads"] or version["unfitted"] for version in versions):
        head.append("heads")
        for row, version in zip(rows, versions, strict=True):
            missing = [f"no {task}" for task in version["unfitted"]]
            tasks = [*version["heads"], *missing]
            row.append(", ".join(tasks) or "-")
    return table(head, rows)


def _version_row(version: Mapping[str, Any]) -> list[object]:
    withdrawn = " (withdrawn)" if version.get("withdrawn") else ""
    return [
        version["version"],
        version["kind"] + withdrawn,
        version["documents"],
        version["forgotten"],
        f"({number(version['epsilon'])}, {number(version['delta'])})",
        number(version["sigma"]),
        number(version["certificate"]),
        "-" if version["seconds"] is None else duration(version["seconds"]),
    ]


def _run_rejected(args: argparse.Namespace) -> int:
    """Print the newest refused records and the number of each reason."""
    from streamtopic.service.ingest.rejections import RefusedRecords

    with open_instance(args) as service:
        found = RefusedRecords.read(service.log, service.names, args.last)
    newest = [_rejection_fields(rejection) for rejection in found.newest]
    told = {"rejected": found.number, "reasons": found.reasons, "newest": newest}
    if not found.number:
        return answer(args, told, "no record was refused")
    rows = []
    for one in newest:
        # A record without a key has no id; it is refused for that.
        document = one["document"] or "-"
        rows.append([document, one["reason"], f"{one['partition']}/{one['offset']}", one["time"]])
    refused = f"{found.number} refused: {_numbered(found.reasons)}"
    return answer(args, told, refused, "", block=table(["document", "reason", "partition/offset", "time"], rows))


def _numbered(found: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in found.items())


def _rejection_fields(rejection: Rejection) -> dict[str, Any]:
    key = rejection.document
    # Keys are refused for their size and encoding too: the id is cut, and bytes that are not UTF-8 are escaped.
    document = None if key is None else key[:200].decode(errors="backslashreplace")
    return {
        "document": document,
        "reason": rejection.reason,
        "partition": rejection.partition,
        "offset": rejection.offset,
        "time": instant(rejection.time_ms, "seconds"),
    }


def _run_doctor(args: argparse.Namespace) -> int:
    """Print the findings, each with its remedy; status 1 if one of them fails."""
    from streamtopic.service.verify import as_json, passed

    findings = []
    for finding in _examined(instance_settings(args)):
        findings.append(finding)
        # Printed as they come: a server that does not answer holds the rest up.
        for line in () if args.json else finding_lines([finding]):
            say(line)
    fine = passed(findings)
    answer(args, {"passed": fine, "findings": as_json(findings)})
    return 0 if fine else 1


def _examined(settings: Settings) -> Iterator[Finding]:
    from streamtopic.service.inspection.examination import examine
    from streamtopic.service.opened import opened
    from streamtopic.service.verify import Finding

    try:
        with opened(settings) as service:
            yield from examine(service)
    # An instance that cannot even be opened is a finding like others, not the end of the command.
    except StreamtopicError as error:
        yield Finding("instance", passed=False, detail=str(error))
