"""A forged trace header changes nothing but the trace: not the counts, not the receipt, not the size of the state."""

import pytest

from appending import append
from embedded_service import Service
from streamtopic.client import DocumentProducer
from streamtopic.settings import Settings

WORDS = [["apple", "pear", "plum", "fig", "lime"], ["iron", "zinc", "lead", "tin", "gold"]]
FORGED = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
HEADERS = {
    "forged": (("traceparent", FORGED),),
    "huge": (("traceparent", b"0" * 900_000),),
    "many": (("traceparent", FORGED),) * 200,
    "bytes": (("traceparent", bytes(range(256))), ("tracestate", b"\xff" * 10_000)),
}


def served(folder, headers):
    """Receipts of an instance in which d3 was deleted with these headers beside its request, and the largest entry."""
    settings = Settings(dir=folder, topics=2, min_df=1, max_df=1.0, max_forget_lag=0.0)
    with Service(settings) as service:
        with DocumentProducer(service.log, model=settings.model) as producer:
            producer.add_many((f"d{n}", " ".join(WORDS[n % 2][(n // 2 + k) % 5] for k in range(4))) for n in range(40))
        service.settle()
        append(service.log, service.names.documents, b"d3", None, (("request", b"r"), ("salt", b"s" * 16), *headers), 0)
        for ingest in service.ingests:
            list(ingest.drain())
        entries = service.reader.forgets(0).read()
        service.settle()
        return service.receipts(), max(len(entry.pack()) for entry in entries), service.reader.positions()[0].totals


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same without a trace."""
    return served(tmp_path_factory.mktemp("plain"), ())


@pytest.mark.parametrize("name", HEADERS)
def test_a_forged_trace_is_harmless(tmp_path, plain, name):
    """The delete counts as any other, its receipt has the same facts, and at most 57 bytes more wait for it."""
    receipts, size, totals = served(tmp_path, HEADERS[name])
    (expected,), before, counted = plain
    (receipt,) = receipts
    facts = ("request", "document", "offset", "found", "version")
    assert [getattr(receipt, fact) for fact in facts] == [getattr(expected, fact) for fact in facts]
    assert totals == counted
    assert size - before <= 57
    assert FORGED[3:35] not in repr(receipt).encode()
