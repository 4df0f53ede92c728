"""Benchmarks that users start run on small input, and every figure is a number."""

import math

import numpy as np
import pytest

from streamtopic.bench import chains, twins
from streamtopic.bench.cases import chains as chains_case
from streamtopic.bench.cases import hostile, ingest_million, paper, updates
from streamtopic.bench.cases import twin as twin_case
from streamtopic.errors import CannotLearn, CheckFailed

SMALL = {
    updates: {"SIZES": (400, 1_200), "FORGOTTEN": 2, "WORDS": 200, "TOPICS": 4, "TOKENS": 40},
    ingest_million: {"STEPS": 2, "TOPICS": 2},
    paper: {"DOCUMENTS": (300, 900), "DELETION_DOCUMENTS": (4_000, 8_000), "DRAWS": 1, "DELETION_DRAWS": 2},
}  # fmt: skip
GIVEN = {"documents": None, "topics": 3, "seed": 1}
STARTED = [
    (hostile.CASES["default"], GIVEN),
    (ingest_million.million, {"largest": 1_000}),
    (paper.CASES["recovery"], {}),
    (paper.CASES["deletions"], {}),
    (updates.CASES["default"], {"draws": 2, "seed": 3, "largest": 1_200}),
]


@pytest.mark.parametrize(("case", "given"), STARTED, ids=lambda one: getattr(one, "__qualname__", ""))
def test_every_figure_is_a_number(case, given, documents, monkeypatch):
    """A case runs to its end, and measures something under each of its names."""
    for module, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    figures = case(**{name: documents if value is None else value for name, value in given.items()})
    assert len({figure.name for figure in figures}) == len(figures) > 1
    assert all(math.isfinite(figure.value) for figure in figures)


def test_a_finding_ends_with_its_seed(monkeypatch, capsys):
    """The benchmark fails, says how to repeat the first finding, and prints it."""
    monkeypatch.setattr(chains, "update", lambda *_: 1 / 0)
    seed = next(seed for seed in range(20) if chains.one_chain(seed).finding)
    with pytest.raises(CheckFailed, match=f"minutes=0 seed={seed}"):
        chains_case.CASES["chains"](minutes=0, seed=seed)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_model_that_one_way_alone_refuses_is_a_finding(monkeypatch):
    """An update that goes on where a fresh fit cannot be learned has kept what it should have lost."""
    learn, calls = chains.learn, []

    def refusing(source, options):
        calls.append(source)
        if len(calls) == 2:
            raise CannotLearn("few", "there are too few documents")
        return learn(source, options)

    monkeypatch.setattr(chains, "learn", refusing)
    for seed in range(12):
        calls.clear()
        finding = chains.one_chain(seed).finding
        if finding is not None:
            break
    assert (finding.what, "fresh fit alone" in finding.detail) == ("refusal", True)


@pytest.mark.parametrize("broken", ["counts", "update", "difference"])
def test_a_model_that_remembers_fails(broken, documents, monkeypatch):
    """Documents in the counts, an update that changes nothing, and a difference alone end the benchmark."""
    if broken == "update":
        monkeypatch.setattr(twins, "update", lambda fit, *_: fit)
    elif broken == "difference":
        monkeypatch.setattr(twins, "difference", lambda *_: np.array([1e-11]))
    else:
        plain = twins.count

        def forgetful(batch, n, weighting):
            kept = batch.documents - (batch.documents < 120)
            return plain(batch.take(np.arange(kept)), n, weighting)

        monkeypatch.setattr(twins, "count", forgetful)
    with pytest.raises(CheckFailed, match="differs from its twin"):
        twin_case.CASES["paper"](documents=documents, topics=3, draws=2, seed=1)
