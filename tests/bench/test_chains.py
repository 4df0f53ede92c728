"""The benchmark of chains: what is counted, and that a finding ends with status 1."""

import pytest

from streamtopic.bench import chains, runner
from streamtopic.bench.cases import chains as case
from streamtopic.errors import CheckFailed


def test_a_chain_is_counted_under_its_kind():
    """Figures of its kind and of all kinds, and a table with a row for each."""
    figures = case.CASES["chains"](minutes=0, seed=9)
    found = {figure.name: figure.value for figure in figures}
    assert found["tiny: chains"] == found["all kinds: chains"] == 1
    assert found["all kinds: findings"] == 0
    result = runner.Result("chains", "this machine", [runner.CaseResult("chains", figures, 1)], [], {**case.OPTIONS})
    assert [line.split("  ")[0] for line in case.text(result).splitlines()][5:7] == ["tiny", "all kinds"]


def test_a_finding_ends_with_its_seed(monkeypatch, capsys):
    """The benchmark fails, says how to repeat the first finding, and prints the table."""
    monkeypatch.setattr(chains, "update", lambda *_: 1 / 0)
    seed = next(seed for seed in range(20) if chains.one_chain(seed).finding)
    with pytest.raises(CheckFailed, match=f"--minutes 0 --seed {seed}"):
        case.CASES["chains"](minutes=0, seed=seed)
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "all kinds" in shown
