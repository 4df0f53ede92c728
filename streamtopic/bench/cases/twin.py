"""Twins on documents: forget sets of every kind against a model that never saw them, before noise, both learners.

Each row of a kind says in how many of its draws the update was refused, so that the model was learned again from
counts, and in how many an anchor is another word than before; the largest difference of an entry of A to the twin over
all draws; the largest certificate and the time that an update saved (median) over those that were updated. A difference
that is too large, or counts that are not the twin's bit for bit, fail the benchmark. Last come single deletions one
after another, as a service meets them.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from streamtopic.bench.twins import Chain, TwinOutcome

__all__ = ["CASES", "OPTIONS"]

OPTIONS = {"documents": "", "topics": 20, "draws": 3, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; draws: forget sets of each kind."""

DIFFERENCE = 1e-12
CHAINED = 10
"""Single deletions one after another for each draw, but never more than a tenth of the documents."""


def _case(learner: str, documents: str, topics: int, draws: int, seed: int) -> list[Figure]:
    from streamtopic.bench.twins import KINDS, Twins
    from streamtopic.console import progress
    from streamtopic.documents.corpus import load_corpus
    from streamtopic.topics.learner_options import LearnerOptions

    options = LearnerOptions(n_topics=topics, learner=learner)  # type: ignore[arg-type]  # a case's own name
    twins = Twins(load_corpus(documents), options)
    sets = list(twins.forget_sets(draws, seed))
    twins.outcome(sets[0])  # compiles what only updates use
    outcomes = []
    with progress(f"learner {learner}", "forget sets") as update:
        for forget in sets:
            outcomes.append(twins.outcome(forget))
            update(len(outcomes), len(sets))
    figures = [
        Figure("documents", twins.batch.documents, "documents"),
        Figure("vocabulary", len(twins.fit.words), "words"),
    ]
    for kind in KINDS:
        figures += _figures(kind, [outcome for outcome in outcomes if outcome.kind == kind], options.tolerance)
    _check(outcomes, options.tolerance)
    return figures + _chained(twins.chain(min(CHAINED * draws, twins.batch.documents // 10), seed))


def _chained(chain: Chain) -> list[Figure]:
    """Return the figures of single deletions one after another. Raises CheckFailed if the last model remembers."""
    from streamtopic.errors import CheckFailed

    if not (chain.same_words and chain.difference <= DIFFERENCE):
        raise CheckFailed(f"a model that forgot differs from its twin, please report it: {chain}")
    name = "one after another"
    return [
        Figure(f"{name}: retrains", chain.retrains.total(), f"of {chain.steps}"),
        *(Figure(f"{name}: retrains, {why}", times, f"of {chain.steps}") for why, times in chain.retrains.items()),
        Figure(f"{name}: difference at the end", chain.difference, "", f"<= {DIFFERENCE:g}"),
    ]


def _figures(kind: str, outcomes: list[TwinOutcome], tolerance: float) -> list[Figure]:
    if not outcomes:
        return []
    sizes = [outcome.forgotten for outcome in outcomes]
    updated = [outcome for outcome in outcomes if not outcome.retrain]
    figures = [
        Figure(f"{kind}: documents forgotten", statistics.median(sizes), "documents"),
        Figure(f"{kind}: retrains", len(outcomes) - len(updated), f"of {len(outcomes)}"),
        Figure(f"{kind}: other anchors", sum(outcome.new_anchors > 0 for outcome in outcomes), f"of {len(outcomes)}"),
        Figure(f"{kind}: difference", max(outcome.difference for outcome in outcomes), "", f"<= {DIFFERENCE:g}"),
    ]
    if updated:
        largest = max(outcome.certificate for outcome in updated)
        saved = statistics.median(outcome.relearn / outcome.update for outcome in updated)
        figures += [
            Figure(f"{kind}: certificate", largest, "||A - A*||", f"<= {tolerance:g}"),
            Figure(f"{kind}: relearn over update", saved, "x"),
        ]
    return figures


def _check(outcomes: list[TwinOutcome], tolerance: float) -> None:
    from streamtopic.errors import CheckFailed

    for outcome in outcomes:
        exact = outcome.same_counts and outcome.same_words and outcome.difference <= DIFFERENCE
        if not exact or (not outcome.retrain and not outcome.certificate <= tolerance):
            raise CheckFailed(f"a model that forgot differs from its twin, please report it: {outcome}")


CASES = {learner: partial(_case, learner) for learner in ("default", "paper")}
