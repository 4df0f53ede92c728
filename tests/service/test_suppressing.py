"""Suppression in ingest: what was forgotten is refused when it comes again, whatever is killed, replayed or forged."""

from collections import Counter

import msgpack
import pytest
from ingest_world import NOW, IngestWorld, add, new_model

from crashes import killed_beside
from kafka_topics import HASTY, until_compacted
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.documents.suppression import Suppression, SuppressionKey
from streamtopic.state import ForgetKind
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import FileLog, Message, partition_of

NOW_MS = int(NOW * 1000)
SECRET = b"0123456789abcdef0123456789abcdef"
COPY = "{{st:{}}}:suppressed"


class World(IngestWorld):
    """Ingests that refuse what is suppressed."""

    def __init__(self, connection, log, partitions=2):
        model = new_model()
        self.made_ms = NOW_MS
        super().__init__(connection, log, partitions, model=model, key=SuppressionKey(SECRET, model))

    def say(self, *documents, subjects=(), suppressed=True):
        """Suppress or lift; return the records."""
        self.made_ms += 1
        digests = [*(self.key.of_document(one.encode()) for one in documents), *map(self.key.of_subject, subjects)]
        records = [self.record(Suppression(digest, suppressed, self.made_ms)) for digest in digests]
        self.log.append_many(self.topics.requests, records)
        return records

    def record(self, said, key=None):
        """The record of what was said."""
        return Message(said.key, (key or self.key).value(said), partition=0)

    def lift(self, *documents, subjects=()):
        """Lift; return the records."""
        return self.say(*documents, subjects=subjects, suppressed=False)

    def drain(self):
        """Count and carry out all that there is; outcomes and reasons."""
        outcomes = Counter()
        for progress in self.work():
            outcomes.update(progress.outcomes)
            outcomes.update(progress.reasons)
        return outcomes

    def rebuild(self, *, lost=False):
        """Count all anew; lost: with nothing left in Redis."""
        if lost:
            for key in self.connection.call("KEYS", f"{{st:{self.topics.model}*"):
                self.connection.call("DEL", key)
        for partition in range(self.partitions):
            remove_partition(self.connection, self.topics.model, partition)
        self.open()
        self.drain()

    def refuses(self, *documents):
        """Whether adds of these ids are refused now, by this process and by the next one."""
        found = []
        for _ in range(2):
            self.send(*map(add, documents))
            found.append(self.drain()["suppressed"] == len(documents))
            self.open()
        assert len(set(found)) == 1
        return found[0]

    def check(self, *live):
        """Compare state, recount and rebuild with each other, before and after compaction."""
        assert self.live() == set(live)
        assert self.counted() == self.recounted()
        self.log.compact(self.topics.documents)
        self.log.compact(self.topics.requests)
        assert self.counted() == self.recounted()
        for lost in (False, True):
            self.rebuild(lost=lost)
            assert self.live() == set(live)
            assert self.counted() == self.recounted()

    def pointers(self):
        """Keys and reasons in the rejected topic."""
        found = self.log.read(self.topics.rejected, 0, 0, 100_000)
        return [(record.key or None, msgpack.unpackb(record.value)["reason"]) for record in found]


@pytest.fixture
def world(connection, tmp_path):
    """A model of two partitions, with a log in files."""
    return World(connection, FileLog(tmp_path, clock=lambda: NOW))


def test_an_id_that_was_forgotten_is_refused_until_it_is_lifted(world):
    """Its add is refused as `suppressed`, its text leaves the log, and nothing says whose it was."""
    world.send(add("a"), add("b"))
    world.drain()
    world.say("a")
    world.send(encode_delete("a", "r-1"))
    world.drain()
    world.send(add("a", word="secretword"), add("c"))
    outcomes = world.drain()
    assert (outcomes["suppressed"], outcomes["rejected"], outcomes["added"]) == (1, 1, 1)
    assert world.pointers() == [(None, "suppressed")]
    world.check("b", "c")
    assert b"secretword" not in world.log_values()
    world.lift("a")
    world.send(add("a"))
    assert world.drain()["added"] == 1
    world.check("a", "b", "c")


def test_nobody_can_hide_a_delete_behind_the_service_s_header(world):
    """A tombstone with a header like it is a delete with its receipt, at the place of the real one too."""
    world.say("gone")
    world.send(add("a"), add("gone"))
    world.drain()
    ((own,),) = {record.headers for record in world.records() if record.headers}
    forged = [(("st-suppressed", b"1"), ("request", b"r-1")), (own, ("request", b"r-2"))]
    forged += [(("st-suppressed", b"0:" + b"0" * 32),)]
    for headers in forged:
        world.send(Message(b"a", None, headers))
    world.drain()
    kinds = [(forget.kind, forget.request) for forget in world.forgets()]
    assert kinds == [(ForgetKind.DELETED, "r-1"), (ForgetKind.NOT_FOUND, "r-2"), (ForgetKind.NOT_FOUND, "")]
    world.check()


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("misplaced", [False, True])
def test_a_suppressed_add_leaves_the_log_wherever_it_is(world, damaged, misplaced):
    """Suppression comes before all other reasons, or the text would stay as that of any refused record."""
    world.say("a")
    value = {"op": "add", "text": "secretword"} | ({"labels": 7} if damaged else {})
    partition = partition_of(b"a", 2)
    world.send(Message(b"a", msgpack.packb(value), partition=1 - partition if misplaced else partition))
    assert world.drain()["suppressed"] == 1
    world.check()
    assert b"secretword" not in world.log_values()
    world.lift("a")
    world.send(add("a"))
    world.drain()
    world.check("a")


@pytest.mark.parametrize("topic", ["documents", "rejected"])
@pytest.mark.parametrize("written", [False, True])
def test_a_process_that_is_killed_beside_the_tombstones_leaves_no_text(world, topic, written):
    """They are written before the commit, so the next process refuses the adds again."""
    world.say(subjects=["alice"])
    world.send(*(add(f"a{n}", "alice", word="secretword") for n in range(10)), add("c"))
    with killed_beside(world.log, getattr(world.topics, topic), 0, written=written):
        world.drain()
    world.open()
    world.drain()
    world.check("c")
    assert b"secretword" not in world.log_values()


def test_a_forged_suppression_changes_nothing(world):
    """Without the operator's key nobody suppresses, whatever key, code, time or form the record has."""
    good = Suppression(world.key.of_document(b"a"), suppressed=True, made_ms=NOW_MS)
    value = world.key.value(good)
    others = [SuppressionKey(b"another secret of thirty-two bytes", world.topics.model), SuppressionKey(SECRET, "x")]
    values = [key.value(good) for key in others]
    values += [value[:-32] + b"0" * 32, value.replace(b"17", b"18", 1), value.replace(b"suppress", b"lift")]
    values += [value.replace(b":", b":0", 1), value + b"\n", b"garbage", b"", None, encode_add("x", text="words").value]
    records = [Message(good.key, one, partition=0) for one in values]
    keys = [good.key.upper(), b"st:suppress:", b"st:suppress:zz", good.key + b"00", b"other"]
    records += [Message(key, value, partition=0) for key in keys]
    world.log.append_many(world.topics.requests, records)
    assert not world.refuses("a")


@pytest.mark.parametrize("lifted", [False, True])
def test_who_writes_over_a_record_changes_nothing(world, lifted):
    """A tombstone, garbage or an older record is passed over, and the right one is written after it.

    The right one survives compaction, the loss of Redis, and a topic from which it is gone already.
    """
    (first,) = world.say("a")
    world.lift("a")
    (right,) = world.lift("a") if lifted else world.say("a")
    older = world.record(Suppression(world.key.of_document(b"a"), not lifted, NOW_MS))
    assert world.refuses("a") is not lifted
    for value in (None, b"", b"garbage", first.value, older.value):
        world.log.append_many(world.topics.requests, [Message(first.key, value, partition=0)])
        # The log keeps the forged record alone, until somebody who knows better looks.
        world.log.compact(world.topics.requests)
        world.open()
        assert world.refuses("a") is not lifted
        world.log.compact(world.topics.requests)
        assert [record.value for record in world.log.read(world.topics.requests, 0, 0)] == [right.value]
        world.rebuild(lost=True)
        assert world.refuses("a") is not lifted


def test_redis_and_the_log_do_not_say_who_is_suppressed(world):
    """Neither ids nor subjects stand there, nor digests that somebody without the key can compute."""
    world.send(add("a-in-plain", "alice-in-plain"))
    world.drain()
    world.say("a-in-plain", subjects=["alice-in-plain"])
    world.send(encode_delete("a-in-plain", "r-1"))
    world.drain()
    world.log.compact(world.topics.documents)
    kept = world.connection.call("HGETALL", COPY.format(world.topics.model))
    said = [part for record in world.log.read(world.topics.requests, 0, 0) for part in (record.key, record.value)]
    assert len(kept) == 3
    for part in (*kept, *kept.values(), *said, world.log_values()):
        assert b"in-plain" not in part
    for other in (SuppressionKey(SECRET, "another"), SuppressionKey(b"x" * 32, world.topics.model)):
        digest = other.of_document(b"a-in-plain").hex().encode()
        assert not any(digest in part for part in (*kept, *said))


def test_a_person_stays_forgotten_on_a_real_broker(connection, kafka_log):
    """Over Kafka, with restarts in the middle, and a log that the broker compacts."""
    world = World(connection, kafka_log)
    kafka_log.configure(world.topics.documents, HASTY)
    world.send(*(add(f"d{number}", f"s{number % 3}") for number in range(30)))
    world.drain()
    world.say(subjects=["s1"])
    again = [f"d{number}" for number in range(1, 30, 3)]
    world.send(*(encode_delete(name, "r") for name in again))
    world.send(*(add(name, "s1", word="secretword") for name in again))
    for ingest in world.ingests:
        ingest.step(5)
    world.open()
    world.drain()
    expected = {f"d{number}" for number in range(30)} - set(again)
    assert world.live() == expected
    world.lift(subjects=["s1"])
    world.say("d0")
    world.send(add("d1", "s1"), add("d0", word="secretword"))
    world.drain()
    expected = expected - {"d0"} | {"d1"}
    assert world.live() == expected
    until_compacted(kafka_log, world.topics.documents, lambda: b"secretword" not in world.log_values())
    world.rebuild(lost=True)
    assert world.live() == expected
    assert world.counted() == world.recounted()
