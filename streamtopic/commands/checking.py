"""Commands that check the promise: `verify` repeats the work, `audit` attacks the noise, `report` is for an auditor."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    add_key,
    command,
    file_errors,
    instance_settings,
    read_corpus,
    settings_of,
    uses_instance,
    verifier_of,
    whole_number,
)
from streamtopic.console import number, progress, say, say_json, show, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.audit.attack import AuditResult, Played
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.counts import Counts
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the three commands."""
    _register_verify(subparsers)
    _register_audit(subparsers)
    _register_report(subparsers)


def _register_verify(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    description = "recount from the log against the counts, relearn against the models, and check published versions"
    parser = command(subparsers, "verify", _run_verify, description)
    parser.add_argument(
        "--number",
        type=whole_number(1),
        metavar="N",
        help="which version to make again and check (default: the newest)",
    )
    parser.add_argument("--strict", action="store_true", help="status 1 also where a check could not be made")


def _run_verify(args: argparse.Namespace) -> int:
    """Print the checks; status 1 if one failed, with --strict also if one could not be made."""
    from streamtopic.service.app import Service
    from streamtopic.service.verify import as_json, passed

    with Service(instance_settings(args)) as service, progress("verifying", "records", quiet=args.json) as update:
        service.ledger.catch_up()
        model, version = service.settings.model, args.number or service.ledger.ledger.newest or None
        # The operator sees certificates as they are. A report rounds them: they are figures of the model before noise.
        findings = service.verify(update, version)
    fine = passed(findings)
    complete = all(finding.passed is not None for finding in findings)
    if args.json:
        told = {"passed": fine, "complete": complete, "model": model, "version": version}
        say_json({**told, "checks": as_json(findings)})
    else:
        _print_findings(findings)
    return 0 if fine and (complete or not args.strict) else 1


def _register_audit(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "audit", _run_audit, "try to tell unlearned from retrained versions: a lower bound on epsilon"
    )
    parser.add_argument(
        "--documents", type=Path, metavar="FILE", help="JSON lines, gzip too (default: the instance's, or docstrings)"
    )
    parser.add_argument("--draws", type=int, metavar="N", help="releases drawn of either kind (default: 4000 or more)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random draws (default: 0)")
    parser.add_argument("--epsilon", type=float, metavar="E", help="the claim to audit (default: as in the settings)")
    parser.add_argument("--delta", type=float, metavar="D", help="the claim to audit (default: as in the settings)")


def _run_audit(args: argparse.Namespace) -> int:
    """Print the audit; status 1 if it told more than is claimed, or missed a fault that was built in."""
    start = time.perf_counter()
    settings = settings_of(args, epsilon=args.epsilon, delta=args.delta)
    from streamtopic.audit.attack import AuditPlan, audit
    from streamtopic.audit.games import NoiseClaim
    from streamtopic.service.assembly import learner_options

    guarantee = NoiseClaim(settings.epsilon, settings.delta, settings.tolerance)
    plan = AuditPlan(draws=args.draws, seed=args.seed)
    # Too few draws are refused now, not after the minutes that counting and learning take.
    plan.enough(guarantee)
    counts = _audit_counts(args, settings)
    with progress("auditing", "steps", quiet=args.json) as update:
        found = audit(counts, learner_options(settings), guarantee, plan, update)
    if args.json:
        say_json(found.as_json() | {"seconds": round(time.perf_counter() - start, 1)})
    else:
        show(_audit_text(found))
    return 0 if found.passed else 1


def _audit_counts(args: argparse.Namespace, settings: Settings) -> Counts:
    """Return the counts to attack: of an instance, of a file, or of docstrings."""
    from streamtopic.service.assembly import learner_options
    from streamtopic.service.verify.recount import counts_of_corpus, counts_of_instance

    options = learner_options(settings)
    if uses_instance(args, settings):
        from streamtopic.service.app import Service

        with Service(instance_settings(args)) as service:
            return counts_of_instance(service.reader, options)
    corpus = read_corpus(args)
    with progress("counting", "documents", quiet=args.json) as update:
        return counts_of_corpus(corpus, options, update)


def _audit_text(found: AuditResult) -> str:
    guarantee = found.guarantee
    about = (
        f"{found.m:,} documents, {found.n:,} words, {found.r} topics; claim: epsilon {guarantee.epsilon:g} at delta "
        f"{guarantee.delta:g}, noise for a tolerance of {guarantee.tolerance:g}"
    )
    head = ["", "claim", "at least", "by", "draws", ""]
    games = [_game_row(played, "ok" if played.within else "EXCEEDED") for played in found.games]
    # A control is a fault that was built in: an audit that stays within the claim has missed it.
    controls = [_game_row(played, "MISSED" if played.within else "caught") for played in found.controls]
    blocks = [
        about,
        _audit_documents(found),
        f"What could be told apart, in epsilon, with {found.plan.confidence:.0%} confidence for all together:",
        table(head, games),
        "Faults built in, which must be found:",
        table(head, controls),
        _audit_verdict(found),
    ]
    return "\n\n".join(blocks)


def _audit_documents(found: AuditResult) -> str:
    rows = []
    for one in found.documents:
        model = "retrained" if one.reason else "updated"
        different = ", ".join(one.different) or "same bits"
        # A document that would not show if it were kept tests nothing.
        kept = ", ".join(one.kept) or "NOTHING"
        rows.append([one.name, model, f"{one.moved:.2g}", f"{one.gap:.1e}", different, kept])
    return table(["forgotten", "model", "moved", "gap", "published bare", "if it were kept"], rows)


def _game_row(played: Played, verdict: str) -> list[str]:
    finding = played.finding
    by = finding.distinguisher if finding.bound else "-"
    return [played.name, number(played.claim), number(finding.bound), by, f"{finding.draws:,}", verdict]


def _audit_verdict(found: AuditResult) -> str:
    if found.passed:
        most = max(played.finding.bound / played.claim for played in found.games)
        return f"passed: no more than {most:.0%} of a claim was shown, and every fault built in was found"
    problems = []
    if found.different:
        problems.append(f"published without noise and different: {', '.join(found.different)}")
    exceeded = [played for played in found.games if not played.within]
    problems += [f"{one.name}: {one.finding.bound:.3g} shown, {one.claim:.3g} claimed" for one in exceeded]
    problems += [f"not found although built in: {name}" for name in found.missed]
    return "FAILED: " + "; ".join(problems)


SHOWN = {True: "ok  ", False: "FAIL", None: "-   "}


def _register_report(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "report", _run_report, "write the evidence about a version, or check such a file")
    parser.add_argument(
        "number", nargs="?", type=whole_number(1), metavar="VERSION", help="which version (default: the newest)"
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="a name that ends in .html or .json")
    parser.add_argument("--verify", action="store_true", help="count and learn again, and add the findings")
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="output of `streamtopic audit --json`, to go with it"
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a report's file offline instead")
    add_key(parser, prefix="--check: ")


def _run_report(args: argparse.Namespace) -> int:
    """Write the report, or check a report's file; status 1 if a check failed."""
    return _write_report(args) if args.check is None else _check_report(args)


def _print_findings(findings: Sequence[Finding]) -> None:
    """Print findings for a person, with the remedy of each that did not pass."""
    for finding in findings:
        say(f"{SHOWN[finding.passed]}  {finding.name}: {finding.detail}")
        if finding.remedy:
            say(f"        {finding.remedy}")


def _write_report(args: argparse.Namespace) -> int:
    from streamtopic.pages.version_page import version_facts, version_page
    from streamtopic.service.app import Service
    from streamtopic.service.verify import read_audit

    if args.to is None or args.to.suffix not in {".html", ".json"}:
        raise UsageError("where to? give --to FILE, a name that ends in .html or .json")
    settings = instance_settings(args)
    audited = None if args.audit is None else read_audit(args.audit)
    with Service(settings) as service:
        # Fixed now: a version that is published while this one is verified must not take its place.
        number = args.number if args.number is not None else service.release(None).version
        with progress("verifying", "records", quiet=args.json or not args.verify) as update:
            evidence = version_facts(service, number, update=update if args.verify else None, audited=audited)
    if args.to.suffix == ".html":
        written = version_page(evidence)
    else:
        # Programs of others read this file, and JSON has no infinity: one that slipped through must not be written.
        written = json.dumps(evidence, indent=1, allow_nan=False) + "\n"
    # Written where a check failed as well: that is the report which an auditor needs most.
    with file_errors("write", args.to):
        args.to.write_text(written, encoding="utf-8")
    _tell_report(args, evidence)
    return 0 if evidence["passed"] else 1


def _tell_report(args: argparse.Namespace, evidence: dict[str, Any]) -> None:
    from streamtopic.service.verify import Finding

    if args.json:
        told = {name: evidence[name] for name in ("version", "passed", "complete", "findings")}
        say_json({"to": str(args.to), **told})
        return
    _print_findings([Finding(**finding) for finding in evidence["findings"]])
    say(f"version {evidence['version']}: written to {args.to}")


def _check_report(args: argparse.Namespace) -> int:
    from streamtopic.pages.report_file import read_report
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
        _print_findings(findings)
        # Without this line a reader would take findings that rest on Redis for proved as well.
        say("signed facts are checked; the other findings are its maker's word, and the report says how to repeat them")
    return 0 if fine else 1
