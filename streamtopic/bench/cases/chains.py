"""Random chains of additions and deletions on small hostile corpora: after each change the update against a fresh fit.

Chains with the seeds `seed`, `seed` + 1, ... run until the time is up, in two processes; kinds of corpora take turns.
Words, anchors, super-anchors and guided topics must be equal; A must be as near as the certificates say, and to 1e-12
if both are at most 1e-10. A finding is printed with its seed, and `streamtopic bench chains minutes=0 seed=SEED`
runs that chain alone. Any finding ends the benchmark with status 1.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.bench.chains import Outcome
    from streamtopic.bench.runner import Option, Result

__all__ = ["CASES", "OPTIONS", "text"]

OPTIONS: dict[str, Option] = {"minutes": 30, "seed": 0}
"""minutes: how long (0: one chain); seed: of the first chain."""
_SHOWN = 20
_COLUMNS = ("chains", "updates", "relearned", "no model", "words entered", "words left", "ended", "loose", "difference")
_TOTAL = "all kinds"


def _case(minutes: int, seed: int) -> list[Figure]:
    """All kinds and both learners."""
    from streamtopic.bench.chains import many_chains
    from streamtopic.console import progress, table
    from streamtopic.errors import CheckFailed

    with progress("chains", "s") as update:
        outcomes = many_chains(minutes, seed, progress=update)
    figures = [figure for name, some in _groups(outcomes).items() for figure in _figures(name, some)]
    reasons = sum((outcome.relearned for outcome in outcomes), Counter[str]())
    figures += [Figure(f"relearned: {why}", times, "times") for why, times in reasons.most_common()]
    findings = [outcome.finding for outcome in outcomes if outcome.finding is not None]
    if findings:
        head, rows = _rows(figures)
        kinds = Counter(f"{finding.kind}: {finding.what}" for finding in findings)
        lines = [table(head, rows), "", *(f"{what}: {times} chains" for what, times in kinds.most_common()), ""]
        lines += [str(finding) for finding in findings[:_SHOWN]]
        sys.stderr.write("\n".join(lines) + "\n")
        again = f"streamtopic bench chains minutes=0 seed={findings[0].seed}"
        raise CheckFailed(f"{len(findings)} of {len(outcomes)} chains broke a promise: `{again}` repeats the first")
    return figures


def _groups(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.kind, []).append(outcome)
    return {**groups, _TOTAL: [*outcomes]}


def _figures(name: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    return [
        Figure(f"{name}: chains", len(outcomes), "chains"),
        Figure(f"{name}: findings", sum(outcome.finding is not None for outcome in outcomes), "chains", "0"),
        Figure(f"{name}: updates", sum(outcome.updates for outcome in outcomes), "changes"),
        Figure(f"{name}: relearned", sum(outcome.relearned.total() for outcome in outcomes), "changes"),
        Figure(f"{name}: no model", sum(outcome.unlearnable for outcome in outcomes), "changes"),
        Figure(f"{name}: words entered", sum(outcome.entered for outcome in outcomes), "updates"),
        Figure(f"{name}: words left", sum(outcome.left for outcome in outcomes), "updates"),
        Figure(f"{name}: ended", sum(outcome.ended for outcome in outcomes), "updates"),
        Figure(f"{name}: loose", sum(outcome.loose for outcome in outcomes), "updates"),
        Figure(f"{name}: difference", max(outcome.difference for outcome in outcomes), "", "<= 1e-12"),
    ]


def _rows(figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    """Return a head and a row for each kind."""
    values = {figure.name: figure.value for figure in figures}
    head = ["kind", "findings", *_COLUMNS]
    kinds = [name.partition(": ")[0] for name in values if name.endswith(": chains")]
    return head, [[kind, *(f"{values[f'{kind}: {column}']:.4g}" for column in head[1:])] for kind in kinds]


def text(result: Result) -> str:
    """Return a row for each kind, and below it why fits were learned again."""
    from streamtopic.console import duration, table

    shown = [result.machine]
    for case in result.cases:
        head, rows = _rows(case.figures)
        below = [f"{f.name}: {f.value:,.0f} {f.unit}" for f in case.figures if f.name.startswith("relearned: ")]
        given = duration(60 * int(result.options["minutes"]))
        shown.append("\n".join([f"seeds from {result.options['seed']}, {given}", table(head, rows), "", *below]))
        shown.append(f"peak memory {case.peak_memory / 1e6:.0f} MB")
    return "\n\n".join(shown)


CASES = {"chains": _case}
