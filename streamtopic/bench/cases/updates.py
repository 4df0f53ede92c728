"""What an update costs against how much was learned: ten documents forgotten out of growing numbers of them.

Documents are of planted topics, 66 tokens among 5,000 words, 50 topics. Seconds are processor time, certificates
included. Each update goes on from the model that the last one left, as in a service; the median of those that were
verified counts, and of three retrains. The first update, which also counts the pairs of the vocabulary, is left out.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamtopic.bench.figures import Figure, certified, cpu_timed

if TYPE_CHECKING:
    import numpy.typing as npt

    from streamtopic.bench.runner import Option
    from streamtopic.counts import DocumentBatch
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"largest": 300_000, "draws": 20, "seed": 0}
"""largest: most documents that are learned; draws: updates of each number of documents."""
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
FORGOTTEN = 10
RETRAINS = 3
WORDS, TOPICS, TOKENS = 5_000, 50, 66


def _case(learner: Literal["default", "paper"], largest: int, draws: int, seed: int) -> list[Figure]:
    from streamtopic.bench.synthetic import planted
    from streamtopic.errors import UsageError
    from streamtopic.topics.learner_options import LearnerOptions

    sizes = [size for size in SIZES if size <= largest]
    if not sizes:
        raise UsageError(f"largest is {largest}: take at least {SIZES[0]:,}")
    batch = planted(sizes[-1], WORDS, TOPICS, TOKENS, seed)
    options = LearnerOptions(n_topics=TOPICS, learner=learner, min_share=0.0, max_df=0.2)
    order = np.random.default_rng(seed + 1).permutation(sizes[0])
    gone = [np.sort(order[FORGOTTEN * k : FORGOTTEN * (k + 1)]) for k in range(draws + 1)]
    _measured(batch.take(np.arange(sizes[0])), gone[:2], options)  # compiles what is measured
    figures, medians = [], []
    for size in sizes:
        retrain, verified = _measured(batch.take(np.arange(size)), gone, options)
        medians.append(statistics.median(verified) if verified else float("nan"))
        figures += [
            Figure(f"m = {size:,}: retrain", retrain, "CPU s"),
            Figure(f"m = {size:,}: update", medians[-1], "CPU s"),
            Figure(f"m = {size:,}: retrain over update", retrain / medians[-1], "x"),
            Figure(f"m = {size:,}: retrains needed", draws - len(verified), f"of {draws}"),
        ]
    return [*figures, Figure("update at most documents over fewest", medians[-1] / medians[0], "x", "flat: 1")]


def _measured(
    batch: DocumentBatch, gone: list[npt.NDArray[np.intp]], options: LearnerOptions
) -> tuple[float, list[float]]:
    """Return the seconds of a retrain, and of each update that its certificate verified.

    gone: sets of documents to forget one after the other, each ascending.
    """
    from streamtopic.bench.synthetic import counted
    from streamtopic.counts import Cooccurrence, Counts, count
    from streamtopic.topics.learner import learn
    from streamtopic.topics.update import NeedsRetrain, update

    whole = counted(batch, WORDS, options.weighting)
    learned = [cpu_timed(lambda: certified(learn(whole, options))) for _ in range(RETRAINS)]
    _, fit = learned[0]
    left, verified = whole.cooccurrence, []
    for documents in gone:
        out = batch.take(documents)
        part = count(out, WORDS, options.weighting)
        left = left - part
        now, change = Counts(whole.words, left), Counts(whole.words, Cooccurrence.zero(WORDS) - part)
        seconds, outcome = cpu_timed(partial(update, fit, now, change))
        fit = learn(now, options) if isinstance(outcome, NeedsRetrain) else outcome
        more, _ = cpu_timed(partial(certified, fit))
        if not isinstance(outcome, NeedsRetrain) and fit.certificate.bound <= options.tolerance:
            verified.append(seconds + more)
    return statistics.median(seconds for seconds, _ in learned), verified[1:]


CASES = {learner: partial(_case, learner) for learner in ("default", "paper")}
