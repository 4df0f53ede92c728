"""The benchmark of stages: names that are there, time that adds up, and bounds that are counted from what is given."""

import time

import numpy as np
import pytest

from streamtopic.bench import stages
from streamtopic.bench.cases import stages as case
from streamtopic.bench.figures import Figure
from streamtopic.bench.profile import Stage, clocked_stages, found
from streamtopic.bench.rates import Rates, Work, measured_rates
from streamtopic.bench.runner import CaseResult, Result
from streamtopic.bench.synthetic import counted, planted
from streamtopic.counts import SymmetricCounts
from streamtopic.topics import learner
from streamtopic.topics.learner_options import LearnerOptions

RATES = Rates(memory=1e9, dense=1e10, thin=1e9)


@pytest.mark.parametrize(
    "stage", [*stages.RETRAIN, *stages.UPDATE, *stages.CORRELATIONS], ids=lambda one: one.attribute
)
def test_every_stage_is_a_function_of_the_learner(stage):
    """Whoever renames one is told here that a stage would go missing from the profile."""
    holder, name = found(stage)
    assert callable(getattr(holder, name))


def _learned(options):
    batch = planted(1_500, 200, 4, 40, 1)
    return counted(batch, 200, options.weighting)


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_stages_add_up_and_leave_no_trace(kind):
    """Each stage of a cold start is entered, seconds sum to the total, and the functions are themselves afterwards."""
    options = LearnerOptions(n_topics=4, learner=kind, max_df=0.5)
    counts = _learned(options)
    before = [found(stage)[0].__dict__[found(stage)[1]] for stage in stages.RETRAIN]
    plain = learner.learn(counts, options)
    with clocked_stages(stages.RETRAIN) as profile:
        clocked = learner.learn(counts, options)
        assert clocked.certificate.bound < 1e-7
    assert [found(stage)[0].__dict__[found(stage)[1]] for stage in stages.RETRAIN] == before
    assert np.array_equal(clocked.A, plain.A)
    assert sum(profile.seconds.values()) == pytest.approx(profile.total)
    both = {"restrict and mirror", "search", "product 1", "solve 1", "certificate", "rest"}
    more = {"scaled matrix", "directions", "super-anchors"}
    assert both <= {*profile.seconds}
    assert more <= {*profile.seconds} if kind == "default" else not more & {*profile.seconds}


def test_inner_stages_take_their_time_out_of_outer_ones(monkeypatch):
    """A stage within a stage is its own, within a whole one it is not; work is asked for outside all of them."""

    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def work(args, _):
        burn(0.05)
        return Work(memory=float(args[0]))

    monkeypatch.setattr(learner, "inner", burn, raising=False)
    monkeypatch.setattr(learner, "outer", lambda s: learner.inner(s), raising=False)  # noqa: PLW0108  looked up late
    monkeypatch.setattr(learner, "whole", lambda s: learner.inner(s), raising=False)  # noqa: PLW0108  as above
    table = [
        Stage("inner", "topics.learner", "inner", work, numbered=True),
        Stage("outer", "topics.learner", "outer"),
        Stage("whole", "topics.learner", "whole", whole=True),
    ]
    with clocked_stages(table) as profile:
        learner.outer(0.02)
        learner.whole(0.03)
        learner.inner(0.04)
    assert {*profile.seconds} == {"outer", "inner 1", "whole", "inner 2", "rest"}
    for name, least in (("inner 1", 0.02), ("whole", 0.03), ("inner 2", 0.04)):
        assert profile.seconds[name] >= least
    assert profile.total < 0.02 + 0.03 + 0.04 + 2 * 0.05
    assert profile.work == {"inner 1": Work(memory=0.02), "inner 2": Work(memory=0.04)}


def test_a_bound_is_the_slower_of_moving_and_computing():
    """Bytes over bandwidth or flops over their rate, and which of them it is."""
    assert RATES.bound(Work(memory=1e9)) == (1.0, "memory")
    assert RATES.bound(Work(memory=1e9, dense=2e10)) == (2.0, "dense flops")
    assert RATES.bound(Work(memory=1e9, dense=1e10, thin=2e9)) == (3.0, "thin flops")
    assert Work(1, 2, 3) + Work(1, 1, 1) == Work(2, 3, 4)


def test_rates_are_of_this_machine():
    """All three are measured and none is what no machine does."""
    rates = measured_rates(8)
    assert all(1e7 < rate < 1e14 for rate in (rates.memory, rates.dense, rates.thin))


def test_work_is_counted_from_the_arrays():
    """A product reads every entry once, of as many bytes as it has, and does two flops for each thin entry."""
    options = LearnerOptions(n_topics=4, max_df=0.5)
    q = SymmetricCounts.of(_learned(options).cooccurrence)
    thin = np.ones((q.n, 4))
    found_work = stages._product((q, thin), np.ones((q.n, 4)))
    assert found_work.thin == 8 * q.entries
    assert found_work.memory == pytest.approx(q.nbytes + 2 * thin.nbytes)
    some = stages._product((q, thin, np.array([1, 5])), np.ones((2, 4)))
    assert some.thin == 8 * (q.indptr[2] - q.indptr[1] + q.indptr[6] - q.indptr[5])


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_a_case_profiles_retrains_updates_and_the_pass_of_r(kind, monkeypatch):
    """Shares of each part sum to about all of it; the table names the stages."""
    monkeypatch.setattr(case, "SIZES", {"5000": (1_500, 200, 4, 40)})
    monkeypatch.setattr(case, "FORGOTTEN", 1)
    monkeypatch.setattr(case, "REPEATS", 2)
    figures = case.CASES[f"{kind}-5000"]()
    values = {figure.name: figure.value for figure in figures}
    for part in case.PARTS:
        shares = [value for name, value in values.items() if name.startswith(f"{part}, ") and name.endswith(", share")]
        # Medians of stages do not sum to the median of the whole.
        assert 50 < sum(shares) < 200
    assert values["update, product shift, bound"] > 0
    shown = case.text(Result("stages", "this machine", [CaseResult(f"{kind}-5000", figures, 10**6)], [], {}))
    assert "retrain, product 1" in shown
    assert "thin flops" in shown


def test_no_verified_update_is_no_profile():
    """Where every draw asks for a retrain the part is left out."""
    assert case._figures("update", [], RATES) == []
    assert case.text(Result("stages", "m", [CaseResult("paper-5000", [Figure("words", 1, "words")], 1)], [], {}))
