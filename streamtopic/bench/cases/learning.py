"""Learning from counts, and an update of 20 forgotten documents, for both learners at two sizes."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamtopic.bench.figures import Figure, timed
from streamtopic.bench.synthetic import counted, planted, subset

__all__ = ["CASES", "ratios"]

FORGOTTEN = 20
REPEATS = 3
SIZES = {"5000": (18_771, 5_000, 50, 72), "20000": (16_000, 20_000, 100, 110)}


def _case(learner: str, size: str) -> list[Figure]:
    from streamtopic.counts import Cooccurrence, Counts
    from streamtopic.topics.learner import learn
    from streamtopic.topics.options import LearnerOptions
    from streamtopic.topics.released import topic_correlations
    from streamtopic.topics.update import Updated, update

    documents, words, topics, tokens = SIZES[size]
    options = LearnerOptions(n_topics=topics, learner=learner, max_df=0.2)  # type: ignore[arg-type]  # a case's own name
    batch = planted(documents, words, topics, tokens)
    everything = counted(batch, words, options.weighting)
    learn(counted(subset(batch, np.arange(2_000)), words, options.weighting), options)
    cold, fit = [], None
    for _ in range(REPEATS):
        fit = None
        seconds, fit = timed(lambda: learn(everything, options))
        cold.append(seconds + timed(lambda fit=fit: fit.certificate)[0])
    warm, tried = [], 0
    rng = np.random.default_rng(1)
    nothing = Cooccurrence.zero(words)
    # The first update compiles what only updates use and is not counted.
    while len(warm) < REPEATS + 1 and tried < 30:
        tried += 1
        gone = np.sort(rng.choice(documents, FORGOTTEN, replace=False))
        part = counted(subset(batch, gone), words, options.weighting).cooccurrence
        now = Counts(everything.words, everything.cooccurrence - part)
        delta = Counts(everything.words, nothing - part)
        fit = learn(everything, options)
        seconds, outcome = timed(lambda fit=fit, now=now, delta=delta: update(fit, now, delta))
        if isinstance(outcome, Updated):
            warm.append(seconds + timed(lambda outcome=outcome: outcome.fit.certificate)[0])
            fit = outcome.fit
    entries = len(fit.q.values)
    figures = [
        Figure("words", len(fit.words), "words"),
        Figure("candidates", len(fit.candidates), "words"),
        Figure("entries of Q", entries, "entries"),
        Figure("retrain", float(np.median(cold)), "s"),
        Figure("R's pass", timed(lambda: topic_correlations(fit, fit.A))[0], "s"),
        Figure("updates tried", tried, "updates"),
        Figure("updates verified", len(warm), "updates"),
        Figure("certificate", fit.certificate.bound, "||A - A*||"),
    ]
    if len(warm) > 1:
        figures.insert(4, Figure("update", float(np.median(warm[1:])), "s"))
    return figures


def ratios(found: dict[str, dict[str, float]]) -> list[Figure]:
    """Return retrain over update within each case."""
    return [
        Figure(f"{case}: retrain over update", figures["retrain"] / figures["update"], "x")
        for case, figures in found.items()
        if "update" in figures
    ]


CASES = {f"{learner}-{size}": partial(_case, learner, size) for size in SIZES for learner in ("default", "paper")}
