"""Commands that look at an instance: its state, versions, refused records and problems."""

from __future__ import annotations

import argparse
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from streamtopic.commands.checking import finding_lines
from streamtopic.commands.common_arguments import (
    answer,
    command,
    instance_settings,
    open_instance,
    option,
)
from streamtopic.console import aligned, instant, plain, say, table_of
from streamtopic.errors import StreamtopicError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.service.ingest.rejections import Rejection
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings

__all__ = ["COMMANDS", "versions_table"]


@command()
def _status(args: argparse.Namespace) -> int:
    """Show documents, forget set, last decision and health."""
    from streamtopic.service.inspection.examination import concerns
    from streamtopic.service.inspection.facts import ModelFacts, status_fields

    with open_instance(args) as service:
        facts = ModelFacts(service)
        found = status_fields(facts, [one.text for one in concerns(facts)])
    # How many deletions wait is enough for a person; --json has since when.
    waiting = {name: one["documents"] for name, one in found["residue"]["waiting"].items()}
    return answer(args, found, *aligned(found | {"residue": waiting}))


@command()
def _versions(args: argparse.Namespace) -> int:
    """List the published versions and their guarantees."""
    from streamtopic.service.inspection.facts import versions_of

    with open_instance(args) as service:
        versions = versions_of(service.state)
    none = "no version has been published yet; `streamtopic status` says why"
    return answer(args, {"versions": versions}, block=versions_table(versions) if versions else none)


def versions_table(versions: list[dict[str, Any]]) -> str:
    """Lay out versions for a person."""
    shown = ["version", "kind", "documents", "forgotten", "epsilon", "delta", "sigma", "certificate", "seconds"]
    # Most models have no task, and most versions stand: columns of dashes would make the table wider for nothing.
    seldom = [name for name in ("withdrawn", "heads", "unfitted") if any(map(itemgetter(name), versions))]
    return table_of(versions, *shown, *seldom)


@command(option("--last N", "the newest N (default: 20)", default=20))
def _rejected(args: argparse.Namespace) -> int:
    """List the records that were refused."""
    from streamtopic.service.ingest.rejections import RefusedRecords

    with open_instance(args) as service:
        found = RefusedRecords.read(service.log, service.names, args.last)
    newest = [_rejection_fields(rejection) for rejection in found.newest]
    told = {"rejected": found.number, "reasons": found.reasons, "newest": newest}
    if not found.number:
        return answer(args, told, "no record was refused")
    rows = table_of(newest, "document", "reason", "partition", "offset", "time")
    return answer(args, told, f"{found.number} refused: {plain(found.reasons)}", "", block=rows)


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


@command()
def _doctor(args: argparse.Namespace) -> int:
    """Check Redis, Kafka, keys, settings and state, and name remedies.

    Status 1 if a finding fails.
    """
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


COMMANDS = (_status, _versions, _rejected, _doctor)
