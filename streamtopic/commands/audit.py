"""`streamtopic audit`: attack the promise, and say how far the attack got."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import (
    command,
    instance_settings,
    read_corpus,
    settings_of,
    uses_instance,
)
from streamtopic.console import number, progress, say_json, show, table

if TYPE_CHECKING:
    from streamtopic.audit.attack import AuditResult, Played
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.counts import Counts
    from streamtopic.settings import Settings

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "audit", run, "try to tell unlearned from retrained versions: a lower bound on epsilon"
    )
    parser.add_argument(
        "--documents", type=Path, metavar="FILE", help="JSON lines, gzip too (default: the instance's, or docstrings)"
    )
    parser.add_argument("--draws", type=int, metavar="N", help="releases drawn of either kind (default: 4000 or more)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random draws (default: 0)")
    parser.add_argument("--epsilon", type=float, metavar="E", help="the claim to audit (default: as in the settings)")
    parser.add_argument("--delta", type=float, metavar="D", help="the claim to audit (default: as in the settings)")


def run(args: argparse.Namespace) -> int:
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
    counts = _counts(args, settings)
    with progress("auditing", "steps", quiet=args.json) as update:
        found = audit(counts, learner_options(settings), guarantee, plan, update)
    if args.json:
        say_json(found.as_json() | {"seconds": round(time.perf_counter() - start, 1)})
    else:
        show(_text(found))
    return 0 if found.passed else 1


def _counts(args: argparse.Namespace, settings: Settings) -> Counts:
    """Return the counts to attack: of an instance, of a file, or of docstrings."""
    from streamtopic.service.assembly import learner_options
    from streamtopic.service.audit_counts import counts_of_corpus, counts_of_instance

    options = learner_options(settings)
    if uses_instance(args, settings):
        from streamtopic.service.app import Service

        with Service(instance_settings(args)) as service:
            return counts_of_instance(service, options)
    corpus = read_corpus(args)
    with progress("counting", "documents", quiet=args.json) as update:
        return counts_of_corpus(corpus, options, update)


def _text(found: AuditResult) -> str:
    guarantee = found.guarantee
    about = (
        f"{found.m:,} documents, {found.n:,} words, {found.r} topics; claim: epsilon {guarantee.epsilon:g} at delta "
        f"{guarantee.delta:g}, noise for a tolerance of {guarantee.tolerance:g}"
    )
    head = ["", "claim", "at least", "by", "draws", ""]
    games = [_game(played, "ok" if played.within else "EXCEEDED") for played in found.games]
    # A control is a fault that was built in: an audit that stays within the claim has missed it.
    controls = [_game(played, "MISSED" if played.within else "caught") for played in found.controls]
    blocks = [
        about,
        _documents(found),
        f"What could be told apart, in epsilon, with {found.plan.confidence:.0%} confidence for all together:",
        table(head, games),
        "Faults built in, which must be found:",
        table(head, controls),
        _verdict(found),
    ]
    return "\n\n".join(blocks)


def _documents(found: AuditResult) -> str:
    rows = []
    for one in found.documents:
        model = "retrained" if one.reason else "updated"
        different = ", ".join(one.different) or "same bits"
        # A document that would not show if it were kept tests nothing.
        kept = ", ".join(one.kept) or "NOTHING"
        rows.append([one.name, model, f"{one.moved:.2g}", f"{one.gap:.1e}", different, kept])
    return table(["forgotten", "model", "moved", "gap", "published bare", "if it were kept"], rows)


def _game(played: Played, verdict: str) -> list[str]:
    finding = played.finding
    by = finding.distinguisher if finding.bound else "-"
    return [played.name, number(played.claim), number(finding.bound), by, f"{finding.draws:,}", verdict]


def _verdict(found: AuditResult) -> str:
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
