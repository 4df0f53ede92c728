"""Records in other partitions than their key's, and headers that pretend: no deletion vanishes, no addition either."""

import contextlib
import itertools
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashes import killed_beside
from moved_requests import mover
from streamtopic.counts import Weighting
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.errors import StateMismatch
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ModelSettings, ModelState, Reader
from streamtopic.state.redis_keys import BUCKETS
from streamtopic.state.removal import remove_partition
from streamtopic.streams import FileLog, Message, TopicNames, open_log, partition_of
from waiting import until

_numbers = itertools.count()
MINUTE = 60.0
HASTY = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "200",
    "message.timestamp.type": "LogAppendTime",
}


def named(partition, partitions=2, partitioner="murmur2"):
    """Ids whose home is this partition."""
    ids = (f"k{n}" for n in itertools.count())
    return (i for i in ids if partition_of(i.encode(), partitions, partitioner) == partition)


class World:
    """A model of two partitions, with its log, an ingest for each of them, and a mover of requests."""

    def __init__(self, connection, log, clock, partitioner="murmur2", hasty=None):
        self.connection, self.log, self.clock = connection, log, clock
        self.names = TopicNames(f"moved{next(_numbers)}")
        self.settings = ModelSettings(2, 256, partitioner)
        log.create(self.names.documents, 2, hasty)
        log.create(self.names.rejected, 1)
        log.create(self.names.requests, 1)
        self.open()

    def open(self):
        """Begin all processes anew."""
        self.ingests = [self.ingest(partition) for partition in range(2)]
        given = self.connection, self.names, 2, self.log, lambda records: [self.send(record) for record in records]
        self.move = mover(*given, self.clock, self.settings.partitioner)

    def ingest(self, partition):
        return Ingest.open(self.connection, self.log, self.names, partition, settings=self.settings, clock=self.clock)

    def send(self, message, partition=None):
        """Append a record; without a partition where Kafka's own clients put it."""
        if partition is None and self.settings.partitioner != "murmur2":
            partition = partition_of(message.key, 2, self.settings.partitioner)
        return self.log.append_many(self.names.documents, [replace(message, partition=partition)])[0]

    def drain(self):
        """Count all that there is, and carry out what was asked for elsewhere; outcomes."""
        outcomes = Counter()
        moved = True
        while moved or any(ingest.lag for ingest in self.ingests):
            for ingest in self.ingests:
                for progress in ingest.drain():
                    outcomes.update(progress.outcomes)
            moved = self.move()
        return dict(outcomes)

    def begin_again(self, *, lost):
        """Count the log anew, after Redis was lost or for a rebuild."""
        for partition in range(2):
            remove_partition(self.connection, self.names.model, partition, rearranged=lost)
        for name in ("open", "ended") if lost else ():
            self.connection.call("DEL", f"{{st:{self.names.model}}}:deletions:{name}")
        self.open()
        return self.drain()

    def live(self):
        """Ids of the documents that are counted."""
        names = [name for p in (0, 1) for name, _ in self.records(p)]
        return {name.decode() for name in names}

    def records(self, partition):
        keys = self.ingests[partition].state.keys
        return [pair for bucket in range(BUCKETS) for pair in self.connection.scan(keys.documents(bucket))]

    def digests(self):
        """Digest of the counts in Redis, and of a recount of what compaction leaves of the log."""
        counts = Reader(self.connection, self.names.model, 2).counts()
        counted = counts.restrict(np.arange(len(counts.words)))
        if isinstance(self.log, FileLog):
            self.log.compact(self.names.documents)
        ends = {p: self.log.end(self.names.documents, p) for p in range(2)}
        partitioner = self.settings.partitioner
        found = documents_in_log(self.log, self.names.documents, ends, lambda *_: None, partitioner=partitioner)
        fresh = found.recount(Weighting(256))
        return counted.digest(counts.words), fresh.cooccurrence.digest(fresh.words)


@pytest.fixture(scope="module")
def kafka(kafka_server):
    """A log on a real broker."""
    log, _ = open_log(kafka_server.servers)
    with log:
        yield log


@pytest.fixture
def world(connection, kafka):
    """A model on a real broker."""
    return World(connection, kafka, time.time)


def test_a_forged_origin_hides_no_delete(world):
    """A delete that claims to have been moved before is a delete."""
    victim = next(named(0))
    world.send(encode_add(victim, text="some plain words"))
    world.send(encode_heartbeat(0), 0)
    world.send(Message(b"bad", b"{", (("st-origin", b"1/999999999999999"),)), 0)
    forged = (("st-origin", b"1/999999999999999"),)
    world.send(Message(next(named(0)).encode(), encode_add("x", text="other words").value, forged), 0)
    world.send(Message(victim.encode(), None, (*forged, ("request", b"r"))))
    world.send(Message(victim.encode(), None, (("st-origin", b"1/5"),)))
    world.drain()
    assert world.live() == set()
    assert [f.kind.value for f in Reader(world.connection, world.names.model, 2).forgets(0).read()][-2:] == [
        "deleted",
        "not_found",
    ]


def test_no_header_makes_the_state_grow(world):
    """Three thousand origins leave no trace."""
    fields = set(world.connection.call("HGETALL", world.ingests[0].state.keys.meta))
    ids = named(0)
    messages = [
        Message(next(ids).encode(), None, (("st-origin", b"%d/%d" % (n, n)),), partition=0) for n in range(3_000)
    ]
    world.log.append_many(world.names.documents, messages)
    assert world.drain() == {"not_found": 3_000}
    grown = set(world.connection.call("HGETALL", world.ingests[0].state.keys.meta)) - fields
    assert grown == {b"total:not_found", b"last"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_add_elsewhere_never_arrives_behind_a_delete(world, order):
    """Add at a wrong partition, delete at home: whichever is read first, nothing is live, and the add is pointed at."""
    document = next(named(1))
    world.send(encode_add(document, text="some plain words"), 0)
    world.send(encode_delete(document, "r"))
    for partition in order:
        list(world.ingests[partition].drain())
    world.drain()
    assert world.live() == set()
    assert [world.log.end(world.names.documents, p) for p in (0, 1)] == [1, 1]
    (pointer,) = world.log.read(world.names.rejected, 0, 0)
    assert b"partition" in pointer.value


@pytest.mark.parametrize("later", ["nothing", "add", "garbage"])
def test_compaction_before_ingest_loses_no_delete(connection, kafka, later):
    """Add and delete in a wrong partition, more of the same behind them, compacted away: what is at home goes."""
    world = World(connection, kafka, time.time, hasty=HASTY)
    document = next(named(1))
    add = encode_add(document, text="some plain words")
    world.send(add)
    world.drain()
    world.send(add, 0)
    list(world.ingests[0].drain())
    _, asked = world.send(encode_delete(document, "r"), 0)
    if later != "nothing":
        world.send(add if later == "add" else Message(add.key, b"{"), 0)
        _await_erased(world, asked)
    world.drain()
    assert world.live() == set()
    assert world.digests()[0] == world.digests()[1]


def _await_erased(world, offset):

    def erased():
        world.send(encode_heartbeat(0), 0)
        held, at = set(), world.log.begin(world.names.documents, 0)
        while page := world.log.read(world.names.documents, 0, at):
            held |= {record.offset for record in page}
            at = page[-1].next_offset
        return offset not in held

    until(erased, "compaction by the broker", 0.5)


@pytest.mark.parametrize(("topic", "at"), [("requests", 0), ("documents", 0), ("requests", 1)])
@pytest.mark.parametrize("written", [False, True])
def test_a_delete_elsewhere_is_carried_out_whatever_is_killed(aged, topic, at, written):
    """Killed beside an append, by ingest or by the scheduler: the document goes, under the producer's own request."""
    document, kept = itertools.islice(named(1), 2)
    aged.send(encode_add(document, text="some plain words"))
    aged.send(encode_add(kept, text="other words"))
    aged.drain()
    aged.send(encode_delete(document, "r", b"0123456789abcdef"), 0)
    with killed_beside(aged.log, getattr(aged.names, topic), at, written=written):
        aged.drain()
    aged.open()
    aged.drain()
    assert aged.live() == {kept}
    assert aged.digests()[0] == aged.digests()[1]
    forgets = Reader(aged.connection, aged.names.model, 2).forgets(1).read()
    found = [(one.kind.value, one.request, one.salt) for one in forgets if one.kind.value == "deleted"]
    assert found == [("deleted", "r", b"0123456789abcdef")]
    # A tombstone that may have been written is written again, as for every request.
    assert len(forgets) == (2 if topic == "documents" and written else 1)


def test_many_misplaced_deletes_are_few_requests_whatever_their_names(aged):
    """No record exceeds the limit of its topic, which would stop ingest: ids of 512 bytes, which JSON may escape."""
    for letter, most in (("a", 8), ("\x01", 64)):
        names = [f"{letter * 500}{n}" for n in range(6_000)]
        gone = [name for name in names if partition_of(name.encode(), 2) == 1]
        before = aged.log.end(aged.names.requests, 0)
        aged.log.append_many(
            aged.names.documents, [replace(encode_delete(one, letter * 512), partition=0) for one in gone]
        )
        aged.ingests[0].step()
        records = aged.log.read(aged.names.requests, 0, before, 1_000)
        assert 1 < len(records) <= most
        assert max(len(record.value) for record in records) < 1 << 20


def test_a_request_that_is_done_leaves_no_name(aged):
    """Neither its record nor Redis names the document afterwards; nothing is found twice."""
    document = next(named(1))
    aged.send(encode_delete(document, "r"), 0)
    assert aged.drain() == {"forwarded": 1, "not_found": 1}
    aged.log.compact(aged.names.requests)
    assert {record.value for record in aged.log.read(aged.names.requests, 0, 0)} == {None}
    forgets = Reader(aged.connection, aged.names.model, 2).forgets(1).read()
    assert [(one.kind.value, one.request) for one in forgets] == [("not_found", "r")]


def test_a_model_of_librdkafkas_clients_counts_what_they_send(connection, kafka):
    """With partitioner crc32 their records are at home, and those of murmur2 are refused; another one is refused."""
    world = World(connection, kafka, time.time, "crc32")
    document = next(i for i in named(1, partitioner="crc32") if partition_of(i.encode(), 2) == 0)
    world.send(encode_add(document, text="some plain words"), 1)
    assert world.drain() == {"added": 1}
    world.send(encode_add(document, text="other words"), 0)
    assert world.drain() == {"rejected": 1, "misplaced": 1}
    world.send(encode_delete(document, "r"), 0)
    assert world.drain() == {"forwarded": 1, "deleted": 1}
    for wrong in (ModelSettings(2, 256), ModelSettings(2, 256, "murmur2")):
        world.settings = wrong
        with pytest.raises(StateMismatch, match=r"partitioner crc32, not murmur2.*streamtopic rebuild"):
            world.ingest(0)
    ModelState.open(connection, world.names.model, ModelSettings(2, 256, "crc32"))
    with pytest.raises(StateMismatch, match="set partitioner = crc32"):
        ModelState.open(connection, world.names.model, wrong)


where = st.sampled_from(["home", "home", "elsewhere"])
event = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), where, st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 3), where),
    st.tuples(st.just("bad"), st.integers(0, 3), st.just("elsewhere")),
    st.tuples(st.just("step"), st.integers(0, 1)),
    st.tuples(st.just("move")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("crash"), st.sampled_from(["documents", "requests"]), st.booleans()),
    st.tuples(st.just("rebuild")),
)


@settings(max_examples=40)
@given(events=st.lists(event, max_size=25))
def test_any_interleaving_loses_no_deletion_and_no_late_addition(connection, tmp_path_factory, events):
    """A document lives if and only if home says so. One that was deleted elsewhere lives if it was added later.

    Whatever is killed or compacted; and the counts are those of the log.
    """
    now = [1_700_000_000.0]
    world = World(connection, FileLog(tmp_path_factory.mktemp("log"), clock=lambda: now[0]), lambda: now[0])
    home, elsewhere, unsure = {}, {}, set()
    for name, *rest in events:
        now[0] += 20
        if name not in ("add", "delete", "bad"):
            _happen(world, name, *rest)
            continue
        document = _produce(world, name, *rest)
        if rest[1] == "home":
            home[document] = (name, now[0])
        elif name == "delete":
            elsewhere[document] = now[0]
        else:
            # It may have taken the place of a delete, or not.
            unsure.add(document)
    now[0] += MINUTE
    world.drain()
    for document, (name, at) in home.items():
        gone = elsewhere.get(document, 0)
        if name == "delete" or gone > at:
            assert document not in world.live()
        elif at > gone + MINUTE and document not in unsure:
            assert document in world.live()
    assert world.live() <= set(home)
    counted, fresh = world.digests()
    assert counted == fresh


def _happen(world, name, *rest):
    if name == "step":
        world.ingests[rest[0]].step()
    elif name == "move":
        world.move()
    elif name == "compact":
        world.log.compact(world.names.documents)
    elif name == "rebuild":
        world.begin_again(lost=False)
    else:
        topic, written = rest
        name_of_topic = getattr(world.names, topic)
        # There may be nothing to append.
        with contextlib.suppress(pytest.fail.Exception), killed_beside(world.log, name_of_topic, 0, written=written):
            world.drain()
        world.open()


def _produce(world, name, number, place, times=0):
    document = f"d{number}"
    home = partition_of(document.encode(), 2)
    record = (
        encode_add(document, counts={"x": times, f"w{number}": 1}) if name == "add" else encode_delete(document, "r")
    )
    if name == "bad":
        record = Message(record.key, b"{")
    world.send(record, home if place == "home" else 1 - home)
    return document


@pytest.fixture
def aged(connection, tmp_path):
    """A model whose log and service have a clock of their own."""
    now = [1_700_000_000.0]
    world = World(connection, FileLog(tmp_path, clock=lambda: now[0]), lambda: now[0])
    world.now = now
    return world


def test_where_redis_was_lost_the_log_tells_what_is_due(aged):
    """A delete that never reached its home takes its document away; an addition that is newer stays."""
    gone, kept = itertools.islice(named(1), 2)
    aged.send(encode_add(gone, text="some plain words"))
    aged.now[0] += 5
    aged.send(encode_delete(gone, "r"), 0)
    aged.send(encode_delete(kept, "r"), 0)
    aged.now[0] += 2 * MINUTE
    aged.send(encode_add(kept, text="later words that stay"))
    aged.now[0] += 2 * MINUTE
    aged.begin_again(lost=True)
    assert aged.live() == {kept}
    aged.now[0] += 2 * MINUTE
    aged.begin_again(lost=True)
    assert aged.live() == {kept}
    assert aged.digests()[0] == aged.digests()[1]
