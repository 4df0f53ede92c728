"""The benchmark of the deletion capacity: what it finds, on a corpus that bears something."""

import json
import math

import numpy as np
import pytest

from streamtopic.bench.cases import capacity


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A file of texts that lean to one of three topics each."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("capacity") / "documents.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for k in range(300):
            own = [f"topic{k % 3}word{j}" for j in rng.zipf(1.3, 40) % 100]
            file.write(json.dumps({"id": k, "text": " ".join([*own, *(f"common{j}" for j in range(k % 5))])}) + "\n")
    return str(path)


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_trials_and_formula_stand_side_by_side(learner, documents):
    """Limits, the rule's 1 %, the formula and the cost of a trial are all there, and trials keep their bound."""
    found = {figure.name: figure.value for figure in capacity.CASES[learner](documents=documents, topics=3, seed=1)}
    assert (found["documents"], found["1 % of the documents"]) == (300, 3)
    assert 0 < found["updates"] <= capacity.UPDATES
    assert 0 <= found["forget sets that aim at a topic"] <= found["hard limit"]
    assert 0 <= found["random forget sets"] <= found["hard limit"]
    assert 0 < found["formula, c = 1"] < 1
    assert all(math.isfinite(value) for value in found.values())
