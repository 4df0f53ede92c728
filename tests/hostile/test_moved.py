"""Records in other partitions than their key's, and headers that pretend: no deletion vanishes, no addition either."""

import itertools
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashes import Crash
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
    """A model of two partitions, with its log, and an ingest for each of them that can be killed."""

    def __init__(self, connection, log, clock, partitioner="murmur2", hasty=None):
        self.connection, self.log, self.clock = connection, log, clock
        self.names = TopicNames(f"moved{next(_numbers)}")
        self.settings = ModelSettings(2, 256, partitioner)
        log.create(self.names.documents, 2, hasty)
        log.create(self.names.rejected, 1)
        self.ingests = [self.ingest(partition) for partition in range(2)]

    def ingest(self, partition):
        return Ingest.open(self.connection, self.log, self.names, partition, settings=self.settings, clock=self.clock)

    def send(self, message, partition=None):
        """Append a record; without a partition where Kafka's own clients put it."""
        return self.log.append_many(self.names.documents, [replace(message, partition=partition)])[0]

    def drain(self):
        """Count all that there is, and send home what belongs elsewhere; outcomes."""
        outcomes = Counter()
        while any(ingest.lag for ingest in self.ingests):
            for ingest in self.ingests:
                for progress in ingest.drain():
                    outcomes.update(progress.outcomes)
        return dict(outcomes)

    def begin_again(self, *, lost):
        """Count the log anew, after Redis was lost or for a rebuild."""
        for partition in range(2):
            remove_partition(self.connection, self.names.model, partition, rearranged=lost)
        self.ingests = [self.ingest(partition) for partition in range(2)]
        return self.drain()

    def live(self):
        """Ids of the documents that are counted."""
        names = [name for p in (0, 1) for name, _ in self.records(p)]
        return {name.decode() for name in names}

    def records(self, partition):
        keys = self.ingests[partition].state.keys
        return [pair for bucket in range(BUCKETS) for pair in self.connection.scan(keys.documents(bucket))]

    def moment(self, partition):
        """What Redis holds of a partition now."""
        keys = self.connection.call("KEYS", f"{{st:{self.names.model}:{partition}}}:*")
        return {key: self.connection.call("DUMP", key) for key in keys}

    def notes(self, partition):
        """Names of the entries of the notes for other partitions."""
        return self.connection.call("HKEYS", self.ingests[partition].state.keys.forwards)

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


def test_a_delete_elsewhere_is_sent_home_once_however_often_it_is_killed(world, monkeypatch):
    """Killed behind the send, with an addition behind it: the addition stays, in the state and in the log."""
    document = next(named(1))
    world.send(encode_add(document, text="some plain words"))
    world.drain()
    world.send(encode_delete(document, "r"), 0)
    state = world.ingests[0].state
    with monkeypatch.context() as patch:
        patch.setattr(state, "forwarded", _killed)
        with pytest.raises(Crash):
            list(world.ingests[0].drain())
    world.send(encode_add(document, text="later words that stay"))
    world.ingests[0] = world.ingest(0)
    world.drain()
    assert world.live() == {document}
    assert world.log.end(world.names.documents, 1) == 3
    assert world.digests()[0] == world.digests()[1]
    forgets = Reader(world.connection, world.names.model, 2).forgets(1).read()
    assert [(f.kind.value, f.request) for f in forgets] == [("deleted", "r")]


def _killed(*_):
    raise Crash


@pytest.mark.parametrize("back", ["notes", "all"])
def test_notes_that_come_back_with_redis_are_struck_off_again(world, back):
    """Redis may lose that a note was settled. It is settled again without a new record, and was not sent twice.

    Where the delete itself is read again within a minute, it may be sent again: a deletion must not be lost.
    """
    document = next(named(0))
    world.send(encode_add(document, text="rose tulip"))
    world.drain()
    before = world.moment(1)
    world.send(encode_delete(document, "r"), partition=1)
    ingest = world.ingests[1]
    while ingest.step().records:
        pass
    noted = world.moment(1)
    forwards = ingest.state.keys.forwards.encode()
    # The entry without a name says that the key was not lost.
    assert len(world.notes(1)) == 2
    world.drain()
    assert world.notes(1) == [b""]
    end = world.log.end(world.names.documents, 0)
    for key in () if back == "notes" else world.moment(1):
        world.connection.call("DEL", key)
    for key, value in {forwards: noted[forwards]}.items() if back == "notes" else before.items():
        world.connection.call("RESTORE", key, 0, value, "REPLACE")
    for _ in range(4):
        for one in world.ingests:
            one.step()
            one.forward()
    assert world.notes(1) == [b""]
    assert world.log.end(world.names.documents, 0) - end in ({0} if back == "notes" else {0, 1})
    assert world.live() == set()


def test_a_model_of_librdkafkas_clients_counts_what_they_send(connection, kafka):
    """With partitioner crc32 their records are at home, and those of murmur2 are refused; another one is refused."""
    world = World(connection, kafka, time.time, "crc32")
    document = next(i for i in named(1, partitioner="crc32") if partition_of(i.encode(), 2) == 0)
    world.send(encode_add(document, text="some plain words"), 1)
    assert world.drain() == {"added": 1}
    world.send(encode_add(document, text="other words"), 0)
    assert world.drain() == {"rejected": 1, "misplaced": 1, "deleted": 1}
    for wrong in (ModelSettings(2, 256), ModelSettings(2, 256, "murmur2")):
        world.settings = wrong
        with pytest.raises(StateMismatch, match=r"partitioner crc32, not murmur2.*streamtopic rebuild"):
            world.ingest(0)
    ModelState.open(connection, world.names.model, ModelSettings(2, 256, "crc32"))
    with pytest.raises(StateMismatch, match="set partitioner = crc32"):
        ModelState.open(connection, world.names.model, wrong)


class Shadow(FileLog):
    """A log in files that remembers every record that was ever appended, and can be killed beside an append."""

    def __init__(self, folder, clock):
        super().__init__(folder, clock=clock)
        self.ever, self.producing, self.kill, self.sent = [], False, None, Counter()

    def append_many(self, topic, messages):
        mine = topic.endswith(".documents") and not self.producing
        if mine and self.kill == "before send":
            raise Crash
        places = super().append_many(topic, messages)
        if topic.endswith(".documents"):
            self.ever += [(place, message) for place, message in zip(places, messages, strict=True)]
            self.sent.update(message.key for message in messages if mine)
        if mine and self.kill == "after send":
            raise Crash
        return places


where = st.sampled_from(["home", "home", "elsewhere"])
event = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), where, st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 3), where),
    st.tuples(st.just("bad"), st.integers(0, 3), st.just("elsewhere")),
    st.tuples(st.just("step"), st.integers(0, 1)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("crash"), st.integers(0, 1), st.sampled_from(["commit", "before send", "after send", "strike"])),
    st.tuples(st.just("rebuild")),
)


@settings(max_examples=60)
@given(events=st.lists(event, max_size=25))
def test_any_interleaving_leaves_what_home_says(connection, tmp_path_factory, events):
    """A deletion elsewhere takes effect at home where home ended when it was counted: once, whatever is killed.

    Additions from there on stay; the counts are those of the log, compacted at any point.
    """
    now = [1_700_000_000.0]
    log = Shadow(tmp_path_factory.mktemp("log"), lambda: now[0])
    world = World(connection, log, lambda: now[0])
    notes = {}
    for name, *rest in events:
        now[0] += 0.1
        if name in ("add", "delete", "bad"):
            _produce(world, log, name, *rest)
        elif name == "step":
            _watched(world, rest[0], notes)
        elif name == "compact":
            log.compact(world.names.documents)
        elif name == "rebuild":
            for partition in range(2):
                remove_partition(connection, world.names.model, partition)
            world.ingests = [world.ingest(partition) for partition in range(2)]
        else:
            with pytest.MonkeyPatch.context() as patch:
                _watched(world, rest[0], notes, rest[1], patch)
            log.kill = None
            world.ingests[rest[0]] = world.ingest(rest[0])
    for _ in range(20):
        for partition in range(2):
            _watched(world, partition, notes)
    assert sum(ingest.lag for ingest in world.ingests) == 0
    expected = _expected(log, notes)
    assert world.live() == expected
    counted, fresh = world.digests()
    assert counted == fresh
    noted = Counter(document for *_, document in notes)
    assert all(number <= noted[key] for key, number in log.sent.items())


def _produce(world, log, name, number, place, times=0):
    document = f"d{number}"
    home = partition_of(document.encode(), 2)
    record = (
        encode_add(document, counts={"x": times, f"w{number}": 1}) if name == "add" else encode_delete(document, "r")
    )
    if name == "bad":
        record = Message(record.key, b"{")
    log.producing = True
    world.send(record, home if place == "home" else 1 - home)
    log.producing = False


def _watched(world, partition, notes, kill=None, patch=None):
    """Do one round of a partition, killed at a point; note what was committed to be sent, and from where on."""
    ingest = world.ingests[partition]
    commit, placed = ingest.state.commit, ingest.state.plan
    last = []

    def plan(changes):
        last[:] = [placed(changes)]
        return last[0]

    def committed(flush):
        result = commit(flush)
        for note in flush.forwards:
            notes[partition, note.offset, note.document] = note
        if kill == "commit":
            raise Crash
        return result

    ingest.state.plan, ingest.state.commit = plan, committed
    world.log.kill = kill
    if kill == "strike":
        patch.setattr(ingest.state, "forwarded", _killed)
    try:
        ingest.step()
        ingest.forward()
    except Crash:
        pass
    finally:
        ingest.state.plan, ingest.state.commit = placed, commit


def _expected(log, notes):
    """Ids that live by the records of their homes alone, and by the ends that were noted for the others."""
    ends = {}
    for note in notes.values():
        ends[note.document] = max(ends.get(note.document, 0), note.end)
    last = {}
    for (partition, offset), message in log.ever:
        if message.key and partition_of(message.key, 2) == partition:
            last[message.key] = max(
                last.get(message.key, (-1, None)), (offset, message.value), key=lambda pair: pair[0]
            )
    return {
        key.decode()
        for key, (offset, value) in last.items()
        if value is not None and value != b"{" and offset >= ends.get(key, 0)
    }


@pytest.fixture
def aged(connection, tmp_path):
    """A model whose log and service have a clock of their own."""
    now = [1_700_000_000.0]
    world = World(connection, FileLog(tmp_path, clock=lambda: now[0]), lambda: now[0])
    world.now = now
    return world


def test_a_rebuild_sends_nothing_again(aged):
    """An addition that came a moment after a forwarded delete stays when the log is counted anew."""
    document = next(named(1))
    aged.send(encode_delete(document, "r"), 0)
    aged.drain()
    aged.send(encode_add(document, text="later words that stay"))
    aged.drain()
    ends = [aged.log.end(aged.names.documents, p) for p in (0, 1)]
    aged.begin_again(lost=False)
    assert aged.live() == {document}
    assert [aged.log.end(aged.names.documents, p) for p in (0, 1)] == ends


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
    ends = [aged.log.end(aged.names.documents, p) for p in (0, 1)]
    aged.now[0] += 2 * MINUTE
    aged.begin_again(lost=True)
    assert aged.live() == {kept}
    assert [aged.log.end(aged.names.documents, p) for p in (0, 1)] == ends
    assert aged.digests()[0] == aged.digests()[1]


def test_after_an_outage_a_delete_elsewhere_spares_what_is_newer(aged):
    """Whoever was away for a while does not delete what was added long after the delete."""
    document = next(named(1))
    aged.send(encode_delete(document, "r"), 0)
    aged.now[0] += 2 * MINUTE
    aged.send(encode_add(document, text="later words that stay"))
    aged.now[0] += MINUTE
    aged.drain()
    assert aged.live() == {document}


def test_a_deletion_waits_for_a_home_that_is_behind(aged):
    """A refused change elsewhere needs to know whether there is such a document: it waits, and is seen to wait."""
    document = next(named(1))
    aged.send(encode_add(document, text="some plain words"))
    aged.send(encode_add(document, text="other words"), 0)
    list(aged.ingests[0].drain())
    assert (aged.ingests[0].lag, Reader(aged.connection, aged.names.model, 2).forwards(0)) == (1, 1)
    list(aged.ingests[1].drain())
    aged.ingests[0] = aged.ingest(0)
    aged.drain()
    assert aged.live() == set()
    assert aged.log.end(aged.names.documents, 1) == 2
