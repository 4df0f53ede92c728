"""Learning from counts, and an update of 20 forgotten documents, for both learners at two sizes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure, timed
from streamtopic.bench.synthetic import counted, planted, subset

if TYPE_CHECKING:
    from streamtopic.counts import Counts, DocumentBatch
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.options import LearnerOptions

__all__ = ["CASES", "ratios"]

FORGOTTEN = 20
MOST_TRIED = 30
REPEATS = 3
SIZES = {"5000": (18_771, 5_000, 50, 52), "20000": (18_000, 20_000, 100, 82)}


def _case(learner: str, size: str) -> list[Figure]:
    from streamtopic.topics.learner import learn
    from streamtopic.topics.options import LearnerOptions
    from streamtopic.topics.released import topic_correlations

    documents, words, topics, tokens = SIZES[size]
    options = LearnerOptions(n_topics=topics, learner=learner, max_df=0.2)  # type: ignore[arg-type]  # a case's own name
    batch = planted(documents, words, topics, tokens)
    everything = counted(batch, words, options.weighting)
    learn(counted(subset(batch, np.arange(2_000)), words, options.weighting), options)
    cold = [_learned(everything, options) for _ in range(REPEATS)]
    warm, tried, fit = _updates(batch, everything, options)
    figures = [
        Figure("words", len(fit.words), "words"),
        Figure("candidates", len(fit.candidates), "words"),
        Figure("entries of Q", fit.q.entries, "entries"),
        Figure("retrain", float(np.median(cold)), "s"),
        Figure("R's pass", timed(lambda: topic_correlations(fit, fit.A))[0], "s"),
        Figure("updates tried", tried, "updates"),
        Figure("updates verified", len(warm), "updates"),
        Figure("certificate", fit.certificate.bound, "||A - A*||"),
    ]
    if len(warm) > 1:
        # The first update compiles what only updates use and is not counted.
        figures.insert(4, Figure("update", float(np.median(warm[1:])), "s"))
    return figures


def _learned(everything: Counts, options: LearnerOptions) -> float:
    """Return the seconds of a cold start, its certificate included."""
    from streamtopic.topics.learner import learn

    seconds, _ = timed(lambda: learn(everything, options).certificate)
    return seconds


def _updates(batch: DocumentBatch, everything: Counts, options: LearnerOptions) -> tuple[list[float], int, TopicFit]:
    """Forget 20 documents until enough updates are verified; their seconds, how many were tried, the last model."""
    from streamtopic.counts import Cooccurrence, Counts
    from streamtopic.topics.learner import learn
    from streamtopic.topics.update import Updated, update

    words = len(everything.words)
    fit = learn(everything, options)
    warm: list[float] = []
    rng = np.random.default_rng(1)
    tried = 0
    while len(warm) <= REPEATS and tried < MOST_TRIED:
        tried += 1
        gone = np.sort(rng.choice(batch.documents, FORGOTTEN, replace=False))
        part = counted(subset(batch, gone), words, options.weighting).cooccurrence
        now = Counts(everything.words, everything.cooccurrence - part)
        delta = Counts(everything.words, Cooccurrence.zero(words) - part)
        start = learn(everything, options)
        seconds, outcome = timed(partial(update, start, now, delta))
        if isinstance(outcome, Updated):
            fit = outcome.fit
            warm.append(seconds + timed(lambda fit=fit: fit.certificate)[0])  # type: ignore[misc]  # bound now, on purpose
    return warm, tried, fit


def ratios(found: dict[str, dict[str, float]]) -> list[Figure]:
    """Return retrain over update within each case."""
    return [
        Figure(f"{case}: retrain over update", figures["retrain"] / figures["update"], "x")
        for case, figures in found.items()
        if "update" in figures
    ]


CASES = {f"{learner}-{size}": partial(_case, learner, size) for size in SIZES for learner in ("default", "paper")}
