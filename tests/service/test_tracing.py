"""One trace leads from a delete to its receipt, and says nothing that a stranger could read a document from."""

import itertools
import json
import subprocess
import sys

import pytest

from embedded_service import Service, made_on_kafka, two_topics
from streamtopic.client import DocumentProducer
from streamtopic.documents.events import encode_delete
from streamtopic.monitoring import tracing
from streamtopic.settings import load

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

_numbers = itertools.count()


@pytest.fixture
def spans(monkeypatch):
    """The spans that this process reports, by OpenTelemetry's own SDK; (name, SDK's span) as they end."""
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    # The provider of a process can be set once only, and other tests run in this process.
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield kept.get_finished_spans
    provider.shutdown()


@pytest.fixture
def service(kafka_server, redis_server, tmp_path):
    """A service on a real Kafka and Redis, with a version of forty documents."""
    model = f"traced{next(_numbers)}"
    chosen = "partitions = 2\ntopics = 2\nmin_df = 1\nmax_df = 1.0\nmax_forget_lag = 0.0"
    file = made_on_kafka(tmp_path, kafka_server, redis_server, model, chosen)
    with Service(load(config=file)) as made:
        with DocumentProducer(kafka_server.servers, model=model) as producer:
            producer.add_many((one.id, one.text) for one in two_topics(0, 40))
        made.settle()
        yield made


def test_one_trace_leads_from_a_delete_to_its_receipt(spans, service):
    """Through Kafka and Redis: the delete, its count and its receipt share a trace, which names the version."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        request = producer.delete("d3")
    service.settle()
    by_name = {span.name: span for span in spans()}
    assert sorted(by_name) == [f"streamtopic {step}" for step in ("delete", "ingest", "receipt")]
    begin = by_name["streamtopic delete"]
    for step in ("ingest", "receipt"):
        span = by_name[f"streamtopic {step}"]
        assert span.context.trace_id == begin.context.trace_id
        assert span.parent.span_id == begin.context.span_id
        assert span.end_time >= span.start_time
    (receipt,) = service.receipts()
    shown = by_name["streamtopic receipt"].attributes
    assert dict(shown) == {"streamtopic.partition": receipt.partition, "streamtopic.version": receipt.version}
    told = json.dumps([json.loads(span.to_json()) for span in spans()])
    assert not [secret for secret in ('"d3"', request, request.salt) if secret in told]


def test_receipts_and_state_do_not_keep_the_trace(spans, service):
    """Once the receipt is published, neither Redis nor any topic that subscribers read has the trace."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        producer.delete("d3")
    (begin,) = [span for span in spans() if span.name == "streamtopic delete"]
    trace = f"{begin.context.trace_id:032x}".encode()
    service.settle()
    assert len(service.receipts()) == 1
    for topic in (service.names.ledger, service.names.releases):
        records = service.log.read(topic, 0, service.log.begin(topic, 0), 10_000)
        assert records
        assert not [record for record in records if trace in repr(record).encode()]
    assert not [entry for partition in (0, 1) for entry in service.reader.forgets(partition).read()]


NO_SPAN, NO_TRACE = TRACE.replace(b"b7ad6b7169203331", b"0" * 16), TRACE[:3] + b"0" * 32 + TRACE[35:]
DAMAGED = [b"", b"x", TRACE + b"0", TRACE[:-1], TRACE.upper(), b"01" + TRACE[2:], NO_SPAN, NO_TRACE, TRACE + b"\n"]


@pytest.mark.parametrize("value", [*DAMAGED, TRACE * 100_000, b"\xff" * 55])
def test_only_a_whole_traceparent_is_kept(value):
    """Anybody may send a header: what is not a version 00 of 55 bytes is as good as absent."""
    assert tracing.trace_of([("traceparent", value)]) == b""
    assert tracing.trace_of([("traceparent", TRACE)]) == TRACE
    assert tracing.trace_of([("traceparent", TRACE), ("traceparent", TRACE)]) == b""
    assert tracing.trace_of([("Traceparent", TRACE)]) == b""


def test_without_opentelemetry_nothing_is_imported_and_no_header_is_sent():
    """The client does not import OpenTelemetry, though it is installed, and its delete is the same record as before."""
    code = (
        "import sys, tempfile\n"
        "from streamtopic.client import DocumentProducer\n"
        "from streamtopic.streams import FileLog, TopicNames\n"
        "with FileLog(tempfile.mkdtemp()) as log:\n"
        "    log.create(TopicNames('m').documents, 1, {})\n"
        "    DocumentProducer(log, model='m').delete('d', 'r', salt='s' * 16)\n"
        "    (record,) = log.read(TopicNames('m').documents, 0, 0)\n"
        "print([name for name, _ in record.headers], [name for name in sys.modules if 'opentelemetry' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['request', 'salt'] []"
    assert dict(encode_delete("d", "r", b"s" * 16).headers) == {"request": b"r", "salt": b"s" * 16}
