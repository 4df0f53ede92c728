"""Calibrated capacity: what was tried is what happens, and the search finds the limit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.bench.synthetic import counted, planted
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.paper.calibration import CalibrationPlan, DeletionTrials, Probe, Trial, _Search, calibrate
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

WORDS = 150
OPTIONS = LearnerOptions(n_topics=4, max_df=1.0, min_df=3)
PLAN = CalibrationPlan(trials=5, most_updates=80)


class Corpus:
    """Documents of four topics, their counts and their model."""

    def __init__(self, documents=800, options=OPTIONS):
        self.batch = planted(documents, WORDS, 4, 60, seed=5)
        self.counts = counted(self.batch, WORDS, options.weighting)
        self.fit = learn(self.counts, options)

    def calibrate(self, seed=0, plan=PLAN, **more):
        """The capacity of this corpus."""
        return calibrate(self.counts, self.batch, OPTIONS, np.random.default_rng(seed), plan, **more)


@pytest.fixture(scope="module")
def corpus():
    """One corpus; trials leave it as it is."""
    return Corpus()


@pytest.fixture(scope="module")
def calibration(corpus):
    """What it bears."""
    return corpus.calibrate()


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_a_trial_is_what_a_retraining_shows(learner):
    """Change, distance and reason agree with a model learned from the documents that are left."""
    options = LearnerOptions(n_topics=4, max_df=1.0, min_df=3, learner=learner)
    corpus = Corpus(options=options)
    trials = DeletionTrials(corpus.counts, corpus.batch, corpus.fit)
    borne = 0
    for size in (1, 5, 20, 200):
        order = np.random.default_rng(size).permutation(800)
        trial = trials.forget(order[:size])
        twin = learn(counted(corpus.batch.take(np.sort(order[size:])), WORDS, options.weighting), options)
        if trial.reason:
            assert math.isnan(trial.moved)
            continue
        borne += 1
        assert twin.anchors == corpus.fit.anchors
        place = [corpus.fit.words.index(word) for word in twin.words]
        assert trial.moved >= np.abs(corpus.fit.A[place] - twin.A).max() - 1e-9
        if twin.words == corpus.fit.words:
            change = np.abs(corpus.fit.A - twin.A)
            assert trial.moved == pytest.approx(change.max(), abs=1e-9)
            assert trial.l1 == pytest.approx(change.sum(axis=0).mean(), abs=1e-9)
        assert 0 <= trial.overlap <= 1
    assert borne >= (2 if learner == "default" else 1)


def test_the_model_stays_as_it_is(corpus, calibration):
    """Trials work on copies: not a bit of the model or its counts changes."""

    def bits(fit):
        last = fit.mixtures
        held = (
            last.anchor_counts,
            last.anchor_mass,
            last.thin,
            last.product,
            last.relative,
            last.error,
            last.G,
            last.C,
        )
        parts = (fit.A, fit.mass, fit.squares, fit.q.values, fit.q.columns, fit.group, fit.choice, *held)
        return [part.tobytes() for part in parts] + [fit.documents]

    before = bits(corpus.fit)
    assert corpus.calibrate(fit=corpus.fit).updates == calibration.updates > 0
    assert bits(corpus.fit) == before


def test_the_limit_is_what_was_seen_to_be_borne(calibration):
    """It is positive here, was tried, both kinds passed at or above it, and no anchor can be emptied by it."""
    assert 0 < calibration.limit <= calibration.hard_limit
    assert calibration.complete
    for probes, limit in ((calibration.random, calibration.random_limit), (calibration.aimed, calibration.aimed_limit)):
        [at] = [probe for probe in probes if probe.size == limit]
        assert at.passed
        assert at.borne >= 0.9 * at.asked
        assert all(t.moved <= 0.01 for t in at.trials if not t.reason) or at.borne < at.asked
        assert 0 < at.mean("moved") <= at.mean("l1")
        assert at.mean("overlap") > 0.5
        assert all(probe.failed for probe in probes if probe.size > limit)
    assert calibration.limit == min(calibration.random_limit, calibration.aimed_limit, calibration.hard_limit)


def test_aimed_sets_begin_with_what_carries_the_anchor(corpus):
    """The first documents hold the anchor most, none without it comes before one with it, and all are there."""
    trials = DeletionTrials(corpus.counts, corpus.batch, corpus.fit)
    for topic, anchor in enumerate(corpus.fit.anchors):
        order = trials.aimed(topic, np.random.default_rng(0))
        word = corpus.counts.words.index(anchor)
        held = np.array([word in corpus.batch.take(np.array([k])).words for k in order])
        assert held.sum() == trials.anchor_frequency[topic]
        assert not held[held.sum() :].any()
        assert np.array_equal(np.sort(order), np.arange(800))


class Threshold:
    """Stands in for trials: the set of the n-th trial is borne up to a size of its own."""

    def __init__(self, limits):
        self.limits = limits

    def forget(self, chosen):
        """`chosen` begins with the number of its trial."""
        return Trial(0.0 if len(chosen) <= self.limits[chosen[0]] else 1.0, 0.0, 1.0)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.integers(0, 2000), st.sampled_from([0.5, 0.9, 1.0]))
@settings(max_examples=100)
def test_the_search_finds_the_largest_size_that_is_borne(limits, most, probability):
    """Within a step of the grid, at no more than its stated cost, never above what 90 % bear."""
    plan = CalibrationPlan(probability=probability, most_updates=10**6)
    search = _Search(Threshold(limits), plan, most)
    orders = [np.full(5000, k) for k in range(len(limits))]
    probes = search.probes(orders, plan.most_updates)
    found = max((probe.size for probe in probes if probe.passed), default=0)
    needed = math.ceil(probability * len(limits) - 1e-9)
    true = min(sorted(limits, reverse=True)[needed - 1], most)
    assert found <= true < max(1.5 * found, found + 1) + 1e-9
    assert search.sizes == sorted(set(search.sizes))
    assert all(0 < size <= most for size in search.sizes)
    assert most == 0 or search.sizes[-1] == most
    assert search.updates <= len(limits) * math.ceil(math.log2(len(search.sizes) + 1))


def test_bad_input_is_named(corpus):
    """Documents that were not counted, a fit of something else and plans out of range are refused."""
    generator = np.random.default_rng(0)
    with pytest.raises(UsageError, match="more of them"):
        calibrate(corpus.counts, planted(800, WORDS, 4, 60, seed=4), OPTIONS, generator)
    with pytest.raises(UsageError, match="too many, or unknown"):
        calibrate(corpus.counts, planted(801, WORDS, 4, 60, seed=3), OPTIONS, generator)
    with pytest.raises(UsageError, match="too many, or unknown"):
        calibrate(corpus.counts, planted(10, WORDS + 50, 4, 60, seed=3), OPTIONS, generator)
    with pytest.raises(UsageError, match="other counts or options"):
        corpus.calibrate(fit=Corpus(700).fit)
    with pytest.raises(CannotLearn):
        calibrate(
            counted(corpus.batch.take(np.arange(2)), WORDS, OPTIONS.weighting),
            corpus.batch.take(np.arange(2)), OPTIONS, generator,
        )  # fmt: skip
    for wrong in ({"trials": 0}, {"aimed": -1}, {"probability": 0}, {"utility": 0}, {"largest_share": 1.0}):
        with pytest.raises(UsageError, match="out of its range"):
            CalibrationPlan(**wrong)
    with pytest.raises(UsageError, match="most_updates"):
        CalibrationPlan(most_updates=0)


def test_cost_is_bounded(corpus):
    """No more updates than allowed; what was not finished neither passed nor failed, and the search says so."""
    few = corpus.calibrate(plan=CalibrationPlan(trials=4, most_updates=6))
    assert few.updates == 6
    assert not few.complete
    probe = Probe(3, 10, (Trial(0.0, 0.0, 1.0),) * 5, 0.9, 0.01)
    assert not probe.passed
    assert not probe.failed
    assert math.isnan(Probe(3, 1, (Trial(math.nan, math.nan, math.nan, "gone"),), 0.9, 0.01).mean("moved"))
