"""The benchmark of updates: every size is measured, refusals are counted, and state is built once."""

import pytest

from streamtopic.bench import forgetting
from streamtopic.bench.cases import updates

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
