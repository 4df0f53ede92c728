"""The benchmark of the deletion capacity: what it finds, on a corpus that bears something."""

import math

import pytest

from streamtopic.bench.cases import capacity


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_trials_and_formula_stand_side_by_side(learner, documents):
    """Limits, the rule's 1 %, the formula and the cost of a trial are all there, and trials keep their bound."""
    found = {figure.name: figure.value for figure in capacity.CASES[learner](documents=documents, topics=3, seed=1)}
    assert (found["documents"], found["1 % of the documents"]) == (240, 2)
    assert 0 < found["updates"] <= capacity.UPDATES
    assert 0 <= found["forget sets that aim at a topic"] <= found["hard limit"]
    assert 0 <= found["random forget sets"] <= found["hard limit"]
    assert 0 < found["formula, c = 1"] < 1
    assert all(math.isfinite(value) for value in found.values())
