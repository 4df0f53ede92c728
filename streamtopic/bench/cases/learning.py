"""Learning from counts, and an update of 20 forgotten documents, for both learners at two sizes.

Documents are drawn and counted in another process; counts are read from a file in pieces, as a service reads them from
Redis, so that peak memory is a learner's.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from streamtopic.bench.drawn import SavedCounts
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CASES", "ratios"]

FORGOTTEN = 20
MOST_TRIED = 30
REPEATS = 3
SIZES = {"5000": (18_771, 5_000, 50, 52), "20000": (20_000, 20_000, 100, 82)}
GOALS = {"20000": ("<= 8", "<= 2500")}


def _case(learner: str, size: str) -> list[Figure]:
    from streamtopic.bench.drawn import SavedCounts, drawn, peak_megabytes
    from streamtopic.topics.display import topic_correlations
    from streamtopic.topics.learner_options import LearnerOptions

    documents, words, topics, tokens = SIZES[size]
    options = LearnerOptions(n_topics=topics, learner=learner, min_share=0.0, max_df=0.2)  # type: ignore[arg-type]  # a case's own name
    with TemporaryDirectory() as name:
        folder = Path(name)
        drawn("counts", folder, documents, words, topics, tokens, options.weighting.cap, MOST_TRIED, FORGOTTEN)
        everything = SavedCounts.opened(folder)
        # The first one compiles, or loads what is compiled.
        cold = [_learned(everything, options) for _ in range(REPEATS + 1)][1:]
        peak = peak_megabytes()
        reading = timed(lambda: everything.symmetric(np.arange(words)))[0]
        warm, tried, fit = _updates(folder, everything, options)
    seconds, memory = GOALS.get(size, ("", ""))
    figures = [
        Figure("words", len(fit.words), "words"),
        Figure("candidates", len(fit.candidates), "words"),
        Figure("entries of Q", fit.q.entries, "entries"),
        Figure("retrain", float(np.median(cold)), "s", seconds),
        Figure("of it reading counts", reading, "s"),
        Figure("R's pass", timed(lambda: topic_correlations(fit, fit.A))[0], "s"),
        Figure("updates tried", tried, "updates"),
        Figure("updates verified", len(warm), "updates"),
        Figure("certificate", fit.certificate.bound, "||A - A*||"),
        Figure("memory of Q", fit.q.nbytes / (1 << 20), "MB"),
        Figure("peak memory of a retrain", peak, "MB", memory),
        Figure("peak memory with updates", peak_megabytes(), "MB"),
    ]
    if len(warm) > 1:
        # The first update compiles what only updates use and is not counted.
        figures.insert(4, Figure("update", float(np.median(warm[1:])), "s"))
    return figures


def _learned(everything: SavedCounts, options: LearnerOptions) -> float:
    """Return the seconds of a cold start, its certificate included."""
    from streamtopic.topics.learner import learn

    seconds, _ = timed(lambda: learn(everything, options).certificate)
    return seconds


def _updates(folder: Path, everything: SavedCounts, options: LearnerOptions) -> tuple[list[float], int, TopicFit]:
    """Forget 20 documents until enough updates are verified; their seconds, how many were tried, the last model."""
    from streamtopic.bench.drawn import forget_sets
    from streamtopic.counts import Cooccurrence, Counts, CountsWithout, SignedPassages, count
    from streamtopic.topics.learner import learn
    from streamtopic.topics.update import Updated, update

    words, sets = len(everything.words), forget_sets(folder)
    fit = None
    warm: list[float] = []
    tried = 0
    while len(warm) <= REPEATS and tried < MOST_TRIED:
        gone = sets.span(FORGOTTEN * tried, FORGOTTEN * (tried + 1))
        tried += 1
        part = count(gone, words, options.weighting)
        delta = Counts(everything.words, Cooccurrence.zero(words) - part)
        start, fit = learn(everything, options), None
        passages = SignedPassages.gone(gone, options.weighting)
        seconds, outcome = timed(partial(update, start, CountsWithout(everything, part), delta, passages))
        del start
        if isinstance(outcome, Updated):
            fit = outcome.fit
            warm.append(seconds + timed(lambda fit=fit: fit.certificate)[0])  # type: ignore[misc]  # bound now, on purpose
        del outcome
    return warm, tried, fit or learn(everything, options)


def ratios(found: dict[str, dict[str, float]]) -> list[Figure]:
    """Return retrain over update within each case."""
    return [
        Figure(f"{case}: retrain over update", figures["retrain"] / figures["update"], "x")
        for case, figures in found.items()
        if "update" in figures
    ]


CASES = {f"{learner}-{size}": partial(_case, learner, size) for size in SIZES for learner in ("default", "paper")}
