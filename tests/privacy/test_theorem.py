"""Theorem mode: sigma to the letter, the same for every forget set, and honest about what is left of the model."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamtopic.counts import Counts, Weighting, count
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.paper.capacity_formulas import ModelConstants
from streamtopic.paper.theorem import (
    TheoremOptions,
    fit_constants,
    plan_theorem,
    theorem_release,
)
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.synthetic import SyntheticTopics
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

CONSTANTS = ModelConstants(a=2.0, p_sep=0.1, gamma=0.5, eps0=0.01)
LENGTH = 10


def seeds(run=1):
    """Seeds of one run's noise, by purpose."""
    return lambda purpose: NoiseKey(bytes(32)).seed("model", run, "digest", purpose)


def small(words=8, topics=2, separability=0.3, seed=0, **more):
    """A model with so few words and topics that theorem mode is not vacuous on it."""
    return SyntheticTopics.planted(
        words,
        topics,
        seed=seed,
        **{"separability": separability, "concentration": 0.3, "word_concentration": 1.0, **more},
    )


class Corpus:
    """Documents of a planted model, counts of any of them and what is learned from them."""

    def __init__(self, planted, m=20_000, seed=0):
        self.planted = planted
        self.documents = planted.documents(m, LENGTH, seed=seed + 100)
        self.options = LearnerOptions(
            n_topics=len(planted.anchors), learner="paper", min_df=1, max_df=1.0, anchor_min_df=0.0
        )

    def counts(self, which):
        part = self.documents.take(np.asarray(which, np.intp))
        return Counts(self.planted.words, count(part, len(self.planted.words), Weighting(1)))

    def fit(self, start=0):
        return learn(self.counts(range(start, self.documents.documents)), self.options)

    def richest(self, word, k):
        """Up to k documents that hold a word, most often first: an adversary's choice."""
        held = np.flatnonzero(self.documents.words == word)
        owner = np.searchsorted(self.documents.indptr, held, side="right") - 1
        return np.sort(owner[np.argsort(-self.documents.counts[held], kind="stable")[:k]])


@pytest.fixture(scope="module")
def corpus():
    """One corpus for all tests that leave it alone."""
    return Corpus(small())


@pytest.fixture(scope="module")
def fit(corpus):
    """The model of the whole corpus."""
    return corpus.fit()


def test_sigma_is_the_proofs_sigma():
    """Delta and sigma are the formulas of the paper, worked out by hand, Delta rounded up by less than sqrt 2."""
    options = TheoremOptions(deletions=5, epsilon=0.5, delta=1e-6, c=0.001)
    plan = plan_theorem(10**6, 1_000, 10, CONSTANTS, 0.25, options)
    assert plan.formula == pytest.approx(0.4)
    assert plan.topics.sensitivity == 0.5
    assert plan.topics.sigma == pytest.approx(0.5 * math.sqrt(2 * math.log(1.25e6)) / 0.5, rel=1e-5)
    assert plan.covariance.sensitivity == 2 ** (math.ceil(2 * math.log2(2 * math.sqrt(2) * 0.25 * 0.4 / 1e-3)) / 2)
    for noise in (plan.topics, plan.covariance):
        assert noise.sigma == pytest.approx(noise.sensitivity * math.sqrt(2 * math.log(1.25e6)) / 0.5)
        assert math.log2(noise.grid) == math.floor(math.log2(noise.sigma / 16))


def test_noise_tells_nothing_of_the_forget_set(corpus, fit):
    """No, one or T documents, and a reference run on what is left, all get noise of the same size."""
    options = TheoremOptions(deletions=10, c=0.02, length=LENGTH)
    plans = [
        theorem_release(fit, corpus.counts(range(k)) if k else None, options, seeds()).plan.topics for k in (0, 1, 10)
    ]
    plans.append(theorem_release(corpus.fit(start=10), None, options, seeds()).plan.topics)
    assert plans == [plans[0]] * 4


def test_a_release_is_a_model(corpus, fit):
    """Columns of A are on the simplex, R has no negative eigenvalue, and a seed draws the same noise again."""
    options = TheoremOptions(deletions=10, c=0.02, length=LENGTH)
    first, again, other = (theorem_release(fit, corpus.counts(range(7)), options, seeds(run)) for run in (1, 1, 2))
    assert first.words == corpus.planted.words
    assert first.A.min() >= 0
    assert first.A.sum(axis=0) == pytest.approx(np.ones(2))
    assert np.array_equal(first.R, first.R.T)
    assert np.linalg.eigvalsh(first.R)[0] > -1e-12
    assert first.A.tobytes() == again.A.tobytes()
    assert first.R.tobytes() == again.R.tobytes()
    assert not np.array_equal(first.A, other.A)
    assert not np.array_equal(first.R, other.R)


def test_noise_that_a_retraining_would_not_draw_shows(corpus, fit):
    """Where Delta of S and of S less the forget set round apart, the two could be told apart, and a check says so."""
    m, T = 20_000, 10
    plan = plan_theorem(m, 8, 2, fit_constants(fit), 1.0, TheoremOptions(T, length=LENGTH))
    # Delta is put just below a power of sqrt 2, so that that of fewer documents lies above it.
    c = 2.0 ** (math.floor(2 * math.log2(plan.formula)) / 2) / plan.formula * (1 - 1e-7)
    edge = TheoremOptions(T, c=c, length=LENGTH, constants=fit_constants(fit))
    for forgotten, alike in ((None, True), (corpus.counts(range(T)), False)):
        release = theorem_release(fit, forgotten, edge, seeds())
        (check,) = [check for check in release.checks if check.name.startswith("Delta")]
        assert check.holds is alike
        assert release.compared.ratio == pytest.approx(1 if alike else math.sqrt(2))


def test_a_retraining_is_estimated_as_it_would_estimate_itself(corpus, fit):
    """The constants that decide whether noise is alike are those of the model learned without the forget set."""
    forget = corpus.richest(corpus.planted.anchors[0], 300)
    twin = learn(corpus.counts(np.setdiff1d(np.arange(20_000), forget)), corpus.options)
    at = plan_theorem(twin.documents, 8, 2, fit_constants(twin), float(twin.p.max()), TheoremOptions(300))
    power = 2.0 ** (math.ceil(2 * math.log2(at.formula)) / 2) / at.formula
    for c in (1 + 1e-7, 1 - 1e-7):
        # The retraining's Delta lies next to a power of sqrt 2, on one side or the other.
        edge = TheoremOptions(300, c=power * c, length=LENGTH, q_norm=1.0)
        here = plan_theorem(20_000, 8, 2, fit_constants(fit), 1.0, edge)
        there = plan_theorem(twin.documents, 8, 2, fit_constants(twin), 1.0, edge)
        found = theorem_release(fit, corpus.counts(forget), edge, seeds()).compared.ratio
        expected = max(
            max(one.sensitivity / two.sensitivity, two.sensitivity / one.sensitivity)
            for one, two in ((here.topics, there.topics), (here.covariance, there.covariance))
        )
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(("name", "safe", "hopeful"), [("a", 1.1, 0.9), ("gamma", 0.9, 1.1), ("p_sep", 0.9, 1.1)])
def test_constants_that_promise_too_much_are_caught(corpus, fit, name, safe, hopeful):
    """A constant set on the safe side of its estimate holds; one that would make noise smaller fails its check."""
    estimate = getattr(fit_constants(fit), name)
    for factor, holds in ((safe, True), (hopeful, False)):
        options = TheoremOptions(3, length=LENGTH, known={name: factor * estimate})
        checks = theorem_release(fit, None, options, seeds(), compare=False).checks
        assert [check.holds for check in checks if check.name.endswith("as it is set")] == [holds]


def capacity_trials(trials, m, words, topics, c, separability):
    """Entry errors of released A with T documents forgotten, at random and against each anchor; Delta covers all."""
    errors = []
    for seed in range(trials):
        corpus = Corpus(small(words, topics, separability, seed), m, seed)
        fit = corpus.fit()
        constants = fit_constants(fit)
        one = plan_theorem(m, words, topics, constants, 1.0, TheoremOptions(1, 0.9, 1e-6, c)).topics.sigma
        # The greatest T at which the noise's largest entry keeps half of the utility loss for the learner.
        T = int(0.005 / (one * math.sqrt(2 * math.log(words * topics))))
        assert T >= 1
        options = TheoremOptions(T, 0.9, 1e-6, c, LENGTH)
        rng = np.random.default_rng(seed)
        forget = [np.sort(rng.choice(m, T, replace=False))]
        forget += [corpus.richest(anchor, T) for anchor in corpus.planted.anchors]
        for run, chosen in enumerate(forget):
            release = theorem_release(fit, corpus.counts(chosen), options, seeds(run + 10 * seed))
            assert all(check.holds for check in release.checks[-3:])
            assert not release.vacuity.vacuous
            errors.append(corpus.planted.recovery(release.words, release.A).A)
    return np.array(errors)


def test_deletions_up_to_t_keep_the_utility():
    """Nine in ten releases with T documents forgotten, chosen at random or against an anchor, are within 0.01 of A*."""
    errors = capacity_trials(8, 40_000, 8, 2, 0.03, 0.3)
    assert (errors <= 0.01).mean() >= 0.9


def test_a_constant_too_small_is_caught(corpus, fit):
    """Where Delta does not cover the measured distance to a retraining, the check says that the claim is wrong."""
    release = theorem_release(fit, None, TheoremOptions(1, c=1e-7, length=LENGTH), seeds())
    failed = {check.name for check in release.checks if not check.holds}
    assert "measured ||Abar - A^F||_F" in failed
    assert release.implied_c > 1e-7
    enough = theorem_release(fit, None, TheoremOptions(1, c=1.01 * release.implied_c, length=LENGTH), seeds())
    assert enough.distance == release.distance
    assert "measured ||Abar - A^F||_F" not in {check.name for check in enough.checks if not check.holds}
    assert enough.implied_c == pytest.approx(release.implied_c)


def test_lost_anchors_are_caught():
    """A deletion after which a retraining chooses another anchor shows in the checks."""
    rare = Corpus(small(30, 3, 0.03, overlap=0.05, word_concentration=0.1, concentration=1.0, seed=2), 4_000)
    fit = rare.fit()
    anchor = fit.choice[0]
    forget = rare.richest(anchor, int(0.8 * np.count_nonzero(rare.documents.words == anchor)))
    release = theorem_release(fit, rare.counts(forget), TheoremOptions(len(forget), length=LENGTH), seeds())
    retrained = learn(rare.counts(np.setdiff1d(np.arange(4_000), forget)), rare.options)
    assert retrained.anchors != fit.anchors
    assert not next(check for check in release.checks if "anchors" in check.name).holds


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": 1.0}, "epsilon"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"deletions": 0}, "capacity of 0"),
        ({"c": 0.0}, "c is"),
        ({"c": math.inf}, "c is"),
        ({"length": -1.0}, "length"),
        ({"q_norm": 1.5}, "q_norm"),
        ({"known": {"gamma": 0.0}}, "gamma"),
        ({"known": {"beta": 1.0}}, "beta"),
    ],
)
def test_what_the_proof_does_not_cover_is_refused(wrong, named):
    """Each option out of range is refused by name before anything is computed."""
    with pytest.raises(UsageError, match=named):
        TheoremOptions(**{"deletions": 5, **wrong})


def test_what_cannot_be_released_says_why(corpus, fit):
    """Too many documents, strangers, a flat covariance and a lost anchor end in errors, not in NaN."""
    options = TheoremOptions(50, length=LENGTH)
    with pytest.raises(UsageError, match="exceed the capacity of 50"):
        theorem_release(fit, corpus.counts(range(51)), options, seeds())
    few = learn(corpus.counts(range(40)), corpus.options)
    with pytest.raises(NegativeCounts):
        theorem_release(few, corpus.counts(range(40, 90)), options, seeds())
    for flat in (replace(CONSTANTS, gamma=0.0), replace(CONSTANTS, p_sep=0.0), replace(CONSTANTS, gamma=math.nan)):
        with pytest.raises(UsageError, match="above 0"):
            theorem_release(fit, None, replace(options, constants=flat), seeds())
    holders = corpus.richest(corpus.planted.words.index(fit.anchors[0]), 10**6)
    with pytest.raises(CannotLearn):
        theorem_release(fit, corpus.counts(holders), replace(options, deletions=10**6), seeds())
