"""`streamtopic doctor`: what is wrong, and what to change."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, instance_settings
from streamtopic.errors import StreamtopicError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.commands.options import Subparsers
    from streamtopic.service.doctor import Finding
    from streamtopic.settings import Settings

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "doctor", run, "check Redis, Kafka, keys, settings and state; say what to change")


def run(args: argparse.Namespace) -> int:
    """Print what was found, each with its remedy; status 1 if something fails."""
    from streamtopic.service.doctor import Level

    findings = []
    for finding in _examined(instance_settings(args)):
        findings.append(finding)
        if not args.json:
            remedy = f"\n      {finding.remedy}" if finding.remedy else ""
            print(f"{finding.level:4}  {finding.name}: {finding.detail}{remedy}")
    failed = sum(finding.level is Level.FAIL for finding in findings)
    if args.json:
        print(json.dumps({"passed": not failed, "findings": [dataclasses.asdict(finding) for finding in findings]}))
    return 1 if failed else 0


def _examined(settings: Settings) -> Iterator[Finding]:
    from streamtopic.service.doctor import Finding, Level, examine
    from streamtopic.service.parts import Parts

    try:
        with Parts(settings) as parts:
            yield from examine(parts)
    except StreamtopicError as error:
        yield Finding("instance", Level.FAIL, str(error), "")
