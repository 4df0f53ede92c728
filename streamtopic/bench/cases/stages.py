"""A retrain and an update in stages: where processor time goes, and how far each stage is from its bound.

On one thread, so that processor time is a sum; the bound of a stage is the least bytes it moves, or flops it does, over
what this machine does in the same run (bench.rates): memory by a triad, dense products by one of numpy's,
sums of thin rows in the L2 by the loop that a product with Q is. An update forgets twenty documents.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.bench.profile import Profile, Stage
    from streamtopic.bench.rates import Rates
    from streamtopic.bench.runner import Result
    from streamtopic.counts import Counts, CountSource, DocumentBatch, SignedPassages
    from streamtopic.topics.fit import TopicFit

__all__ = ["CASES", "text"]

SIZES = {"5000": (18_771, 5_000, 50, 52), "20000": (18_000, 20_000, 100, 82)}
FORGOTTEN = 20
REPEATS = 3
MOST_TRIED = 30
PARTS = ("retrain", "update", "R's pass")


def _case(learner: str, size: str) -> list[Figure]:
    from threadpoolctl import threadpool_limits

    from streamtopic.bench.rates import measured_rates
    from streamtopic.bench.stages import CORRELATIONS, RETRAIN
    from streamtopic.bench.synthetic import counted, planted
    from streamtopic.topics.display import topic_correlations
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions

    documents, words, topics, tokens = SIZES[size]
    options = LearnerOptions(n_topics=topics, learner=learner, min_share=0.0, max_df=0.2)  # type: ignore[arg-type]  # a case's own name
    batch = planted(documents, words, topics, tokens)
    everything = counted(batch, words, options.weighting)
    with threadpool_limits(1):
        fit = learn(everything, options)
        rates = measured_rates(topics)
        found = {
            "retrain": [_clocked(RETRAIN, lambda: learn(everything, options).certificate) for _ in range(REPEATS)],
            "update": _updates(batch, everything, fit),
            "R's pass": [_clocked(CORRELATIONS, partial(topic_correlations, fit, fit.A)) for _ in range(REPEATS)],
        }
    figures = [
        Figure("words", len(fit.words), "words"),
        Figure("candidates", len(fit.candidates), "words"),
        Figure("entries of Q", fit.q.entries, "entries"),
        Figure("bytes of an entry", fit.q.nbytes / fit.q.entries, "bytes"),
        *rates.figures(),
    ]
    return figures + [one for part, profiles in found.items() for one in _figures(part, profiles, rates)]


def _clocked(stages: Sequence[Stage], work: Callable[[], object]) -> Profile:
    from streamtopic.bench.profile import clocked_stages

    with clocked_stages(stages) as profile:
        work()
    return profile


def _updates(batch: DocumentBatch, everything: Counts, fit: TopicFit) -> list[Profile]:
    """Return the profiles of updates that were verified; the first compiles what only updates use and is left out."""
    from streamtopic.bench.stages import UPDATE
    from streamtopic.counts import Cooccurrence, Counts, SignedPassages, count
    from streamtopic.counts.count_sources import CountsWithout

    n, rng = len(everything.words), np.random.default_rng(1)
    profiles: list[Profile] = []
    for _ in range(MOST_TRIED):
        gone = np.sort(rng.choice(batch.documents, FORGOTTEN, replace=False))
        forgotten = batch.take(gone)
        part = count(forgotten, n, fit.options.weighting)
        now = CountsWithout(everything, part)
        delta = Counts(everything.words, Cooccurrence.zero(n) - part)
        own, verified = copy.deepcopy(fit), list[bool]()
        passages = SignedPassages.gone(forgotten, fit.options.weighting)
        profile = _clocked(UPDATE, partial(_forget, own, now, delta, passages, verified))
        if verified[0]:
            profiles.append(profile)
        if len(profiles) > REPEATS:
            break
    return profiles[1:]


def _forget(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages, verified: list[bool]
) -> None:
    """Update a fit, certificate included, and note whether that was verified."""
    from streamtopic.topics.update import Updated, update

    outcome = update(fit, now, delta, passages)
    verified.append(isinstance(outcome, Updated) and outcome.fit.certificate.bound <= fit.options.tolerance)


def _figures(part: str, profiles: Sequence[Profile], rates: Rates) -> list[Figure]:
    """Return medians over the profiles: seconds, share and distance from the bound of each stage."""
    if not profiles:
        return []
    total = float(np.median([profile.total for profile in profiles]))
    figures = [Figure(part, total, "CPU s")]
    names = dict.fromkeys(name for profile in profiles for name in profile.seconds)
    for name in sorted(names, key=lambda name: name == "rest"):
        seconds = float(np.median([profile.seconds.get(name, 0.0) for profile in profiles]))
        figures.append(Figure(f"{part}, {name}", seconds, "CPU s"))
        figures.append(Figure(f"{part}, {name}, share", 100 * seconds / total, "%"))
        bounds = [rates.bound(profile.work[name]) for profile in profiles if name in profile.work]
        if bounds:
            least = float(np.median([bound for bound, _ in bounds]))
            figures.append(Figure(f"{part}, {name}, bound", least, "s", bounds[0][1]))
    return figures


def text(result: Result) -> str:
    """Return a table for each case: stages, seconds, shares, bounds, and how far from them."""
    from streamtopic.console import table

    shown = [result.machine]
    for case in result.cases:
        figures = {figure.name: figure for figure in case.figures}
        plain = [f for f in case.figures if not any(f.name.startswith(part) for part in PARTS)]
        said = ", ".join(f"{f.name} {f.value:,.4g} {f.unit}" for f in plain)
        rows = []
        for name, figure in figures.items():
            if f"{name}, share" not in figures and name not in PARTS:
                continue
            share, bound = figures.get(f"{name}, share"), figures.get(f"{name}, bound")
            over = f"{figure.value / bound.value:.1f} x" if bound and bound.value else ""
            least, by = (f"{bound.value:.4f}", bound.target) if bound else ("", "")
            rows.append([name, f"{figure.value:.4f}", f"{share.value:.0f} %" if share else "", least, over, by])
        head = ["stage", "CPU s", "share", "bound, s", "over it", "bound by"]
        shown.append(f"{case.case}: {said}\n\n{table(head, rows)}\npeak memory {case.peak_memory / 1e6:.0f} MB")
    return "\n\n".join(shown)


CASES = {f"{learner}-{size}": partial(_case, learner, size) for size in SIZES for learner in ("default", "paper")}
