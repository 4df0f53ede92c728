"""Corpora drawn from planted topics, so that there is something to find."""

import numpy as np
import pytest

from streamtopic.counts import Counts, DocumentBatch, Passage, count
from streamtopic.topics.learner_options import LearnerOptions


class Planted:
    """Documents of a topic model with r topics over n words; the first r words are anchors."""

    def __init__(self, documents=600, n=120, r=4, length=80, seed=0):
        rng = np.random.default_rng(seed)
        self.r = r
        A = rng.dirichlet(np.full(n - r, 0.15), r).T * 0.94
        self.A = np.vstack([np.eye(r) * 0.06, A])
        theta = rng.dirichlet(np.full(r, 0.25), documents)
        self.words = [f"word{k:03d}" for k in range(n)]
        self.documents = [self._document(rng.multinomial(length, self.A @ t)) for t in theta]

    @staticmethod
    def _document(amounts):
        held = np.flatnonzero(amounts)
        return [Passage(int(amounts.sum()), held.astype(np.int32), amounts[held].astype(np.int32))]

    def counts(self, options, which=None):
        """Counts of some documents (all by default), over all words."""
        chosen = self.documents if which is None else [self.documents[k] for k in which]
        return Counts(self.words, count(DocumentBatch.build(chosen), len(self.words), options.weighting))

    def options(self, learner="default", **more):
        """Options that keep every word of the planted vocabulary."""
        return LearnerOptions(**{"n_topics": self.r, "learner": learner, "max_df": 1.0, "min_df": 3, **more})


@pytest.fixture(scope="session")
def planted():
    """One planted corpus for all tests that do not change it."""
    return Planted()


@pytest.fixture
def make_planted():
    """The class, for corpora of another size or to be changed."""
    return Planted
