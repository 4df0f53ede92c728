"""Suppression in ingest: what was forgotten is refused when it comes again, whatever is killed, replayed or forged."""

from collections import Counter
from dataclasses import replace

import msgpack
import pytest
from ingest_world import NOW, IngestWorld, new_model

from crashes import killed_beside
from streamtopic.client import DocumentProducer, Suppressor
from streamtopic.documents.dialects import Dialect, InputMapping
from streamtopic.documents.events import encode_add, encode_delete, encode_suppressions, limits_of, new_suppressions
from streamtopic.documents.suppression import SUPPRESSION_KEY, Suppression, SuppressionKey
from streamtopic.errors import SettingsError
from streamtopic.service.ingest import find_suppressions
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.state import ForgetKind, ModelSettings
from streamtopic.state.removal import remove_partition
from streamtopic.streams import FileLog, Message, TopicNames, open_log, partition_of
from waiting import until

NOW_MS = int(NOW * 1000)
SECRET = b"0123456789abcdef0123456789abcdef"


class World(IngestWorld):
    """Ingests that refuse what is suppressed."""

    def __init__(self, connection, log, partitions=2, mapping=None):
        model = new_model()
        self.key = SuppressionKey(SECRET, model)
        self.made_ms = NOW_MS
        rules = "" if mapping is None else mapping.rules
        dialect = Dialect(mapping or InputMapping(), suppression=self.key)
        limits = limits_of(days=False, suppression=self.key.fingerprint) + rules
        super().__init__(connection, log, partitions, model=model, dialect=dialect, limits=limits)

    def say(self, *documents, subjects=(), suppressed=True):
        """Suppress or lift; return the records."""
        self.made_ms += 1
        found = new_suppressions(self.key, documents, subjects, self.made_ms, suppressed=suppressed)
        records = encode_suppressions(found, self.key, self.partitions)
        self.send(*records)
        return records

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

    def step(self):
        """Count one flush of each partition, and send nothing."""
        for ingest in self.ingests:
            ingest.step()

    def rebuild(self, *, lost=False):
        """Count all anew; lost: with nothing left in Redis."""
        if lost:
            for key in self.connection.call("KEYS", f"{{st:{self.topics.model}:*"):
                self.connection.call("DEL", key)
        for partition in range(self.partitions):
            remove_partition(self.connection, self.topics.model, partition)
        self.open()
        self.drain()

    def kept(self):
        """All that Redis holds about suppressions, by partition."""
        hashes = [self.connection.call("HGETALL", ingest.state.keys.suppressed) for ingest in self.ingests]
        # The entry without a name says that the key was not lost.
        assert [found.pop(b"") for found in hashes] == [b""] * len(hashes)
        return hashes, [ingest.state.meta.suppressed for ingest in self.ingests]

    def check(self, *live):
        """Compare state, recount and rebuild with each other, before and after compaction."""
        before = self.kept()
        assert self.live() == set(live)
        assert self.counted() == self.recounted()
        self.log.compact(self.topics.documents)
        assert self.counted() == self.recounted()
        for lost in (False, True):
            self.rebuild(lost=lost)
            assert (self.live(), self.kept()) == (set(live), before)
            assert self.counted() == self.recounted()

    def pointers(self):
        """Keys and reasons in the rejected topic."""
        found = self.log.read(self.topics.rejected, 0, 0, 100_000)
        return [(record.key or None, msgpack.unpackb(record.value)["reason"]) for record in found]


@pytest.fixture
def world(connection, tmp_path):
    """A model of two partitions, with a log in files."""
    return World(connection, FileLog(tmp_path, clock=lambda: NOW))


def add(name, *subjects, word="x"):
    """An add of a document with two words."""
    return encode_add(name, counts={word: 2, "y": 1}, subjects=subjects)


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


def test_a_subject_that_was_forgotten_is_refused_in_every_partition(world):
    """Whatever the id, and beside other subjects; documents about others are taken."""
    world.say(subjects=["alice"])
    world.send(*(add(f"a{n}", "alice", "team") for n in range(20)), *(add(f"b{n}", "bob", "team") for n in range(20)))
    outcomes = world.drain()
    assert (outcomes["suppressed"], outcomes["added"]) == (20, 20)
    world.check(*(f"b{n}" for n in range(20)))
    assert b"alice" not in world.log_values()
    # A document of this id may be about somebody else.
    world.send(add("a1", "bob"))
    world.drain()
    world.check("a1", *(f"b{n}" for n in range(20)))


def test_an_id_and_a_subject_of_one_name_are_two(world):
    """To suppress a subject does not suppress the id that reads the same."""
    world.say(subjects=["same"])
    world.send(add("same"), add("other", "same"))
    world.drain()
    world.check("same")


def test_a_suppressed_change_removes_what_its_id_held(world):
    """As every refused change: compaction would keep nothing else of the id."""
    world.send(add("a"), add("b"))
    world.drain()
    world.say("a")
    world.drain()
    assert world.live() == {"a", "b"}
    world.send(add("a", word="z"))
    outcomes = world.drain()
    assert outcomes["deleted_by_refusal"] == 1
    world.check("b")


def test_offsets_order_suppressions_against_adds(world):
    """In one flush: what came before is counted, what came between is refused, what came behind is counted."""
    world.send(add("a"), add("b"))
    world.say("b")
    world.send(add("b", word="z"), add("c"))
    world.lift("b")
    world.send(add("d"))
    world.drain()
    world.check("a", "c", "d")
    world.say("b", "d")
    world.send(add("b"))
    world.lift("b", "d")
    world.send(add("b", word="last"))
    world.drain()
    world.check("a", "b", "c", "d")


def test_the_tombstone_of_a_suppressed_add_is_no_deletion(world):
    """It makes no receipt and uses no capacity; a delete that somebody asked for keeps its receipt."""
    world.say("a")
    world.send(add("a"), add("b"))
    outcomes = world.drain()
    assert (outcomes["unchanged"], outcomes["not_found"], outcomes["deleted"]) == (1, 0, 0)
    assert not world.forgets()
    world.send(encode_delete("a", "r-1"))
    world.drain()
    assert [(forget.kind, forget.request) for forget in world.forgets()] == [(ForgetKind.NOT_FOUND, "r-1")]


def test_nobody_can_hide_a_delete_behind_the_service_s_header(world):
    """A tombstone with the header deletes a document that is there, with its receipt."""
    world.send(add("a"))
    world.drain()
    world.send(Message(b"a", None, (("st-suppressed", b"1"), ("request", b"r-1"))))
    world.drain()
    assert [(forget.kind, forget.request) for forget in world.forgets()] == [(ForgetKind.DELETED, "r-1")]
    assert not world.live()


def test_a_damaged_add_of_a_suppressed_id_leaves_the_log_too(world):
    """Suppression comes before all other reasons, or the text would stay as that of any refused record."""
    world.say("a")
    world.send(Message(b"a", msgpack.packb({"op": "add", "text": "secretword", "labels": 7})))
    assert world.drain()["suppressed"] == 1
    world.log.compact(world.topics.documents)
    assert b"secretword" not in world.log_values()


def test_a_suppressed_add_in_a_wrong_partition_leaves_the_log_there(world):
    """It is refused, deletes what its id held at home, and its text goes where it stands."""
    world.send(add("a"))
    world.drain()
    world.say("a")
    home = partition_of(b"a", 2)
    world.send(replace(add("a", word="secretword"), partition=1 - home))
    assert world.drain()["suppressed"] == 1
    assert not world.live()
    world.log.compact(world.topics.documents)
    assert b"secretword" not in world.log_values()
    world.lift("a")
    world.send(add("a"))
    world.drain()
    world.check("a")


@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("written", [False, True])
def test_a_process_that_is_killed_between_commit_and_tombstone_leaves_no_text(world, at, written):
    """The note of the tombstone is part of the commit: the next process sends it, whatever the log has already."""
    world.say(subjects=["alice"])
    world.send(*(add(f"a{n}", "alice", word="secretword") for n in range(10)), add("c"))
    with killed_beside(world.log, world.topics.documents, at, written=written):
        world.drain()
    world.open()
    world.drain()
    world.check("c")
    assert b"secretword" not in world.log_values()


def test_a_rebuild_that_follows_the_kill_erases_the_text_too(world):
    """The note outlives a rebuild; where Redis is lost as well, the add is refused anew and noted again."""
    for lost in (False, True):
        world.say("a")
        world.send(add("a", word="secretword"))
        world.step()
        world.rebuild(lost=lost)
        world.log.compact(world.topics.documents)
        assert b"secretword" not in world.log_values()
        assert not world.live()


def test_an_add_behind_the_lift_survives_the_late_tombstone(world):
    """Suppress, add, lift and add again before anything is counted: the tombstone of the first add is not sent."""
    world.say("a")
    world.send(add("a", word="first"))
    world.step()
    world.lift("a")
    world.send(add("a", word="second"))
    world.drain()
    world.check("a")
    assert b"first" not in world.log_values()


def test_compaction_between_suppress_and_lift_changes_nothing(world):
    """At each step of a history, log and state agree, and the log keeps one record of each suppression."""
    world.send(add("a", "alice"), add("b"))
    world.drain()
    for _ in range(3):
        world.say("a", subjects=["alice"])
        world.send(encode_delete("a", "r"))
        world.drain()
        world.check("b")
        world.send(add("a", "alice"), add("c", "alice"))
        world.drain()
        world.check("b")
        world.lift("a", subjects=["alice"])
        world.drain()
        world.check("b")
        world.send(add("a", "alice"))
        world.drain()
        world.check("a", "b")
    kept = Counter(record.key for record in world.records() if record.key.startswith(SUPPRESSION_KEY))
    assert set(kept.values()) == {world.partitions}


def test_a_forged_suppression_changes_nothing(world):
    """Without the operator's key nobody suppresses, whatever key, code, time or format the record has."""
    good = Suppression(world.key.of_document(b"a"), suppressed=True, made_ms=NOW_MS)
    fields = msgpack.unpackb(world.key.value(good))
    other = SuppressionKey(b"another secret of thirty-two bytes", world.topics.model)
    elsewhere = SuppressionKey(SECRET, "another-model")
    values = [
        other.value(good),
        elsewhere.value(good),
        msgpack.packb(fields | {"mac": b"\0" * 32}),
        msgpack.packb(fields | {"made": NOW_MS + 1}),
        msgpack.packb(fields | {"op": "lift"}),
        msgpack.packb(fields | {"op": []}),
        msgpack.packb(fields | {"format": 2}),
        msgpack.packb(fields | {"mac": "text"}),
        world.key.value(replace(good, made_ms=NOW_MS + 2 * 86_400_000)),
        b"garbage",
        b"",
        None,
        encode_add("x", text="some text").value,
    ]
    keys = [good.key, good.key.upper(), SUPPRESSION_KEY, SUPPRESSION_KEY + b"zz", good.key + b"00"]
    records = [Message(good.key, value, partition=p) for value in values for p in range(2)]
    records += [Message(key, world.key.value(good), partition=0) for key in keys[1:]]
    # The upper case of the prefix as well is an id like any other.
    world.send(*(record for record in records if record.key.startswith(SUPPRESSION_KEY)), add("a"))
    outcomes = world.drain()
    assert outcomes["suppression"] == 2 * len(values) + 3
    assert world.kept() == ([{}, {}], [0, 0])
    world.check("a")


def test_who_writes_over_a_suppression_lifts_nothing(world):
    """A tombstone, garbage or an older record under its key is refused, and the right record written behind it."""
    (first, *_) = world.say("a")
    lifted, *_ = world.lift("a")
    world.say("a")
    world.drain()
    before = world.kept()
    for value in (None, b"", b"garbage", first.value, lifted.value, encode_add("x", text="text").value):
        world.send(*(Message(first.key, value, partition=p) for p in range(2)))
        assert world.drain()["suppression"] == 2
        assert world.kept() == before
        world.send(add("a"))
        assert world.drain()["suppressed"] == 1
        world.check()
    assert all(reason in {"suppression", "suppressed"} for _, reason in world.pointers())


def test_who_writes_over_a_lift_suppresses_nothing(world):
    """A record from before the lift, sent again, does not suppress: nor after compaction and a rebuild."""
    (first, *_) = world.say("a")
    world.lift("a")
    world.drain()
    world.send(*(Message(first.key, first.value, partition=p) for p in range(2)), add("a"))
    assert world.drain()["suppression"] == 2
    world.check("a")


def test_a_process_that_is_killed_before_it_writes_a_suppression_again(world):
    """The note of it is part of the commit that refuses what took its place."""
    (first, *_) = world.say("a")
    world.drain()
    world.send(*(Message(first.key, None, partition=p) for p in range(2)))
    world.step()
    world.open()
    world.drain()
    world.send(add("a"))
    world.drain()
    world.check()


def test_the_same_record_again_changes_nothing(world):
    """A client that repeats its records after an error, and a replayed topic, do no harm."""
    records = world.say("a", subjects=["alice"])
    world.drain()
    before = world.kept()
    world.send(*records, *records)
    assert not world.drain()
    assert world.kept() == before


def test_of_one_millisecond_the_suppression_holds(world):
    """In whatever order both come: else state and log could differ after compaction."""
    digest = world.key.of_document(b"a")
    both = [Suppression(digest, suppressed, NOW_MS) for suppressed in (True, False)]
    for order in (both, both[::-1]):
        world.send(*encode_suppressions(order, world.key, 2))
        world.drain()
        assert world.kept()[1] == [1, 1]
        world.send(add("a"))
        world.drain()
        world.check()


def test_a_deletion_of_a_suppressed_id_is_never_refused(world):
    """Somebody may still want a receipt that nothing is there."""
    world.send(add("a"))
    world.say("a")
    world.send(encode_delete("a", "r-1"))
    assert world.drain()["deleted"] == 1


def test_a_state_with_suppressions_needs_their_key(world):
    """Without it, or with another one, ingest and a recount refuse to begin, and name the remedy."""
    other = SuppressionKey(b"another secret of thirty-two bytes", world.topics.model)
    for key in (None, other):
        world.dialect = Dialect(InputMapping(), suppression=key)
        with pytest.raises(SettingsError, match="suppression_key"):
            world.open()
        with pytest.raises(SettingsError, match="suppression_key"):
            world.recounted()


def test_without_suppressions_their_keys_are_ids(connection, tmp_path):
    """A model without the key takes documents under such ids, as it always did."""
    world = World(connection, FileLog(tmp_path, clock=lambda: NOW))
    model = ModelSettings(2, 256)
    plain = TopicNames(new_model())
    for topic, partitions in ((plain.documents, 2), (plain.rejected, 1)):
        world.log.create(topic, partitions)
    name = SUPPRESSION_KEY + b"1"
    message = replace(add("x"), key=name, partition=partition_of(name, 2))
    world.log.append_many(plain.documents, [message])
    ingests = [Ingest.open(connection, world.log, plain, p, settings=model, clock=lambda: NOW) for p in range(2)]
    outcomes = Counter()
    for ingest in ingests:
        for progress in ingest.drain():
            outcomes.update(progress.outcomes)
    assert outcomes["added"] == 1


def test_an_empty_set_costs_no_digest(world, monkeypatch):
    """Neither digests nor Redis's hash are asked for as long as nothing is suppressed, nor after the last is lifted."""

    def never(*_):
        raise AssertionError("computed for nobody")

    world.say("a")
    world.lift("a")
    world.drain()
    monkeypatch.setattr(find_suppressions, "_people", never)
    monkeypatch.setattr(type(world.ingests[0].state), "suppressions", never)
    world.send(*(add(f"d{n}", "alice") for n in range(50)))
    assert world.drain()["added"] == 50


def test_redis_and_the_log_do_not_say_who_is_suppressed(world):
    """Neither ids nor subjects stand there, nor digests that somebody without the key can compute."""
    world.send(add("a-in-plain", "alice-in-plain"))
    world.drain()
    world.say("a-in-plain", subjects=["alice-in-plain"])
    world.send(encode_delete("a-in-plain", "r-1"))
    world.drain()
    world.log.compact(world.topics.documents)
    dumps = [world.connection.call("DUMP", ingest.state.keys.suppressed) for ingest in world.ingests]
    assert all(dumps)
    assert not any(b"in-plain" in dump for dump in dumps)
    assert b"in-plain" not in world.log_values()
    others = [SuppressionKey(SECRET, "another"), SuppressionKey(b"x" * 32, world.topics.model)]
    for one in others:
        assert one.of_document(b"a-in-plain") not in world.kept()[0][0]


def test_ten_thousand_suppressed_adds(world):
    """They are refused in the same flushes as others, and each has one tombstone."""
    world.say(subjects=["alice"])
    world.send(*(add(f"a{n}", "alice") for n in range(10_000)), add("kept", "bob"))
    assert world.drain()["suppressed"] == 10_000
    tombstones = Counter(record.key for record in world.records() if record.value is None)
    assert (len(tombstones), set(tombstones.values())) == (10_000, {1})
    assert world.live() == {"kept"}


def test_a_person_stays_forgotten_on_a_real_broker(connection, kafka_server):
    """Over Kafka, with producer, operator, a restart in the middle, and a log that the broker compacts."""
    with open_log(kafka_server.servers)[0] as log:
        world = World(connection, log)
        # As `init` sets it, but without waiting for hours: segments of a second, and compaction as often as it can.
        log.configure(
            world.topics.documents,
            {
                "cleanup.policy": "compact",
                "segment.ms": "1000",
                "min.cleanable.dirty.ratio": "0.0",
                "max.compaction.lag.ms": "1000",
                "delete.retention.ms": "86400000",
            },
        )
        with (
            DocumentProducer(log, model=world.topics.model) as producer,
            Suppressor(log, model=world.topics.model, key=SECRET) as operator,
        ):
            for number in range(30):
                producer.add(f"d{number}", text=f"some words {number % 7}", subjects=[f"s{number % 3}"])
            world.drain()
            assert operator.suppress(subjects=["s1"]) == 1
            producer.delete_subject("s1")
            for number in range(1, 30, 3):
                producer.add(f"d{number}", text="secretword again", subjects=["s1"])
            world.step()
            world.open()
            world.drain()
            expected = {f"d{number}" for number in range(30) if number % 3 != 1}
            assert world.live() == expected
            assert operator.lift(subjects=["s1"]) == 1
            assert operator.suppress(["d0"]) == 1
            producer.add("d1", text="welcome back", subjects=["s1"])
            producer.add("d0", text="secretword of another")
            world.drain()
            expected = expected - {"d0"} | {"d1"}
            assert world.live() == expected
            before = world.kept()
            compacted(world, producer)
            world.rebuild(lost=True)
            assert world.live() == expected | {"filler"}
            assert world.kept() == before
            assert world.counted() == world.recounted()


def compacted(world, producer):
    """Wait until the broker has erased the text of what was suppressed."""

    def erased():
        # A segment is closed by the next record only.
        for partition in range(2):
            world.log.append(world.topics.documents, b"st:heartbeat", b"\x81\xa2op\xa9heartbeat", partition=partition)
        return b"secretword" not in world.log_values()

    until(erased, "compaction by the broker", 1.1)
    producer.add("filler", text="one more of them")
