"""The benchmark of several ingest processes: each document is counted once, and every cost is seen."""

import pytest

from streamtopic.bench.cases import scale
from streamtopic.bench.feed import corpus, feed
from streamtopic.bench.ingest_processes import ANY_CORE, IngestProcesses, processor_seconds
from streamtopic.errors import CheckFailed
from streamtopic.state.redis_keys import BUCKETS, ModelKeys

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


@pytest.mark.slow
def test_processes_share_the_documents(kafka_server, redis_server):
    """Two processes count each document once, each its own partition, and their processor time is seen."""
    with feed(kafka_server.servers, redis_server.url, "benchshare", 2) as found:
        found.send(corpus(50, scale.TOKENS), "first")
        with IngestProcesses(found, [(0, [0]), (ANY_CORE, [1])]) as ingests:
            found.send(corpus(300, scale.TOKENS), "then")
            assert ingests.count() == 300
            assert processor_seconds(ingests.pids) > 0
        keys = [ModelKeys("benchshare").partition(number) for number in range(2)]
        held = [sum(found.connection.call("HLEN", own.documents(bucket)) for bucket in range(BUCKETS)) for own in keys]
        assert sum(held) == 350
        assert min(held) > 0


@pytest.mark.slow
def test_a_process_that_ends_early_is_an_error(kafka_server, redis_server):
    """Where a process cannot own its partition, the benchmark says that it ended, and measures nothing."""
    with (
        feed(kafka_server.servers, redis_server.url, "benchnone", 2) as found,
        pytest.raises(CheckFailed, match="ended early"),
        IngestProcesses(found, [(0, [0]), (0, [7])]),
    ):
        pytest.fail("it has begun")
