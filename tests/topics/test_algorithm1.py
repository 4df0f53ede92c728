"""Algorithm 1 to the letter, against dense arithmetic, the published learner and the planted truth."""

import numpy as np
import pytest

from packed import values_of
from streamtopic.bench.synthetic import SyntheticTopics
from streamtopic.counts import Counts, Weighting, count
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.paper.algorithm1 import (
    BaseStatistics,
    chosen_again,
    covariance,
    newton_rows,
    remaining,
    remaining_counts,
    retrain_rows,
    unlearn_base,
)
from streamtopic.privacy.noise import project_columns
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

N, R, M, L = 60, 4, 1500, 20


def options(**more):
    """The published learner, every word kept."""
    return LearnerOptions(
        **{"n_topics": R, "learner": "paper", "min_df": 1, "max_df": 1.0, "anchor_min_df": 0.0, **more}
    )


class Corpus:
    """Documents of a planted model and counts of any part of them."""

    def __init__(self, m=M, seed=0):
        self.planted = SyntheticTopics.planted(N, R, separability=0.1, imbalance=2, seed=seed)
        self.documents = self.planted.documents(m, L, seed=seed + 1)

    def counts(self, which, cap=1):
        part = self.documents.take(np.asarray(which, np.intp))
        return Counts(self.planted.words, count(part, N, Weighting(cap)))


@pytest.fixture(scope="module")
def corpus():
    """One corpus for all tests that leave it alone."""
    return Corpus()


@pytest.fixture(scope="module")
def fit(corpus):
    """The model of the whole corpus."""
    return learn(corpus.counts(range(M)), options())


def dense(documents):
    """Q as the paper's appendix A writes it, (n, n): mean of H H^T - diag(H) over L (L - 1)."""
    Q = np.zeros((N, N))
    for k in range(documents.documents):
        row = slice(documents.indptr[k], documents.indptr[k + 1])
        H = np.zeros(N)
        H[documents.words[row]] = documents.counts[row]
        Q += (np.outer(H, H) - np.diag(H)) / (L * (L - 1))
    return Q / documents.documents


@pytest.mark.parametrize("forgotten", [0, 1, 40])
def test_it_is_the_algorithm_of_the_paper(corpus, fit, forgotten):
    """Counts less the forget set, step, projection, columns and R are those of dense arithmetic on what remains."""
    left = remaining(fit, corpus.counts(range(forgotten)) if forgotten else None)
    found = unlearn_base(left)
    Q = dense(corpus.documents.take(np.arange(forgotten, M)))
    p = Q.sum(axis=1)
    rows = Q / p[:, None]
    anchors = rows[[corpus.planted.words.index(word) for word in fit.anchors]]
    unconstrained = np.linalg.lstsq(anchors.T, rows.T)[0].T
    C = project_columns(unconstrained.T).T
    A = p[:, None] * C / (p @ C)
    pseudoinverse = np.linalg.pinv(A)
    assert left.documents == M - forgotten
    assert found.words == corpus.planted.words
    assert np.abs(found.C - C).max() < 1e-7  # the integer weights are rounded to 2^-36 of a document
    assert np.abs(found.A - A).max() < 1e-8
    assert np.abs(found.R - pseudoinverse @ Q @ pseudoinverse.T).max() < 1e-6
    assert left.sigma_min == pytest.approx(np.linalg.svd(anchors, compute_uv=False)[-1], rel=1e-3)


def test_words_are_those_that_a_retraining_chooses():
    """Words that cross a threshold leave and enter: the vocabulary does not tell what was forgotten."""
    some = options(max_df=0.5)
    small = Corpus(m=120, seed=5)
    fit = learn(small.counts(range(120)), some)
    seen = set()
    for forgotten in (5, 20, 40):
        source = small.counts(range(forgotten, 120))
        left = remaining_counts(BaseStatistics.of(fit, small.counts(range(120))), source, some)
        retrained = learn(source, some)
        assert left.words == retrained.words
        assert np.isfinite(unlearn_base(left).A).all()
        if retrained.anchors == fit.anchors:
            assert np.abs(retrain_rows(left).A - retrained.A).max() < 1e-12
        assert tuple(left.words[k] for k in chosen_again(left)) == retrained.anchors
        seen.add(left.words != fit.words)
    assert True in seen


def test_what_was_not_learned_cannot_be_forgotten(corpus, fit):
    """Documents from elsewhere, and the whole corpus twice over, are refused and leave the model alone."""
    before = values_of(fit.q).tobytes()
    stranger = Corpus(seed=17)
    for forget in (
        stranger.counts(range(M)),
        corpus.counts([*range(M)]).cooccurrence + corpus.counts([0]).cooccurrence,
    ):
        source = forget if isinstance(forget, Counts) else Counts(corpus.planted.words, forget)
        with pytest.raises(NegativeCounts, match="were not learned"):
            remaining(fit, source)
    assert values_of(fit.q).tobytes() == before


def test_a_lost_anchor_and_dependent_rows_end_in_a_reason(corpus, fit):
    """Forgetting every document of an anchor, anchors that coincide and equal topics raise CannotLearn, never NaN."""
    documents, base = corpus.documents, BaseStatistics.of(fit, corpus.counts(range(M)))
    anchor = corpus.planted.words.index(fit.anchors[0])
    row = np.repeat(np.arange(M), np.diff(documents.indptr))
    with pytest.raises(CannotLearn) as error:
        remaining(fit, corpus.counts(np.unique(row[documents.words == anchor])))
    assert error.value.reason == "anchor mass"
    with pytest.raises(CannotLearn) as error:
        remaining_counts(base, corpus.counts(np.unique(row[documents.words != anchor])[:0]), options())
    assert error.value.reason == "documents"
    without = np.setdiff1d(np.arange(M), row[documents.words == anchor])
    with pytest.raises(CannotLearn, match=f"anchor word {fit.anchors[0]}"):
        remaining_counts(base, corpus.counts(without), options())
    with pytest.raises(CannotLearn) as error:
        newton_rows(np.eye(2), np.eye(2), np.ones((2, 2)))
    assert error.value.reason == "rank"
    left = remaining(fit)
    with pytest.raises(CannotLearn) as error:
        covariance(left.q, np.repeat(fit.A[:, :1], 2, axis=1))
    assert error.value.reason == "rank"


def test_only_the_published_learner_starts_it(corpus):
    """A fit of the default learner is refused, with what to learn instead."""
    source = corpus.counts(range(M), 256)
    default = learn(source, options(learner="default"))
    with pytest.raises(UsageError, match="paper"):
        remaining(default)
    with pytest.raises(UsageError, match="paper"):
        remaining_counts(BaseStatistics.of(default, source), source, default.options)
