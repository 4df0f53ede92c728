"""`streamtopic verify`: recount and relearn, and compare; check what was published."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.commands.report import print_findings
from streamtopic.console import progress, say_json

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.service.verify import Finding

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    description = "recount from the log against the counts, relearn against the models, and check published versions"
    parser = command(subparsers, "verify", run, description)
    parser.add_argument(
        "--number", type=int, metavar="N", help="which version to make again and check (default: the newest)"
    )
    parser.add_argument("--strict", action="store_true", help="status 1 also where a check could not be made")


def run(args: argparse.Namespace) -> int:
    """Print the checks; status 1 if one failed, with --strict also if one could not be made."""
    from streamtopic.service.app import Service
    from streamtopic.service.verify import as_json, passed

    with Service(instance_settings(args)) as service:
        version, findings = _findings(service, args.number, quiet=args.json)
        model = service.settings.model
    fine, complete = passed(findings), all(finding.passed is not None for finding in findings)
    if args.json:
        told = {"passed": fine, "complete": complete, "model": model, "version": version}
        say_json({**told, "checks": as_json(findings)})
    else:
        print_findings(findings)
    return 0 if fine and (complete or not args.strict) else 1


def _findings(service: Service, asked: int | None, *, quiet: bool) -> tuple[int | None, list[Finding]]:
    """Return the version that was checked, None before the first version, and the findings."""
    from streamtopic.service.verify import relearned, release_findings

    # The operator sees certificates as they are. A report rounds them: they are figures of the model before noise.
    with progress("verifying", "records", quiet=quiet) as update:
        findings = list(relearned(service.verify(update, asked), exact=True))
    version = asked
    if version is None:
        newest = service.state.releases(1)
        # Before the first version there are counts to check, and no release.
        if not newest:
            return None, findings
        version = newest[0][0]
    return version, findings + list(release_findings(service.sources, version))
