"""The benchmark of updates: every size is measured, refusals are counted, and state is built once."""

import math

import numpy as np
import pytest

from streamtopic.bench import forgetting
from streamtopic.bench.cases import updates
from streamtopic.bench.forgetting import Cost, Point, tried
from streamtopic.bench.material import Material
from streamtopic.counts import Weighting
from streamtopic.topics.update import NeedsRetrain

SMALL = {"draws": 2, "seed": 3, "largest": 1_200}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """State that the cases below share."""
    return tmp_path_factory.mktemp("updates")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Use a world of 200 words."""
    values = {"SIZES": (400, 1_200), "IN_REDIS": 1_200, "OUT_OF": 1_200, "FORGET_SIZES": (1, 4, 8), "FORGOTTEN": 2}
    for name, value in {**values, "WORDS": 200, "TOPICS": 4, "TOKENS": 40}.items():
        monkeypatch.setattr(updates, name, value)
    monkeypatch.setattr(forgetting, "RETRAINS", 1)


def _same(one, other):
    names = ("indptr", "columns", "values", "frequency", "tokens", "heavy")
    return one.documents == other.documents and all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names)


def _values(case, folder):
    return {figure.name: figure.value for figure in updates.CASES[case](**SMALL, folder=str(folder))}


@pytest.mark.parametrize("case", ["documents-default", "documents-paper", "redis"])
def test_every_number_of_documents_is_measured(case, folder):
    """Cost, pairs, refusals and the slope over m; an update that was verified keeps the tolerance."""
    found = _values(case, folder)
    for m in ("400", "1,200"):
        assert found[f"m = {m}: entries of Q"] > 1_000
        assert found[f"m = {m}: pairs forgotten"] > 100
        assert 0 <= found[f"m = {m}: retrains needed"] <= 2
        assert found[f"m = {m}: a deletion served, retrains included"] > 0
        assert found.get(f"m = {m}: largest certificate", 0.0) <= 1e-7
    assert "update, exponent in m" in found
    if case == "redis":
        assert found["m = 400: of it reading the change"] > 0
        same = _values("documents-default", folder)
        for name in ("m = 1,200: pairs forgotten", "m = 1,200: entries of Q", "m = 400: retrains needed"):
            assert found[name] == same[name]


def test_every_size_of_forget_set_is_measured(folder):
    """More documents are more pairs, and the cost is fitted against them."""
    found = _values("forgotten-default", folder)
    pairs = [found[f"{gone} forgotten: pairs forgotten"] for gone in (1, 4, 8)]
    assert pairs == sorted(pairs)
    assert "update, exponent in pairs" in found


def test_state_is_built_once(folder, monkeypatch):
    """The second case reads what the first one drew and counted, bit for bit."""
    first = Material(folder, (400, 1_200), 200, 4, 40, 3)
    made = first.counts(1_200, Weighting(1)).cooccurrence
    monkeypatch.setattr("streamtopic.bench.material.planted", lambda *_: pytest.fail("drawn again"))
    monkeypatch.setattr("streamtopic.bench.material.count", lambda *_: pytest.fail("counted again"))
    second = Material(folder, (400, 1_200), 200, 4, 40, 3)
    read = second.counts(1_200, Weighting(1)).cooccurrence
    assert _same(read, made)
    assert read.columns.dtype == np.int32
    assert np.array_equal(second.batch.words, first.batch.words)


def test_refusals_are_counted_with_their_reasons():
    """A refusal costs what it took and a retrain; words are not part of the reason."""
    point = Point(Cost(2.0, 1.0), 7, pairs=[5, 5])
    for words in ("a", "b"):
        tried(point, lambda words=words: NeedsRetrain(f"anchor words changed: 1 gave way to {words}"))
    assert point.reasons == {"anchor words changed": 2}
    found = {figure.name: figure.value for figure in point.figures("x") if not math.isnan(figure.value)}
    assert found["x: retrains needed"] == 2
    assert found["x: a deletion served, retrains included"] >= 2.0
    assert "x: update" not in found
