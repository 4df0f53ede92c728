"""Theorem mode: sigma to the letter, the same for every forget set, and honest about what is left of the model."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from streamtopic.bench.synthetic import SyntheticTopics
from streamtopic.counts import Counts, Weighting, count
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.paper.algorithm1 import BaseStatistics, remaining
from streamtopic.paper.capacity_formulas import ModelConstants, fit_constants
from streamtopic.paper.theorem import TheoremOptions, draw, examine, plan_theorem
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

CONSTANTS = ModelConstants(a=2.0, p_sep=0.1, gamma=0.5, eps0=0.01)
LENGTH = 10


def released(run, version=1):
    """A and R of a run with the noise of a version."""
    noise = NoiseKey(bytes(32)).of("model", version)
    return draw(run, lambda purpose: noise.seed("digest", purpose))


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

    def run(self, fit, forgotten, options):
        """Algorithm 1 up to its noise. forgotten: documents, none for the reference run."""
        base = BaseStatistics.of(fit, self.counts(range(self.documents.documents)))
        return examine(remaining(fit, self.counts(forgotten) if len(forgotten) else None), base, options)

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
    options = TheoremOptions(deletions=10, c=0.02)
    plans = [corpus.run(fit, range(k), options).plan.topics for k in (0, 1, 10)]
    plans.append(corpus.run(corpus.fit(start=10), (), options).plan.topics)
    assert plans == [plans[0]] * 4


def test_a_release_is_a_model(corpus, fit):
    """Columns of A are on the simplex, R has no negative eigenvalue, and a seed draws the same noise again."""
    run = corpus.run(fit, range(7), TheoremOptions(deletions=10, c=0.02))
    (A, R), again, other = (released(run, version) for version in (1, 1, 2))
    assert run.found.words == corpus.planted.words
    assert A.min() >= 0
    assert A.sum(axis=0) == pytest.approx(np.ones(2))
    assert np.array_equal(R, R.T)
    assert np.linalg.eigvalsh(R)[0] > -1e-12
    assert (A.tobytes(), R.tobytes()) == tuple(part.tobytes() for part in again)
    assert not np.array_equal(A, other[0])
    assert not np.array_equal(R, other[1])


def test_topics_and_covariance_have_noise_of_their_own(corpus, fit):
    """With another seed for R alone A stays as it is and R does not: the same noise on both could be cancelled out."""
    run = corpus.run(fit, range(7), TheoremOptions(deletions=10, c=0.02))
    (A, R), key = released(run), NoiseKey(bytes(32))
    same, moved = draw(run, lambda purpose: key.of("model", 2 if purpose == "R" else 1).seed("digest", purpose))
    assert np.array_equal(A, same)
    assert not np.array_equal(R, moved)


def test_noise_that_a_retraining_would_not_draw_shows(corpus, fit):
    """Where Delta of S and of S less the forget set round apart, the two could be told apart, and a check says so."""
    m, T = 20_000, 10
    plan = plan_theorem(m, 8, 2, fit_constants(fit), 1.0, TheoremOptions(T))
    # Delta is put just below a power of sqrt 2, so that that of fewer documents lies above it.
    c = 2.0 ** (math.floor(2 * math.log2(plan.formula)) / 2) / plan.formula * (1 - 1e-7)
    edge = TheoremOptions(T, c=c, known=asdict(fit_constants(fit)))
    for forgotten, alike in ((0, True), (T, False)):
        run = corpus.run(fit, range(forgotten), edge)
        (check,) = [check for check in run.checks if check.name.startswith("Delta")]
        assert check.holds is alike
        assert run.compared.ratio == pytest.approx(1 if alike else math.sqrt(2))


def test_a_retraining_is_estimated_as_it_would_estimate_itself(corpus, fit):
    """The constants that decide whether noise is alike are those of the model learned without the forget set."""
    forget = corpus.richest(corpus.planted.anchors[0], 300)
    twin = learn(corpus.counts(np.setdiff1d(np.arange(20_000), forget)), corpus.options)
    at = plan_theorem(twin.documents, 8, 2, fit_constants(twin), float(twin.p.max()), TheoremOptions(300))
    power = 2.0 ** (math.ceil(2 * math.log2(at.formula)) / 2) / at.formula
    for c in (1 + 1e-7, 1 - 1e-7):
        # The retraining's Delta lies next to a power of sqrt 2, on one side or the other.
        edge = TheoremOptions(300, c=power * c)
        here = plan_theorem(20_000, 8, 2, fit_constants(fit), float(fit.p.max()), edge)
        there = plan_theorem(twin.documents, 8, 2, fit_constants(twin), float(twin.p.max()), edge)
        found = corpus.run(fit, forget, edge).compared.ratio
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
        checks = corpus.run(fit, (), TheoremOptions(3, known={name: factor * estimate})).checks
        assert [check.holds for check in checks if check.name.endswith("as it is set")] == [holds]


def test_deletions_up_to_t_keep_the_utility():
    """Nine in ten releases with T documents forgotten, at random or against an anchor, are within 0.01 of A*."""
    errors, m, c = [], 40_000, 0.03
    for seed in range(8):
        corpus = Corpus(small(seed=seed), m, seed)
        fit = corpus.fit()
        one = plan_theorem(m, 8, 2, fit_constants(fit), 1.0, TheoremOptions(1, 0.9, 1e-6, c)).topics.sigma
        # The greatest T at which the noise's largest entry keeps half of the utility loss for the learner.
        T = int(0.005 / (one * math.sqrt(2 * math.log(16))))
        assert T >= 1
        options = TheoremOptions(T, 0.9, 1e-6, c)
        rng = np.random.default_rng(seed)
        forget = [np.sort(rng.choice(m, T, replace=False))]
        forget += [corpus.richest(anchor, T) for anchor in corpus.planted.anchors]
        for version, chosen in enumerate(forget):
            run = corpus.run(fit, chosen, options)
            assert all(check.holds for check in run.checks[-3:])
            assert "vacuous" not in run.vacuity
            A, _ = released(run, version + 10 * seed)
            errors.append(corpus.planted.recovery(run.found.words, A).A)
    assert (np.array(errors) <= 0.01).mean() >= 0.9


def test_a_constant_too_small_is_caught(corpus, fit):
    """Where Delta does not cover the measured distance to a retraining, the check says that the claim is wrong."""
    run = corpus.run(fit, (), TheoremOptions(1, c=1e-7))
    assert "measured ||Abar - A^F||_F" in {check.name for check in run.checks if not check.holds}
    assert run.implied_c > 1e-7
    enough = corpus.run(fit, (), TheoremOptions(1, c=1.01 * run.implied_c))
    assert enough.compared.topics_apart == run.compared.topics_apart
    assert "measured ||Abar - A^F||_F" not in {check.name for check in enough.checks if not check.holds}
    assert enough.implied_c == pytest.approx(run.implied_c)


@pytest.fixture(scope="module")
def rare():
    """A corpus with rare words, and its model."""
    found = Corpus(small(30, 3, 0.03, overlap=0.05, word_concentration=0.1, concentration=1.0, seed=2), 4_000)
    return found, found.fit()


def test_a_word_that_is_gone_leaves_the_others_in_place(rare):
    """Once no document holds a word it has no row, and the anchors after it are still the same words."""
    rare, fit = rare
    held = np.bincount(rare.documents.words, minlength=30)
    word = int(np.argmin(np.where(np.arange(30) < fit.choice.max(), held, 4_000)))
    run = rare.run(fit, rare.richest(word, 4_000), TheoremOptions(4_000))
    assert 0 < held[word] < 400
    assert rare.planted.words[word] not in run.left.words
    assert tuple(run.left.words[k] for k in run.left.anchors) == fit.anchors
    (changed,) = [check for check in run.checks if check.name.startswith("words that entered")]
    assert (changed.value, changed.holds) == (1, False)


def test_lost_anchors_are_caught(rare):
    """A deletion after which a retraining chooses another anchor shows in the checks."""
    rare, fit = rare
    anchor = fit.choice[0]
    forget = rare.richest(anchor, int(0.8 * np.count_nonzero(rare.documents.words == anchor)))
    run = rare.run(fit, forget, TheoremOptions(len(forget)))
    retrained = learn(rare.counts(np.setdiff1d(np.arange(4_000), forget)), rare.options)
    assert retrained.anchors != fit.anchors
    assert not next(check for check in run.checks if "anchors" in check.name).holds


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
    options = TheoremOptions(50)
    with pytest.raises(UsageError, match="exceed the capacity of 50"):
        corpus.run(fit, range(51), options)
    few = learn(corpus.counts(range(40)), corpus.options)
    with pytest.raises(NegativeCounts):
        corpus.run(few, range(40, 90), options)
    for flat in (replace(CONSTANTS, gamma=0.0), replace(CONSTANTS, p_sep=0.0), replace(CONSTANTS, gamma=math.nan)):
        with pytest.raises(UsageError, match="above 0"):
            plan_theorem(20_000, 8, 2, flat, 1.0, options)
    holders = corpus.richest(corpus.planted.words.index(fit.anchors[0]), 10**6)
    with pytest.raises(CannotLearn):
        corpus.run(fit, holders, replace(options, deletions=10**6))
