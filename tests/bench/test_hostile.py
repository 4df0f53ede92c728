"""How far one hostile document moves the topics, as a case of its own."""

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


@pytest.mark.parametrize("case", hostile.CASES)
def test_every_kind_is_measured_with_one_copy_and_with_ten(documents, case):
    """Each learner has all figures of each kind of document, shares are shares, and the table has a row for each."""
    figures = hostile.CASES[case](documents=documents, topics=3, seed=1)
    found = {figure.name: figure.value for figure in figures}
    assert found["documents"] == 240
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
