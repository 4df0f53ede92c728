"""`streamtopic doctor`: find problems of an instance, and name the remedy of each."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say, say_json
from streamtopic.errors import StreamtopicError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.examination import Diagnosis
    from streamtopic.settings import Settings

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "doctor", run, "check Redis, Kafka, keys, settings and state, and name remedies")


def run(args: argparse.Namespace) -> int:
    """Print the findings, each with its remedy; status 1 if one of them fails."""
    from streamtopic.service.examination import Level

    findings = []
    for finding in _examined(instance_settings(args)):
        findings.append(finding)
        # Printed as they come: a server that does not answer holds the rest up.
        if not args.json:
            say(f"{finding.level:4}  {finding.name}: {finding.detail}")
            if finding.remedy:
                say(f"      {finding.remedy}")
    failed = sum(finding.level is Level.FAIL for finding in findings)
    if args.json:
        say_json({"passed": not failed, "findings": [dataclasses.asdict(finding) for finding in findings]})
    return 1 if failed else 0


def _examined(settings: Settings) -> Iterator[Diagnosis]:
    from streamtopic.service.assembly import Parts
    from streamtopic.service.examination import Diagnosis, Level, examine

    try:
        with Parts(settings) as parts:
            yield from examine(parts)
    # An instance that cannot even be opened is a finding like others, not the end of the command.
    except StreamtopicError as error:
        yield Diagnosis("instance", Level.FAIL, str(error), "")
