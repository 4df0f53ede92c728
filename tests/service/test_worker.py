"""Ingest workers: a share of the partitions each, handed over without loss, whoever dies or is stopped meanwhile."""

import contextlib
import itertools

import pytest

from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.worker import IngestWorker
from streamtopic.state import ModelSettings, Reader
from streamtopic.streams import FileLog, TopicNames

_numbers = itertools.count()
PARTITIONS = 3
SETTINGS = ModelSettings(PARTITIONS, 256)


class Share:
    """A membership whose partitions the test decides."""

    lost = ""

    def __init__(self, *partitions):
        self.partitions = frozenset(partitions)
        self.left = False

    def poll(self, _seconds):
        """Return the partitions as the test set them."""
        return self.partitions

    def leave(self):
        """Remember that the group was left."""
        self.left = True


@pytest.fixture
def model():
    """A model that no other test uses."""
    return f"w{next(_numbers)}"


@pytest.fixture
def names(model):
    """Topics of a fresh model."""
    return TopicNames(model)


@pytest.fixture
def log(tmp_path, names):
    """A log with three partitions."""
    with contextlib.closing(FileLog(tmp_path / "log", clock=lambda: 1000.0)) as log:
        for topic in names.settings():
            log.create(topic, PARTITIONS if topic == names.documents else 1)
        yield log


@pytest.fixture
def work(connection, log, names):
    """Make a worker with a share of the partitions."""

    def make(share, now=1000.0, ticks=lambda: 0.0, **options):
        def open_ingest(partition):
            return Ingest(connection, log, names, partition, settings=SETTINGS, clock=lambda: now)

        given = {"linger": 0.0, "clock": lambda: now, "ticks": ticks, **options}
        return IngestWorker(log, names.documents, share, open_ingest, **given)

    return make


def settle(*workers):
    """Let workers take turns until none has anything to do."""
    while sum([worker.step(0.0).records for worker in workers]):
        pass


def fill(log, names, first, last):
    """Add documents by number."""
    log.append_many(names.documents, [encode_add(f"d{k}", text=f"alpha beta w{k % 7}") for k in range(first, last)])


def test_a_rebalance_hands_partitions_over(work, log, names, connection, model):
    """Partitions that go to another worker are left by the first and counted on by the second."""
    first, second = Share(0, 1, 2), Share()
    one, two = work(first), work(second)
    fill(log, names, 0, 30)
    settle(one, two)
    assert sorted(one.ingests) == [0, 1, 2]
    first.partitions, second.partitions = frozenset({0}), frozenset({1, 2})
    fill(log, names, 30, 60)
    log.append_many(names.documents, [encode_delete("d1", "r"), encode_delete("d40", "r")])
    settle(one, two)
    assert (sorted(one.ingests), sorted(two.ingests)) == ([0], [1, 2])
    assert Reader(connection, model, PARTITIONS).counts().documents == 58


def test_a_worker_that_did_not_notice_its_loss_writes_nothing(work, log, names, connection, model):
    """A stopped process that goes on after its partitions were given away is fenced, and waits."""
    time = [0.0]
    zombie = work(Share(0, 1, 2), ticks=lambda: time[0])
    fill(log, names, 0, 30)
    settle(zombie)
    other = work(Share(0, 1, 2))
    fill(log, names, 30, 60)
    settle(other)
    fill(log, names, 60, 90)
    assert zombie.step(0.0).records == 0
    assert (dict(zombie.ingests), zombie.step(0.0).partitions) == ({}, frozenset())
    settle(other)
    assert Reader(connection, model, PARTITIONS).counts().documents == 90
    time[0] = 10.0
    fill(log, names, 90, 120)
    settle(zombie)
    assert Reader(connection, model, PARTITIONS).counts().documents == 120


def test_a_worker_that_is_overtaken_while_it_opens_a_partition_waits(connection, log, names, model):
    """Who becomes the writer of a partition, and loses it before its state is read, takes it again after a moment."""
    time = [0.0]
    rivals = [1]

    def overtaken(partition):
        ingest = Ingest(connection, log, names, partition, settings=SETTINGS, clock=lambda: 1000.0)
        while partition == 1 and rivals:
            # Another process claims it between our claim and our first look at its state.
            rivals.pop()
            Ingest(connection, log, names, partition, settings=SETTINGS, clock=lambda: 1000.0)
            ingest.state.reload()
        return ingest

    given = {"linger": 0.0, "clock": lambda: 1000.0, "ticks": lambda: time[0]}
    worker = IngestWorker(log, names.documents, Share(0, 1, 2), overtaken, **given)
    fill(log, names, 0, 60)
    settle(worker)
    assert sorted(worker.ingests) == [0, 2]
    time[0] = 10.0
    settle(worker)
    assert sorted(worker.ingests) == [0, 1, 2]
    assert Reader(connection, model, PARTITIONS).counts().documents == 60


def test_idle_partitions_get_a_heartbeat(work, log, names):
    """One record for each partition that has been silent for so long, none for a busy one or before its time."""
    fill(log, names, 0, 30)
    ends = {p: log.end(names.documents, p) for p in range(PARTITIONS)}
    early = work(Share(0, 1, 2), now=1000.0 + 59, heartbeat=60.0)
    settle(early)
    assert {p: log.end(names.documents, p) for p in range(PARTITIONS)} == ends
    late = work(Share(0, 1), now=1000.0 + 61, heartbeat=60.0)
    settle(late)
    late.step(0.0)
    assert log.end(names.documents, 0) > ends[0]
    assert log.end(names.documents, 1) > ends[1]
    assert log.end(names.documents, 2) == ends[2]
