"""The benchmark beside the paper's table of run times."""

import math

import pytest

from streamtopic.bench.cases import paper


@pytest.mark.parametrize(("varied", "values"), [("m", (150, 300)), ("m_U", (2, 20)), ("n", (60, 90)), ("r", (2, 4))])
def test_every_phase_of_the_table_is_measured(varied, values, monkeypatch):
    """Each case gives an exponent for every phase that the table bounds, with the bound beside it, and finite times."""
    monkeypatch.setitem(paper.SIZES, varied, values)
    monkeypatch.setattr(paper, "BASE", paper.Size(m=300, m_U=5, n=100, r=3, length=20))
    monkeypatch.setattr(paper, "REPEATS", 1)
    found = {figure.name: figure for figure in paper.CASES[f"in-{varied.replace('_', '-')}"]()}
    for phase, bounds in paper.BOUNDS.items():
        assert found[f"{phase}, exponent in {varied}"].target == f"paper: at most {bounds[varied]}"
        assert found[f"{phase}, {varied} = {values[-1]}"].value > 0
    assert all(math.isfinite(figure.value) for figure in found.values())
    assert f"retrain over unlearn, {varied} = {values[0]}" in found
