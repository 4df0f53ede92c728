"""The benchmark of stages: names that are there, time that adds up, and bounds that are counted from what is given."""

import numpy as np
import pytest

from streamtopic.bench import stages
from streamtopic.bench.profile import clocked_stages, found
from streamtopic.bench.synthetic import counted, planted
from streamtopic.topics import learner
from streamtopic.topics.learner_options import LearnerOptions


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
