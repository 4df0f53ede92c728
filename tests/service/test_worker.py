"""Ingest workers: a share of the partitions each, handed over without loss, whoever dies or is stopped meanwhile."""

import contextlib

import pytest
from ingest_world import IngestWorld

from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.service.ingest.worker import IngestWorker
from streamtopic.service.watching import Watch
from streamtopic.state import Reader
from streamtopic.streams import FileLog

PARTITIONS = 3


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
def world(connection, tmp_path):
    """A model with three partitions."""
    with contextlib.closing(FileLog(tmp_path / "log", clock=lambda: 1000.0)) as log:
        yield IngestWorld(connection, log, PARTITIONS)


def work(world, share, now=1000.0, **options):
    """Return a worker with a share of the partitions."""
    given = {
        "open_ingest": lambda partition: world.ingest(partition, clock=lambda: now),
        "linger": 0.0,
        "clock": lambda: now,
        "ticks": lambda: 0.0,
        **options,
    }
    return IngestWorker(world.log, world.topics.documents, share, **given)


def documents(world):
    """How many documents are counted."""
    return Reader(world.connection, world.topics.model, PARTITIONS).counts().documents


def settle(*workers):
    """Let workers take turns until none has anything to do."""
    while sum([worker.step(0.0).records for worker in workers]):
        pass


def fill(world, first, last):
    """Add documents by number."""
    world.send(*(encode_add(f"d{k}", text=f"alpha beta w{k % 7}") for k in range(first, last)))


def test_a_rebalance_hands_partitions_over(world):
    """Partitions that go to another worker are left by the first and counted on by the second."""
    first, second = Share(0, 1, 2), Share()
    one, two = work(world, first), work(world, second)
    fill(world, 0, 30)
    settle(one, two)
    assert sorted(one.ingests) == [0, 1, 2]
    first.partitions, second.partitions = frozenset({0}), frozenset({1, 2})
    fill(world, 30, 60)
    world.send(encode_delete("d1", "r"), encode_delete("d40", "r"))
    settle(one, two)
    assert (sorted(one.ingests), sorted(two.ingests)) == ([0], [1, 2])
    assert documents(world) == 58


def test_a_worker_that_did_not_notice_its_loss_writes_nothing(world):
    """A stopped process that goes on after its partitions were given away is fenced, and waits."""
    time = [0.0]
    zombie = work(world, Share(0, 1, 2), ticks=lambda: time[0])
    fill(world, 0, 30)
    settle(zombie)
    other = work(world, Share(0, 1, 2))
    fill(world, 30, 60)
    settle(other)
    fill(world, 60, 90)
    assert zombie.step(0.0).records == 0
    assert (dict(zombie.ingests), zombie.step(0.0).partitions) == ({}, frozenset())
    settle(other)
    assert documents(world) == 90
    time[0] = 10.0
    fill(world, 90, 120)
    settle(zombie)
    assert documents(world) == 120


def test_a_new_owner_that_is_first_in_a_rebalance_is_no_alarm(world):
    """The old owner meets its fence, hears from the group that the partition is another's, and gives it up."""
    share, watch = Share(0, 1, 2), Watch()
    worker = work(world, share, watch=watch)
    fill(world, 0, 30)
    settle(worker)
    answers = iter([share.partitions])
    share.poll = lambda _seconds: next(answers, frozenset({0}))
    other = work(world, Share(1, 2))
    fill(world, 30, 60)
    settle(other, worker)
    assert (sorted(worker.ingests), sorted(other.ingests)) == ([0], [1, 2])
    assert documents(world) == 60
    assert watch.registry.get_sample_value("streamtopic_interruptions_total", {"reason": "taken_over"}) is None


def test_a_worker_that_is_overtaken_while_it_opens_a_partition_waits(world):
    """Who becomes the writer of a partition, and loses it before its state is read, takes it again after a moment."""
    time = [0.0]
    rivals = [1]

    def overtaken(partition):
        ingest = world.ingest(partition)
        while partition == 1 and rivals:
            # Another process claims it between our claim and our first look at its state.
            rivals.pop()
            world.ingest(partition)
            ingest.state.reload()
        return ingest

    worker = work(world, Share(0, 1, 2), open_ingest=overtaken, ticks=lambda: time[0])
    fill(world, 0, 60)
    settle(worker)
    assert sorted(worker.ingests) == [0, 2]
    time[0] = 10.0
    settle(worker)
    assert sorted(worker.ingests) == [0, 1, 2]
    assert documents(world) == 60


def test_idle_partitions_get_a_heartbeat(world):
    """One record for each partition that has been silent for so long, none for a busy one or before its time."""
    fill(world, 0, 30)
    ends = {p: world.log.end(world.topics.documents, p) for p in range(PARTITIONS)}
    early = work(world, Share(0, 1, 2), now=1000.0 + 59, heartbeat=60.0)
    settle(early)
    assert {p: world.log.end(world.topics.documents, p) for p in range(PARTITIONS)} == ends
    late = work(world, Share(0, 1), now=1000.0 + 61, heartbeat=60.0)
    settle(late)
    late.step(0.0)
    assert world.log.end(world.topics.documents, 0) > ends[0]
    assert world.log.end(world.topics.documents, 1) > ends[1]
    assert world.log.end(world.topics.documents, 2) == ends[2]
