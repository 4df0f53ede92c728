"""The benchmark of chains: what is counted, and that a finding ends with status 1."""

import pytest

from streamtopic.bench import chains
from streamtopic.bench.cases import chains as case
from streamtopic.errors import CheckFailed


def test_a_finding_ends_with_its_seed(monkeypatch, capsys):
    """The benchmark fails, says how to repeat the first finding, and prints the table."""
    monkeypatch.setattr(chains, "update", lambda *_: 1 / 0)
    seed = next(seed for seed in range(20) if chains.one_chain(seed).finding)
    with pytest.raises(CheckFailed, match=f"minutes=0 seed={seed}"):
        case.CASES["chains"](minutes=0, seed=seed)
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "all kinds" in shown
