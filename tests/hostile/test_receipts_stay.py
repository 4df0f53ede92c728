"""Nothing that anybody writes into the ledger's topic takes a receipt out of it: real Kafka, real Redis."""

import itertools

import pytest

from appending import everything
from embedded_service import Service
from kafka_topics import HASTY, until_compacted
from ledger_maker import SALT, key_of, receipt_of
from streamtopic.client import Receipts, verify_receipt
from streamtopic.errors import StateMismatch
from streamtopic.service.inspection.doctor import examine_log
from streamtopic.service.instance import provision, topic_settings
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.settings import Settings
from streamtopic.signed import KeyRing
from streamtopic.streams import Message, TopicNames

LOSING = HASTY | {"delete.retention.ms": "1"}
"""A compacted topic, on a broker that compacts at once."""
_numbers = itertools.count()


class Model:
    """The ledger of a model, and who writes it."""

    def __init__(self, connection, log):
        self.names = TopicNames(f"stay{next(_numbers)}")
        self.log = log
        self.key = key_of(self.names.model)
        ring = KeyRing.load(self.key.public, self.names.model)
        # Its clock goes on by more than the time between two looks at the topic.
        clock = itertools.count(0, 100)
        self.writer = LedgerWriter(connection, log, self.names.model, ring, self.key, clock=lambda: next(clock))

    def issue(self, *offsets):
        """Write the receipts of deletions."""
        self.writer.catch_up()
        assert self.writer.append([receipt_of(offset, model=self.names.model) for offset in offsets])

    def issued(self):
        """Offsets of the deletions that have a receipt, for whoever comes new; each of them can be proved."""
        receipts = Receipts(self.log, model=self.names.model, public_key=self.key.public)
        for receipt in receipts:
            verify_receipt(receipts.proof(receipt), self.key.public, document=f"d-{receipt.offset}", salt=SALT)
        return [receipt.offset for receipt in receipts]

    def soil(self, topic):
        """Write tombstones and other things, with and without keys, and each record of the ledger once more."""
        records = self.log.read(self.names.ledger, 0, 0)
        for record in records:
            strays = [(b"key", b"anything"), (b"key", None), (None, b"{}"), (None, record.value)]
            self.log.append_many(topic, [Message(*stray, partition=0) for stray in strays])


def test_no_stray_takes_the_place_of_a_receipt(kafka_log, connection, kafka_server, redis_server):
    """Receipts survive tombstones, strays and copies, although the topic was compacted before."""
    model = Model(connection, kafka_log)
    control = f"{model.names.model}.control"
    settings = model.names.settings()
    for topic in (model.names.ledger, model.names.releases):
        kafka_log.create(topic, 1, LOSING)
        provision(kafka_log, model.names, 1, {topic: settings[topic]})
    # The broker tells settings before it follows them, and it follows changes in their order. So it keeps receipts once
    # it compacts a topic that was made later.
    kafka_log.create(control, 1, LOSING)
    kafka_log.append_many(control, [Message(b"key", b"first", partition=0)])
    model.issue(*range(20))
    model.soil(model.names.ledger)
    kafka_log.append_many(control, [Message(b"key", None, partition=0)])
    until_compacted(
        kafka_log, control, lambda: b"first" not in {record.value for record in everything(kafka_log, control)}
    )
    assert model.issued() == list(range(20))
    model.issue(20)
    assert model.issued() == list(range(21))


def test_receipts_are_not_published_where_they_could_be_lost(kafka_log, connection, kafka_server, redis_server):
    """The service refuses a topic that is compacted or has a retention, doctor says so, and init mends it."""
    model = Model(connection, kafka_log)
    settings = Settings(model=model.names.model, kafka=kafka_server.servers, redis_url=redis_server.url, partitions=1)
    with Service(settings) as parts:
        provision(kafka_log, model.names, 1, topic_settings(parts.settings))
        for losing in (LOSING, {"cleanup.policy": "delete", "retention.ms": "604800000"}, {"retention.bytes": "9999"}):
            kafka_log.configure(model.names.ledger, losing)
            with pytest.raises(StateMismatch, match="run `streamtopic init`"):
                model.issue(*range(3))
            assert kafka_log.end(model.names.ledger, 0) == 0
            (found,) = (
                finding
                for finding in examine_log(parts.log, parts.settings, topic_settings(parts.settings))
                if finding.name == model.names.ledger
            )
            assert found.passed is False
            provision(kafka_log, model.names, 1, topic_settings(parts.settings))
            have = kafka_log.settings(model.names.ledger)
            assert (have["cleanup.policy"], have["retention.ms"], have["retention.bytes"]) == ("delete", "-1", "-1")
    model.issue(*range(3))
    assert model.issued() == [0, 1, 2]
