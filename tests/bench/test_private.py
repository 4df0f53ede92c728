"""What the noise of private mode costs and what an attacker gets, on a small corpus of planted topics."""

import json

import numpy as np
import pytest

from streamtopic.bench.cases import private


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A file of 3,000 documents that lean to one of four topics each."""
    path = tmp_path_factory.mktemp("private") / "texts.jsonl"
    rng = np.random.default_rng(7)
    with path.open("w", encoding="utf-8") as file:
        for number in range(3_000):
            own = rng.integers(25, size=20) + 25 * rng.integers(4)
            mixed = np.where(rng.random(20) < 0.8, own, rng.integers(100, size=20))
            text = " ".join(f"word{n}" for n in mixed)
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    return str(path)


def _figures(case, corpus, **given):
    options = {"topics": 4, "words": 100, "epsilon": 3, "versions": 4, "draws": 40, **given}
    return {figure.name: figure.value for figure in private.CASES[case](corpus, **options)}


def test_a_deletion_is_not_found_by_subtraction(corpus, monkeypatch):
    """At epsilon 3 the deleted document is not ranked first more often than the bound says; without noise it is."""
    monkeypatch.setattr(private, "MAX_DF", 1.0)
    assert private._bound(3) == pytest.approx(0.0195, abs=0.001)
    assert _figures("attack", corpus)["ranked first"] <= 0.2
    assert _figures("attack", corpus, epsilon=10_000, draws=5)["ranked first"] == 1
    assert _figures("subtraction", corpus, draws=10)["mean rank"] > 30


def test_canaries_never_show_more_than_the_claim(corpus, monkeypatch):
    """Inserted documents stay below epsilon, and at an epsilon that hides little they are found."""
    monkeypatch.setattr(private, "MAX_DF", 1.0)
    assert _figures("canaries", corpus)["epsilon at least"] <= 3
    seen = _figures("canaries", corpus, epsilon=100)
    assert seen["found"] > 0.9
    assert 1 < seen["epsilon at least"] <= 100
