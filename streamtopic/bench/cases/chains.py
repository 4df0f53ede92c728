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

    from streamtopic.bench.chains import Finding
    from streamtopic.bench.runner import Option

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"minutes": 30, "seed": 0}
"""minutes: how long (0: one chain); seed: of the first chain."""
_SHOWN = 20


def _case(minutes: int, seed: int) -> list[Figure]:
    """All kinds and both learners."""
    from streamtopic.bench.chains import many_chains
    from streamtopic.console import progress

    with progress("chains", "s") as update:
        outcomes = many_chains(minutes, seed, progress=update)
    _refuse([outcome.finding for outcome in outcomes if outcome.finding is not None], len(outcomes))
    updates, reasons = Counter[str](), Counter[str]()
    for outcome in outcomes:
        updates[outcome.kind] += outcome.updates
        reasons += outcome.relearned
    return [
        Figure("chains", len(outcomes), "chains"),
        *(Figure(f"updates, {kind}", times, "changes") for kind, times in updates.items()),
        *(Figure(f"relearned: {why}", times, "changes") for why, times in reasons.most_common()),
        Figure("no model", sum(outcome.unlearnable for outcome in outcomes), "changes"),
        Figure("words entered", sum(outcome.entered for outcome in outcomes), "updates"),
        Figure("words left", sum(outcome.left for outcome in outcomes), "updates"),
        Figure("a guided topic ended", sum(outcome.ended for outcome in outcomes), "updates"),
        Figure("above the tolerance", sum(outcome.loose for outcome in outcomes), "updates"),
        Figure("largest difference of A", max(outcome.difference for outcome in outcomes), "", "<= 1e-12"),
    ]


def _refuse(findings: Sequence[Finding], chains: int) -> None:
    """Print findings, and raise CheckFailed if there are any. chains: how many ran."""
    from streamtopic.errors import CheckFailed

    if not findings:
        return
    kinds = Counter(f"{finding.kind}: {finding.what}" for finding in findings)
    lines = [*(f"{what}: {times} chains" for what, times in kinds.most_common()), "", *map(str, findings[:_SHOWN])]
    sys.stderr.write("\n".join(lines) + "\n")
    again = f"streamtopic bench chains minutes=0 seed={findings[0].seed}"
    raise CheckFailed(f"{len(findings)} of {chains} chains broke a promise: `{again}` repeats the first")


CASES = {"chains": _case}
