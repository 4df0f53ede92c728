"""Records in other partitions than their key's, and headers that pretend: no deletion vanishes, no addition either."""

import contextlib
import itertools
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from ingest_world import IngestWorld, new_model

from appending import everything
from crashes import killed_beside
from kafka_topics import HASTY, until_compacted
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.service.requests.request_mover import RequestMover
from streamtopic.settings import Settings
from streamtopic.state import Reader
from streamtopic.state.model_state import lead, remove_partition
from streamtopic.streams import FileLog, Message, TopicNames, partition_of

MINUTE = 60.0


def named(partition):
    """Ids whose home is this partition."""
    ids = (f"k{n}" for n in itertools.count())
    return (i for i in ids if partition_of(i.encode(), 2) == partition)


class World(IngestWorld):
    """A model of two partitions, and a mover of its requests."""

    def __init__(self, connection, log, clock, hasty=None):
        self.clock, model = clock, new_model()
        log.create(TopicNames(model).documents, 2, hasty)
        super().__init__(connection, log, model=model, clock=clock)

    def open(self):
        """Begin all processes anew."""
        super().open()
        # No request has a receipt of its own here.
        ledger = SimpleNamespace(catch_up=lambda: None, find=lambda _: {}, ledger=SimpleNamespace(size=0))
        model = self.topics.model
        opened = SimpleNamespace(
            settings=Settings(model=model, partitions=2),
            names=self.topics,
            connection=self.connection,
            log=self.log,
            ledger=ledger,
            clock=self.clock,
        )
        mover = RequestMover(opened, Reader(self.connection, model, 2))
        self.move = lambda: bool(mover.step(lead(self.connection, model, "test", 60_000)))

    def place(self, message, partition):
        """Append a record to a partition; return its place."""
        return self.log.append_many(self.topics.documents, [replace(message, partition=partition)])[0]

    def drain(self):
        """Count all that there is, and carry out what was asked for elsewhere; outcomes."""
        outcomes, moved = Counter(), True
        while moved or any(ingest.lag for ingest in self.ingests):
            outcomes.update(super().drain())
            moved = self.move()
        return dict(outcomes)

    def rebuild(self):
        """Count the log anew."""
        for partition in range(2):
            remove_partition(self.connection, self.topics.model, partition)
        self.open()
        self.drain()

    def agrees(self):
        """Whether the counts are those of a recount of what compaction leaves of the log."""
        if isinstance(self.log, FileLog):
            self.log.compact(self.topics.documents)
        return self.counted() == self.recounted()


def test_a_forged_origin_hides_no_delete(connection, kafka_log):
    """A delete that claims to have been moved before is a delete."""
    world = World(connection, kafka_log, time.time)
    victim = next(named(0))
    world.send(encode_add(victim, text="some plain words"))
    world.place(encode_heartbeat(0), 0)
    world.place(Message(b"bad", b"{", (("st-origin", b"1/999999999999999"),)), 0)
    forged = (("st-origin", b"1/999999999999999"),)
    world.place(Message(next(named(0)).encode(), encode_add("x", text="other words").value, forged), 0)
    world.send(Message(victim.encode(), None, (*forged, ("request", b"r"))))
    world.send(Message(victim.encode(), None, (("st-origin", b"1/5"),)))
    world.drain()
    assert world.live() == set()
    assert [f.kind.value for f in Reader(world.connection, world.topics.model, 2).forgets(0).read()][-2:] == [
        "deleted",
        "not_found",
    ]


@pytest.mark.parametrize("later", ["nothing", "add", "garbage"])
def test_compaction_before_ingest_loses_no_delete(connection, kafka_log, later):
    """Add and delete in a wrong partition, more of the same behind them, compacted away: what is at home goes."""
    world = World(connection, kafka_log, time.time, hasty=HASTY | {"message.timestamp.type": "LogAppendTime"})
    topic = world.topics.documents
    document = next(named(1))
    add = encode_add(document, text="some plain words")
    world.send(add)
    world.drain()
    world.place(add, 0)
    list(world.ingests[0].drain())
    _, asked = world.place(encode_delete(document, "r"), 0)
    if later != "nothing":
        world.place(add if later == "add" else Message(add.key, b"{"), 0)
        until_compacted(
            kafka_log, topic, lambda: asked not in {record.offset for record in everything(kafka_log, topic)}
        )
    world.drain()
    assert world.live() == set()
    assert world.agrees()


@pytest.mark.parametrize(("topic", "at"), [("requests", 0), ("documents", 0), ("requests", 1)])
@pytest.mark.parametrize("written", [False, True])
def test_a_delete_elsewhere_is_carried_out_whatever_is_killed(connection, tmp_path, topic, at, written):
    """Killed beside an append, by ingest or by the scheduler: the document goes, under the producer's own request."""
    clock = lambda: 1_700_000_000.0  # noqa: E731  one line reads best here
    world = World(connection, FileLog(tmp_path, clock=clock), clock)
    document, kept = itertools.islice(named(1), 2)
    world.send(encode_add(document, text="some plain words"))
    world.send(encode_add(kept, text="other words"))
    world.drain()
    world.place(encode_delete(document, "r", b"0123456789abcdef"), 0)
    with killed_beside(world.log, getattr(world.topics, topic), at, written=written):
        world.drain()
    world.open()
    world.drain()
    assert world.live() == {kept}
    assert world.agrees()
    forgets = Reader(world.connection, world.topics.model, 2).forgets(1).read()
    found = [(one.kind.value, one.request, one.salt) for one in forgets if one.kind.value == "deleted"]
    assert found == [("deleted", "r", b"0123456789abcdef")]
    # A tombstone that may have been written is written again, as for every request.
    assert len(forgets) == (2 if topic == "documents" and written else 1)


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


@examples(max_examples=40)
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
    assert world.agrees()


def _happen(world, name, *rest):
    if name == "step":
        world.ingests[rest[0]].step()
    elif name == "move":
        world.move()
    elif name == "compact":
        world.log.compact(world.topics.documents)
    elif name == "rebuild":
        world.rebuild()
    else:
        topic, written = rest
        name_of_topic = getattr(world.topics, topic)
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
    world.place(record, home if place == "home" else 1 - home)
    return document
