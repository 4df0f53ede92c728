"""How far one hostile document moves the topics, as a case of its own."""

from streamtopic.bench.cases import hostile


def test_every_kind_is_measured(documents):
    """Each kind of document has all figures, and shares are shares."""
    figures = hostile.CASES["default"](documents=documents, topics=3, seed=1)
    found = {figure.name: figure for figure in figures}
    assert found["documents"].value == 240
    assert len(found) == len(figures) == 2 + 4 * 5
    assert all(0 <= figure.value <= 1 for figure in figures if figure.unit == "share")
