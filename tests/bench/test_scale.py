"""The benchmark of several ingest processes: each document is counted once, and every cost is seen."""

import pytest

from streamtopic.bench.cases import scale

COSTS = {
    "documents",
    "documents a processor second of ingest",
    "ingest",
    "Kafka, on disk",
    "Redis received",
    "Redis sent",
}


@pytest.mark.slow
@pytest.mark.usefixtures("kafka_server")  # skipped where no broker can be had; the benchmark starts one of its own
def test_every_number_of_processes_has_every_cost(monkeypatch):
    """One process and two count all documents, and each cost of both is measured, with the efficiency of two."""
    monkeypatch.setattr(scale, "NUMBERS", (1, 2))
    monkeypatch.setattr(scale, "ROUNDS", 1)
    found = {figure.name: figure.value for figure in scale.long(1_000)}
    for name in ("1 process", "2 processes"):
        for cost in COSTS:
            assert found[f"{name}: {cost}"] > 0
    # What a document takes in the log does not depend on who reads it.
    assert found["1 process: Kafka, on disk"] == pytest.approx(found["2 processes: Kafka, on disk"], rel=0.01)
    assert found["2 processes: efficiency of each"] > 0
