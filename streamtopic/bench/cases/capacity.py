"""Deletion capacity by trial, both learners: the random and aimed forget sets that are borne, and the cost of trials.

The formula's own number and the 1 % of the rule `share` are next to it. Seconds of a trial are given in those of
learning, since both are measured in one run.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streamtopic.bench.figures import Figure, timed

__all__ = ["CASES", "OPTIONS"]

OPTIONS = {"documents": "", "topics": 20, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; seed: of the forget sets."""

UPDATES = 100


def _case(learner: str, documents: str, topics: int, seed: int) -> list[Figure]:
    from streamtopic.counts import Counts, count
    from streamtopic.documents.corpus import load_corpus
    from streamtopic.paper.calibration import CalibrationPlan, calibrate
    from streamtopic.service.verify.recount import Numbering
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions
    from streamtopic.words.text import passages

    corpus = load_corpus(documents)
    options = LearnerOptions(n_topics=topics, learner=learner)  # type: ignore[arg-type]  # a case's own name
    numbering = Numbering()
    words, batch = numbering.batch([numbering.number(tuple(passages(one.text))) for one in corpus.documents])
    counts = Counts(words, count(batch, len(words), options.weighting))
    learn(counts, options)  # compiles
    learning, fit = timed(partial(learn, counts, options))
    plan = CalibrationPlan(most_updates=UPDATES)
    generator = np.random.default_rng(seed)
    seconds, found = timed(partial(calibrate, counts, batch, options, generator, plan, fit))
    capacity = found.capacity(1.0, 1e-6)
    return [
        Figure("documents", batch.documents, "documents"),
        Figure("vocabulary", len(fit.words), "words"),
        Figure("learning", learning, "s"),
        Figure("random forget sets", found.random_limit, "deletions"),
        Figure("forget sets that aim at a topic", found.aimed_limit, "deletions"),
        Figure("hard limit", found.hard_limit, "deletions"),
        Figure("1 % of the documents", max(batch.documents // 100, 1), "deletions"),
        Figure("formula, c = 1", capacity.formula, "deletions"),
        Figure("implied c", capacity.constant, ""),
        Figure("updates", found.updates, f"of {UPDATES}"),
        Figure("trials", seconds, "s"),
        Figure("one update over learning", seconds / max(found.updates, 1) / learning, "x"),
    ]


CASES = {learner: partial(_case, learner) for learner in ("default", "paper")}
