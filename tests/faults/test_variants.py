"""The oracle against a service without one of its guards: each of them is missed by name.

Ingest runs in this process, on a real Kafka and a real Redis, over records of the stream, of a producer that means harm
and of transactions. The whole service under faults is tried by test_campaign.py.
"""

import itertools
import random
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import msgpack
import pytest
import redis

from campaign import checks
from campaign.intruder import forged, poison, strange
from campaign.observer import stored_documents
from campaign.oracle import Oracle
from campaign.reading import home
from campaign.stranger import Stranger, Transaction
from campaign.stream import EventStream
from campaign.tail import TopicTail
from campaign.witness import Witness
from ledger_maker import envelope_of, key_of
from moved_requests import mover
from streamtopic.errors import ComponentUnreachable, StateError, StreamtopicError
from streamtopic.service.ingest import decode as decoding
from streamtopic.service.ingest import resolve
from streamtopic.service.ingest.partition_ingest import Ingest, Progress
from streamtopic.service.inspection import hidden_records
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.publish.publisher import Publisher, PublisherOptions
from streamtopic.service.schedule.version import release_record
from streamtopic.signed import KeyRing
from streamtopic.state import Forgets, ModelSettings, ModelState, Reader, scripts
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import Message, TopicNames, kafka_reader, open_log
from waiting import until

pytestmark = pytest.mark.slow

PARTITIONS = 2
_numbers = itertools.count()


class Line:
    """A connection that loses commits; held: what they were."""

    def __init__(self, connection):
        self.connection, self.held = connection, []

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def script(self, script, keys, arguments):
        """Run a script, unless it is a commit."""
        if script == scripts.COMMIT_FLUSH:
            self.held.append((keys, arguments))
            raise ComponentUnreachable("the line is cut")
        return self.connection.script(script, keys, arguments)


class Trial:
    """One model, counted by writers whose predecessors have sent a commit that arrives last; findings: a campaign's."""

    def __init__(self, servers, url, connection):
        self.servers, self.url, self.connection = servers, url, connection
        self.names = TopicNames(f"variant{next(_numbers)}")
        self.findings = []

    def run(self):
        """Send everything, count it, compare."""
        with ExitStack() as stack:
            log, _ = open_log(self.servers)
            stack.callback(log.close)
            for topic, settings in self.names.settings().items():
                log.create(topic, PARTITIONS if topic == self.names.documents else 1, settings)
            self.tail = TopicTail(self.servers, self.names.documents, PARTITIONS)
            stack.callback(self.tail.close)
            self.stranger = stack.enter_context(Stranger(self.servers, self.names.documents))
            zombies = self._ingests(log)
            self._send(log)
            late = [commit for zombie in zombies for commit in self._held_back(zombie)]
            # Others take over, and then the commits of their predecessors arrive.
            writers = self._ingests(log)
            self._count(writers)
            # Nothing comes behind the marks of this one.
            self._look_at_hidden(log)
            self._count(writers)
            for keys, arguments in late:
                # Redis itself may stumble over such a commit, but only in the middle of it.
                with suppress(StateError):
                    self.connection.script(scripts.COMMIT_FLUSH, keys, arguments)
            self._compare()
        return self.findings

    def _ingests(self, log):
        settings = ModelSettings(PARTITIONS, 256)
        return [
            Ingest.open(self.connection, log, self.names, p, settings=settings, clock=time.time, ahead=False)
            for p in range(PARTITIONS)
        ]

    def _send(self, log):
        rng = random.Random(1)
        stream = EventStream(random.Random(1), PARTITIONS, live=60)
        log.append_many(self.names.documents, stream.batch(200))
        small = [m for m in poison(rng, stream.known, PARTITIONS, 40) if len(m.value or b"") + len(m.key) < 1 << 20]
        self.stranger.send(forged(rng, stream.known, PARTITIONS, 60) + small)
        self.stranger.send([Message(b"k" * (2 << 20), b"{}", (), 0)])
        # A delete and a refused change of documents that live, each in the other partition than theirs.
        for key, value in zip(stream.known[:2], (None, b"{"), strict=True):
            self.stranger.send([Message(key.encode(), value, (), 1 - home(key.encode(), PARTITIONS))])
        self._transact("abort", strange(rng, stream.known, 20))
        self._transact("commit", strange(rng, stream.known, 20))

    def _transact(self, how, messages):
        name = f"variant{next(_numbers)}"
        with Stranger(self.servers, self.names.documents, transaction=name, timeout_ms=600_000) as stranger:
            Transaction(stranger, messages).end(how)
        self._until_nothing_is_hidden()

    def _until_nothing_is_hidden(self):
        until(lambda: not self.tail.hidden(), "the end of the transaction")

    def _look_at_hidden(self, log):
        name = f"variant{next(_numbers)}"
        with Stranger(self.servers, self.names.documents, transaction=name, timeout_ms=600_000) as stranger:
            transaction = Transaction(stranger, [Message(b"hides", b"{}", (), p) for p in range(PARTITIONS)])
            said = {found.partition for found in hidden_records.hidden(log, self.names.documents, range(PARTITIONS))}
            if said != set(range(PARTITIONS)):
                self.findings.append(f"a transaction was open, and {said} were said to be hidden")
            transaction.end("abort")
        self._until_nothing_is_hidden()

    def _held_back(self, ingest):
        """Let an ingest send its next commit, which does not arrive; return it, in a list."""
        line = Line(ingest.state.connection)
        ingest.state.connection = line
        try:
            ingest.step()
        except ComponentUnreachable:
            pass
        except (StreamtopicError, ValueError, TypeError) as error:
            self.findings.append(f"ingest ended: {error}")
        return line.held

    def _count(self, ingests):
        try:
            move = mover(self.connection, self.names, PARTITIONS, ingests[0]._log, self._send_home, time.time)
            for _ in range(10):
                for ingest in ingests:
                    list(ingest.drain())
                move()
        except (StreamtopicError, ValueError, TypeError) as error:
            self.findings.append(f"ingest ended: {error}")

    def _send_home(self, records):
        with open_log(self.servers)[0] as log:
            placed = [replace(record, partition=home(record.key, PARTITIONS)) for record in records]
            log.append_many(self.names.documents, placed)

    def _compare(self):
        oracle, witness = Oracle(PARTITIONS), Witness(self.servers, self.names, key_of(self.names.model).public)
        for r in self.tail.read():
            oracle.take(r.partition, r.offset, r.key, r.value, r.headers, r.time_ms)
        for partition, offset in self.tail.positions.items():
            oracle.reach(partition, offset)
        pointers = TopicTail(self.servers, self.names.rejected, 1)
        for record in pointers.read():
            fields = msgpack.unpackb(record.value)
            witness.rejected.add((fields["partition"], fields["offset"]))
        pointers.close()
        reader = Reader(self.connection, self.names.model, PARTITIONS)
        for partition, meta in reader.positions().items():
            if meta.next_offset != oracle.books[partition].next_offset:
                end = oracle.books[partition].next_offset
                self.findings.append(f"partition {partition} is counted up to {meta.next_offset} of {end}")
        with redis.Redis.from_url(self.url, protocol=2) as client:
            stored = stored_documents(client, self.names.model, PARTITIONS)
        try:
            self.findings += checks.check_counts(oracle, reader)
        except StateError as error:
            self.findings.append(f"the counts cannot be read: {error}")
        self.findings += checks.check_documents(oracle, stored)
        self.findings += checks.check_rejected(oracle, witness)
        self.findings += checks.check_forwards(oracle)


def _reports_alone(run, record, error, document, *, here):
    run.totals["rejected"] += 1
    run.rejected.append(resolve.encode_rejected(record, error))


def _believing_origin(take):
    def believing(run, record, event, home, document):
        if not any(name == "st-origin" for name, _ in record.headers):
            take(run, record, event, home, document)

    return believing


def _keeping(misplace):
    def keeping(run, record, event, home, document):
        misplace(run, record, event, home, document)
        run.elsewhere.clear()

    return keeping


def _without_comparisons(script):
    found, number = re.subn(r"^if have\[\d\] [=~]= plan\.\w+ then return .*$\n", "", script, flags=re.MULTILINE)
    assert number == 4
    return found


def _whole_key(record, error):
    place = {"partition": record.partition, "offset": record.offset}
    return Message(record.key, msgpack.packb({"reason": error.reason, **place}))


VARIANTS = {
    "refused changes remove": (lambda m: m.setattr(resolve._Run, "reject", _reports_alone), "keeps a document"),
    "st-origin means nothing": (
        lambda m: m.setattr(resolve._Run, "take", _believing_origin(resolve._Run.take)),
        "document",
    ),
    "a delete elsewhere becomes a request": (
        lambda m: m.setattr(resolve._Run, "misplace", _keeping(resolve._Run.misplace)),
        "never took effect",
    ),
    "a pointer is small": (lambda m: m.setattr(resolve, "encode_rejected", _whole_key), "ingest ended"),
    "poison is a value": (lambda m: m.setattr(decoding, "_event", decoding.decode_record), "ingest ended"),
    "values are limited": (lambda m: m.setattr("streamtopic.documents.events.MAX_VALUES", 1 << 30), "document"),
    "aborted records are not read": (
        lambda m: m.setitem(kafka_reader._CONSUMER, "isolation_level", "read_uncommitted"),
        "document",
    ),
    "marks of transactions are passed": (
        lambda m: m.setattr(Ingest, "_pass_empty_offsets", lambda _, offset: Progress(0, offset)),
        "is counted up to",
    ),
    "hidden records are seen": (lambda m: m.setattr(hidden_records, "hidden", lambda *_: []), "said to be hidden"),
    "a commit compares": (
        lambda m: m.setattr(scripts, "COMMIT_FLUSH", _without_comparisons(scripts.COMMIT_FLUSH)),
        "stored|cannot be read",
    ),
}


def test_a_sound_service_raises_no_finding(kafka_server, redis_server, connection):
    """Forged headers, poison, transactions and a writer that was succeeded change nothing that the oracle sees."""
    assert Trial(kafka_server.servers, redis_server.url, connection).run() == []


@pytest.mark.parametrize("guard", VARIANTS)
def test_a_service_without_a_guard_is_found(kafka_server, redis_server, connection, monkeypatch, guard):
    """Whatever one guard alone prevents is told from the log and from what is stored."""
    take_out, sign = VARIANTS[guard]
    take_out(monkeypatch)
    findings = Trial(kafka_server.servers, redis_server.url, connection).run()
    assert any(re.search(sign, finding) for finding in findings), findings


def _receipts_issued_twice(servers, connection):
    """Issue receipts, restore what they were issued for, as a Redis that was set back does, issue again; findings."""
    names = TopicNames(f"variant{next(_numbers)}")
    key, keys = key_of(names.model), ModelKeys(names.model).partition(0)
    log, _ = open_log(servers)
    witness = Witness(servers, names, key.public)
    try:
        for topic, settings in names.settings().items():
            log.create(topic, 1, settings)
        state = ModelState.open(connection, names.model, ModelSettings(1, 256))
        ingest = Ingest.open(connection, log, names, 0, settings=ModelSettings(1, 256), clock=time.time, ahead=False)
        log.append_many(names.documents, [Message(b"doc-%d" % k, None, (("request", b"r"),)) for k in range(5)])
        list(ingest.drain())
        # A version that holds nothing of the five records.
        version = envelope_of(1, names.model, cut={0: 5}, release="d" * 64)
        record = release_record(version, chunks=0, reason="a test")
        state.stage(state.acquire("leader", 60_000), 1, release=record, records=[])
        entries = connection.call("XRANGE", keys.forgets, "-", "+")
        for _ in range(2):
            writer = LedgerWriter(connection, log, names.model, KeyRing.load(key.public, names.model), key)
            forgets = {0: Forgets(connection, keys)}
            publisher = Publisher(state, log, writer, forgets, secret=b"s" * 32, options=PublisherOptions())
            while publisher.step().did_something:
                pass
            connection.call("DEL", keys.forgets)
            for name, fields in entries:
                connection.call("XADD", keys.forgets, name, "forget", fields[b"forget"])
        witness.read()
        assert len(witness.receipts) == 5
        return witness.findings
    finally:
        witness.close()
        log.close()


def test_a_second_receipt_is_found(kafka_server, connection, monkeypatch):
    """A deletion that Redis has forgotten to be receipted gets none again; where nobody asks the ledger, it is seen."""
    assert _receipts_issued_twice(kafka_server.servers, connection) == []
    monkeypatch.setattr(LedgerWriter, "find", lambda *_: {})
    findings = _receipts_issued_twice(kafka_server.servers, connection)
    assert any("has a second receipt" in finding for finding in findings), findings
