"""The benchmarks of chains and of relearning: what is counted, and that a finding ends with status 1."""

import json

import numpy as np
import pytest

from streamtopic.errors import CheckFailed
from streamtopic.lab.bench import chains, runner
from streamtopic.lab.bench.cases import chains as case
from streamtopic.lab.bench.cases import relearns
from streamtopic.topics.update import NeedsRetrain, Updated


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


@pytest.fixture
def documents(tmp_path):
    """A file of texts that lean to one of three topics each."""
    rng = np.random.default_rng(0)
    path = tmp_path / "documents.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for k in range(240):
            own = [f"topic{k % 3}word{j}" for j in rng.zipf(1.3, 40) % 200]
            file.write(json.dumps({"id": k, "text": " ".join(own)}) + "\n")
    return str(path)


def test_relearning_is_counted_with_reasons(documents, monkeypatch):
    """Every refused update is one fit from scratch, by its reason; a model that remembers fails the benchmark."""
    monkeypatch.setattr(relearns, "CHAINS", {"single deletions": (4, 1), "batches of ten": (2, 10)})
    monkeypatch.setattr("streamtopic.lab.bench.twins.update", lambda *_: NeedsRetrain("no reason: at all"))
    figures = relearns.CASES["default"](documents=documents, topics=3, seed=1)
    found = {figure.name: figure.value for figure in figures}
    assert found["single deletions: learned from scratch"] == 4
    assert found["batches of ten: learned from scratch, no reason"] == 2
    result = runner.Result("relearns", "", [runner.CaseResult("default", figures, 1)], [], {**relearns.OPTIONS})
    assert "no reason: 2 of 2" in relearns.text(result)
    monkeypatch.setattr("streamtopic.lab.bench.twins.update", lambda fit, *_: Updated(fit))
    with pytest.raises(CheckFailed, match="differs from its twin"):
        relearns.CASES["default"](documents=documents, topics=3, seed=1)
