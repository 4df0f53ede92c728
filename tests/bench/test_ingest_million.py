"""The benchmark of ingest at size: its documents grow words by Heaps' law, and it reports what it promises."""

from streamtopic.bench.cases import ingest_million


def test_it_measures_every_step_deletions_and_learning(monkeypatch):
    """A small run has every figure of each of its steps."""
    monkeypatch.setattr(ingest_million, "STEPS", 2)
    figures = {figure.name: figure.value for figure in ingest_million.million(4_000)}
    for step in ("2,000", "4,000"):
        assert figures[f"{step}: words"] > 0
        assert figures[f"{step}: Redis, documents"] > 0
    assert figures["a deletion"] > 0
    for kind in ("documents", "changes", "words"):
        assert figures[f"4,000: Redis, {kind}"] > 0
    assert figures["reading: peak memory"] > 0
