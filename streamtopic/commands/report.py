"""`streamtopic report`: the evidence about one version, for an auditor."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, file_errors, instance_settings, verifier_of
from streamtopic.console import progress, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.service.verify import Finding
    from streamtopic.service.verify.relearn import Verification

__all__ = ["print_findings", "register", "run"]

SHOWN = {True: "ok  ", False: "FAIL", None: "-   "}


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "report", run, "write the evidence about a version, or check such a file")
    parser.add_argument("number", nargs="?", type=int, metavar="VERSION", help="which version (default: the newest)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="a name that ends in .html or .json")
    parser.add_argument("--verify", action="store_true", help="count and learn again, and add the findings")
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="output of `streamtopic audit --json`, to go with it"
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a report's file offline instead")
    parser.add_argument("--public-key", metavar="KEY", help="--check: signing.pub, or the key in hexadecimal digits")
    parser.add_argument("--key-list", type=Path, metavar="FILE", help="--check: keys.list, with root.pub as public key")


def run(args: argparse.Namespace) -> int:
    """Write the report, or check a report's file; status 1 if a check failed."""
    return _write(args) if args.check is None else _check(args)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings for a person, with the remedy of each that did not pass."""
    for finding in findings:
        say(f"{SHOWN[finding.passed]}  {finding.name}: {finding.detail}")
        if finding.remedy:
            say(f"        {finding.remedy}")


def _write(args: argparse.Namespace) -> int:
    from streamtopic.report.version_report import report_page
    from streamtopic.service.app import Service
    from streamtopic.service.verify import gather, read_audit

    if args.to is None or args.to.suffix not in {".html", ".json"}:
        raise UsageError("where to? give --to FILE, a name that ends in .html or .json")
    settings = instance_settings(args)
    audited = None if args.audit is None else read_audit(args.audit)
    with Service(settings) as service:
        # Fixed now: a version that is published while this one is verified must not take its place.
        number = args.number if args.number is not None else service.release(None).version
        verify = partial(_verified, service, number, quiet=args.json) if args.verify else None
        evidence = gather(service.sources, number, verify=verify, audited=audited)
    if args.to.suffix == ".html":
        written = report_page(evidence)
    else:
        # Programs of others read this file, and JSON has no infinity: one that slipped through must not be written.
        written = json.dumps(evidence, indent=1, allow_nan=False) + "\n"
    # Written where a check failed as well: that is the report which an auditor needs most.
    with file_errors("write", args.to):
        args.to.write_text(written, encoding="utf-8")
    _tell(args, evidence)
    return 0 if evidence["passed"] else 1


def _verified(service: Service, number: int, *, quiet: bool) -> Verification:
    with progress("verifying", "records", quiet=quiet) as update:
        return service.verify(update, number)


def _tell(args: argparse.Namespace, evidence: dict[str, Any]) -> None:
    from streamtopic.service.verify import Finding

    if args.json:
        told = {name: evidence[name] for name in ("version", "passed", "complete", "findings")}
        say_json({"to": str(args.to), **told})
        return
    print_findings([Finding(**finding) for finding in evidence["findings"]])
    say(f"version {evidence['version']}: written to {args.to}")


def _check(args: argparse.Namespace) -> int:
    from streamtopic.report.report_check import read_report
    from streamtopic.service.verify import as_json, passed

    if args.to is not None or args.number is not None or args.verify or args.audit is not None:
        raise UsageError(
            "--check takes no version, --to, --verify or --audit: it checks a file that was written before"
        )
    findings = read_report(args.check).check(verifier_of(args))
    fine = passed(findings)
    if args.json:
        say_json({"passed": fine, "findings": as_json(findings)})
    else:
        print_findings(findings)
        # Without this line a reader would take findings that rest on Redis for proved as well.
        say("signed facts are checked; the other findings are its maker's word, and the report says how to repeat them")
    return 0 if fine else 1
