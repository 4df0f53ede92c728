"""How many deletions one after another are served by learning from scratch, and why: single ones, and batches of ten.

100 random documents are deleted one by one, then, from the whole corpus again, 20 batches of ten. The benchmark fails
where the last model is not that of a corpus without the documents.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from streamtopic.lab.bench.figures import Figure

if TYPE_CHECKING:
    from streamtopic.lab.bench.runner import Option, Result
    from streamtopic.lab.bench.twins import Chain

__all__ = ["CASES", "OPTIONS", "text"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "seed": 1}
"""documents: a file of JSON lines, installed docstrings where none is given; seed: of the documents that go."""

CHAINS = {"single deletions": (100, 1), "batches of ten": (20, 10)}
TARGET = 0.02
"""Largest share of changes that may be learned from scratch."""
DIFFERENCE = 1e-12


def _case(learner: str, documents: str, topics: int, seed: int) -> list[Figure]:
    from streamtopic.documents.corpus import load_corpus
    from streamtopic.lab.bench.twins import Twins
    from streamtopic.topics.learner_options import LearnerOptions

    twins = Twins(load_corpus(documents), LearnerOptions(n_topics=topics, learner=learner))  # type: ignore[arg-type]  # a case's own name
    m = twins.batch.documents
    figures = [Figure("documents", m, "documents"), Figure("vocabulary", len(twins.fit.words), "words")]
    for name, (steps, at_once) in CHAINS.items():
        # Never more than half of the documents, so that small corpora can be tried.
        figures += _figures(name, twins.chain(min(steps, m // (2 * at_once)), seed, at_once))
    return figures


def _figures(name: str, chain: Chain) -> list[Figure]:
    """Return how many were learned from scratch and why. Raises CheckFailed where the last model remembers."""
    from streamtopic.errors import CheckFailed

    if not (chain.same_words and chain.difference <= DIFFERENCE):
        raise CheckFailed(f"a model that forgot differs from its twin, please report it: {chain}")
    of = f"of {chain.steps}"
    return [
        Figure(f"{name}: learned from scratch", chain.retrains.total(), of, f"<= {TARGET * chain.steps:g}"),
        *(Figure(f"{name}: learned from scratch, {why}", times, of) for why, times in chain.retrains.most_common()),
        Figure(f"{name}: difference at the end", chain.difference, "", f"<= {DIFFERENCE:g}"),
    ]


def text(result: Result) -> str:
    """Return a line for each figure of each case."""
    said = [result.machine, f"{result.options['documents'] or 'docstrings'}, {result.options['topics']} topics"]
    for case in result.cases:
        lines = [f"  {f.name}: {f.value:,.4g} {f.unit}{f' ({f.target})' if f.target else ''}" for f in case.figures]
        said.append("\n".join([f"learner {case.case}", *lines]))
    return "\n\n".join(said)


CASES = {learner: partial(_case, learner) for learner in ("default", "paper")}
