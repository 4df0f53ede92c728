"""Nothing that anybody writes into the receipts topic takes a receipt out of it: real Kafka, real Redis."""

import itertools
import math
import time

import pytest

from streamtopic.client import Receipts
from streamtopic.errors import StateMismatch
from streamtopic.service.assembly import Parts
from streamtopic.service.inspection.examination import examine_log
from streamtopic.service.instance import provision
from streamtopic.service.publish.publisher import Publisher
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, SigningKey
from streamtopic.state import Forget, ForgetKind, Forgets, ModelSettings, ModelState
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import FileLog, Message, TopicNames, open_log

DEADLINE = 180.0
KEY = SigningKey.from_bytes(bytes(32))
HASTY = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "1",
    "segment.ms": "200",
}
"""A compacted topic, as older versions made it, on a broker that compacts at once."""
_numbers = itertools.count()


class Model:
    """A model with deletions that wait for their receipts."""

    def __init__(self, connection, log):
        self.state = ModelState.open(connection, f"stay{next(_numbers)}", ModelSettings(1, 256))
        self.names = TopicNames(self.state.model)
        self.log = log
        self.keys = ModelKeys(self.state.model).partition(0)
        self.forgets = Forgets(connection, self.keys)
        self.publisher = Publisher(self.state, log, key=KEY, secret=b"s" * 32)
        self.version = Envelope(
            model=self.state.model, version=1, kind="unlearn", parent=0, base=1, cut={0: 1 << 40}, m=9, n=5, r=2,
            guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8e-7, tolerance=1e-7, certificate=5e-11, anchors=(),
            margin=math.inf, forgotten=1, capacity=5, capacity_rule="fixed", cumulative_epsilon=1.5, withdrawn=(),
            created=0,
        )  # fmt: skip

    def delete(self, *offsets):
        for offset in offsets:
            made = Forget(offset, b"d%d" % offset, ForgetKind.DELETED, f"r-{offset}", b"", 1, 0, 1, 2)
            self.state.connection.call("XADD", self.keys.forgets, made.entry, "forget", made.pack())

    def issue(self):
        return self.publisher.issue_receipts({0: self.forgets}, [self.version])

    def issued(self):
        """Offsets of the deletions that have a receipt, for whoever comes new."""
        return [receipt.offset for receipt in Receipts(self.log, model=self.names.model, public_key=KEY.public)]

    def soil(self, topic):
        """Write a tombstone and something else under the key of each record of the receipts topic."""
        records = self.log.read(self.names.receipts, 0, 0)
        for value in (b"anything", None):
            self.log.append_many(topic, [Message(record.key, value, partition=0) for record in records])


@pytest.fixture
def log(kafka_server):
    """A log of the broker."""
    log, _ = open_log(kafka_server.servers)
    with log:
        yield log


def test_no_stray_takes_the_place_of_a_receipt(log, connection, kafka_server, redis_server):
    """Receipts survive tombstones and strays under their keys, although the topic was compacted before."""
    model = Model(connection, log)
    control = f"{model.names.model}.control"
    log.create(model.names.receipts, 1, HASTY)
    provision(log, model.names, 1, {model.names.receipts: model.names.settings()[model.names.receipts]})
    # The broker tells settings before it follows them, and it follows changes in their order. So it keeps receipts once
    # it takes records for a topic that was made later.
    log.create(control, 1, HASTY)
    log.append_many(control, [Message(b"tick", b"tick", partition=0)])
    model.delete(*range(20))
    assert model.issue() == 20
    records = log.read(model.names.receipts, 0, 0)
    log.append_many(control, [Message(record.key, record.value, partition=0) for record in records])
    model.soil(model.names.receipts)
    model.soil(control)
    _await_compaction(log, control, {record.value for record in records})
    assert model.issued() == list(range(20))
    model.delete(20)
    assert model.issue() == 1
    assert model.issued() == list(range(21))


def test_receipts_are_not_published_where_they_could_be_lost(log, connection, kafka_server, redis_server):
    """The publisher refuses a topic that is compacted or has a retention, doctor says so, and init mends it."""
    model = Model(connection, log)
    settings = Settings(model=model.names.model, kafka=kafka_server.servers, redis_url=redis_server.url, partitions=1)
    with Parts(settings) as parts:
        provision(log, model.names, 1, parts.topic_settings)
        for losing in (HASTY, {"cleanup.policy": "delete", "retention.ms": "604800000"}, {"retention.bytes": "9999"}):
            log.configure(model.names.receipts, losing)
            model.delete(*range(3))
            with pytest.raises(StateMismatch, match="run `streamtopic init`"):
                model.issue()
            assert (log.end(model.names.receipts, 0), len(model.forgets)) == (0, 3)
            (found,) = (finding for finding in examine_log(parts) if finding.name == model.names.receipts)
            assert found.level == "fail"
            provision(log, model.names, 1, parts.topic_settings)
            have = log.settings(model.names.receipts)
            assert (have["cleanup.policy"], have["retention.ms"], have["retention.bytes"]) == ("delete", "-1", "-1")
            connection.call("DEL", model.keys.forgets)
    model.delete(*range(3))
    assert model.issue() == 3


def test_a_log_in_files_keeps_receipts_too(connection, tmp_path):
    """An instance that an older version made compacts its receipts no longer."""
    with FileLog(tmp_path) as log:
        model = Model(connection, log)
        log.create(model.names.receipts, 1, {"cleanup.policy": "compact"})
        model.delete(1, 2, 3)
        with pytest.raises(StateMismatch):
            model.issue()
        provision(log, model.names, 1, {model.names.receipts: model.names.settings()[model.names.receipts]})
        assert model.issue() == 3
        model.soil(model.names.receipts)
        assert log.compact(model.names.receipts, tombstones_ms=0) == 0
        assert model.issued() == [1, 2, 3]


def _await_compaction(log, topic, values):
    """Wait until the broker has erased all of these from a topic; new records close the files that it cleans."""
    deadline = time.monotonic() + DEADLINE
    while True:
        log.append_many(topic, [Message(b"tick", b"tick", partition=0)])
        held, offset = set(), log.begin(topic, 0)
        while page := log.read(topic, 0, offset):
            held |= {record.value for record in page}
            offset = page[-1].next_offset
        if not held & values:
            return
        assert time.monotonic() < deadline, "the broker has compacted nothing"
        time.sleep(0.5)
