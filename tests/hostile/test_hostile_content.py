"""Records of any content, through a real broker: ingest ends at lag 0, and the counts are those of an oracle."""

import random
import time

import msgpack
import pytest
from kafka import KafkaProducer

from campaign.oracle import Oracle
from campaign.stream import EventStream
from plain_counts import all_counts, counts_in_log
from streamtopic.documents.events import encode_add
from streamtopic.service.ingest.missed_deletes import delete_missed
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.rejections import RefusedRecords
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ModelSettings, Reader
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import TopicNames, open_log

MIB = 1 << 20
# Like the documents topic, but taking whatever a topic made by hand may take.
OPEN = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "max.message.bytes": str(12 * MIB),
}
COUNT = 900
KEYS = [None, b"", b"\xff", b"\x00" * 600, "é".encode()[:1], b"\xed\xa0\x80", b"st:heartbeat", b"k" * (2 * MIB)]
VALUES = [
    b"\xff" * 5 * MIB,
    b'{"op": "add", "counts": {"a": 1' + b"0" * 400,
    b"\xd6\xff\xff\xff\xff\xff",
    msgpack.packb({"op": "add", "text": "x" * MIB}),
    msgpack.packb({"op": "add", "counts": {"a": 2**40}}),
    msgpack.packb(msgpack.Timestamp(2**33)),
]
HEADERS = [
    [("x", b"")] * 3_000,
    [("request", b"a"), ("request", b"b")],
    [("", b"")],
    [("é" * 5_000, b"\xff" * 100_000)],
    [("st-unknown", b"\xff" * MIB)],
    [(f"h{number}", b"v") for number in range(500)],
]
TIMES = [None, None, 0, 1, 2**53, 2**62, 253_402_300_800_000, -1]


@pytest.fixture(scope="module")
def names(kafka_server):
    """Topics with hostile records, and behind them a transaction that was aborted and one that was committed."""
    names = TopicNames(f"content{time.time_ns()}")
    rng = random.Random(7)
    log, _ = open_log(kafka_server.servers)
    options = {"bootstrap_servers": kafka_server.servers, "max_request_size": 16 * MIB}
    with log:
        log.create(names.documents, 1, OPEN)
        log.create(names.rejected, 1, {"cleanup.policy": "compact"})
        log.create(names.requests, 1)
        producer = KafkaProducer(**options, enable_idempotence=False)
        futures = []
        for message in EventStream(rng, 4, live=30).batch(COUNT):
            # One of three parts of some is what no producer of documents sends.
            key = rng.choice(KEYS) if rng.random() < 0.15 else message.key
            value = rng.choice(VALUES) if rng.random() < 0.05 else message.value
            headers = rng.choice(HEADERS) if rng.random() < 0.1 else [*message.headers]
            if key is None and value is None:
                continue
            moment = rng.choice(TIMES)
            futures.append(producer.send(names.documents, value, key, headers, partition=0, timestamp_ms=moment))
        producer.flush()
        failed = [future.exception for future in futures if not future.succeeded()]
        assert len(failed) < len(futures) // 4, failed[:3]
        producer.close()
        _transactions(options, names.documents)
    return names


def _transactions(options, topic):
    """Write one transaction that is aborted and one that is committed: both leave control records."""
    producer = KafkaProducer(**options, transactional_id=f"{topic}-tx")
    producer.init_transactions()
    for keep in (False, True):
        producer.begin_transaction()
        producer.send(topic, encode_add("x", text=f"{keep} words here").value, b"tx-%d" % keep, partition=0)
        producer.flush()
        (producer.commit_transaction if keep else producer.abort_transaction)()
    producer.close()


def _digest(connection, model):
    return all_counts(Reader(connection, model, 1).counts())


@pytest.mark.slow
def test_no_content_stops_ingest(names, kafka_server, connection):
    """Not keys, values, headers or times; a second reading, a recount and the log agree, and retrying is harmless."""
    log, _ = open_log(kafka_server.servers)
    with log:
        fixed = ModelSettings(1, 256)
        ingest = Ingest(connection, log, names, 0, settings=fixed, clock=time.time)
        list(ingest.drain())
        assert ingest.lag == 0
        oracle, offset = Oracle(1), 0
        refused = []
        while page := log.read(names.documents, 0, offset):
            for record in page:
                oracle.take(0, record.offset, record.key, record.value, record.headers)
            offset = page[-1].next_offset
        refused = sorted(oracle.books[0].refused)
        assert len(refused) > COUNT // 8
        assert ingest.state.meta.documents == oracle.counts().documents > 10
        assert {b"tx-0", b"tx-1"} & set(oracle.books[0].live) == {b"tx-1"}
        totals = ingest.state.meta.totals
        assert {name: totals.get(name, 0) for name in oracle.books[0].totals} == dict(oracle.books[0].totals)
        assert [pointer.offset for pointer in RefusedRecords.read(log, names, 10_000).newest] == refused
        assert max(pointer.size for pointer in log.read(names.rejected, 0, 0, 10_000)) < 2_048
        end = ingest.state.meta.next_offset
        left = documents_in_log(log, names.documents, {0: end}, lambda *_: None)
        digest = _digest(connection, names.model)
        assert counts_in_log(left) == digest
        assert delete_missed(ingest, log) == 0
        remove_partition(connection, names.model, 0)
        again = Ingest(connection, log, names, 0, settings=fixed, clock=time.time)
        list(again.drain())
        assert _digest(connection, names.model) == digest
