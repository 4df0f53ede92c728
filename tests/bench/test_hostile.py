"""How far one hostile document moves the topics, as a case of its own."""

import json

import numpy as np
import pytest

from streamtopic.bench import CaseResult, Result
from streamtopic.bench.cases import hostile

KINDS = {
    "one frequent word",
    "one rare word, a text of 1 MB",
    "two words of two topics",
    "all anchors",
    "random words",
    "spam, 20,000 tokens",
    "the longest document again",
    "any document again",
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return a file of documents on three planted topics."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("hostile") / "documents.jsonl"
    with path.open("w") as file:
        for k in range(400):
            words = [f"word{k % 3}{w:03d}" for w in rng.integers(0, 60, 15)]
            words += [f"common{w}" for w in rng.integers(0, 200, 10)]
            file.write(json.dumps({"id": str(k), "text": " ".join(words)}) + "\n")
    return str(path)


@pytest.mark.parametrize("case", hostile.CASES)
def test_every_kind_is_measured_with_one_copy_and_with_ten(documents, case):
    """Each learner has all figures of each kind of document, shares are shares, and the table has a row for each."""
    figures = hostile.CASES[case](documents=documents, topics=3, seed=1)
    found = {figure.name: figure.value for figure in figures}
    assert found["documents"] == 400
    for kind in KINDS:
        for copies in (1, 10):
            values = {name: found[f"{kind}, {copies}: {name}"] for name in hostile.UNITS}
            assert 0 <= values["anchors"] <= 1
            assert 0 <= values["shown"] <= 1
            assert 0 <= values["entry"] <= 1
            assert 0 <= values["distance"] <= 2
    assert len(found) == 2 + 2 * len(KINDS) * len(hostile.UNITS)
    options = {"documents": documents, "topics": 3}
    table = hostile.text(Result("hostile", "a machine", [CaseResult(case, figures, 0)], [], options))
    assert sum(line.startswith(tuple(KINDS)) for line in table.splitlines()) == 2 * len(KINDS)
