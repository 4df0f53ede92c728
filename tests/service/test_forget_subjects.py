"""Forgetting a subject in ingest: every document of it goes, whatever is killed, repeated or sent meanwhile."""

import json
from collections import Counter

import msgpack
import pytest
from ingest_world import NOW, IngestWorld

from crashes import killed_beside
from streamtopic.client import DocumentProducer
from streamtopic.documents.dialects import Dialect, InputMapping
from streamtopic.documents.events import (
    LIMITS,
    encode_add,
    encode_delete,
    encode_delete_subject,
    encode_subject_forgotten,
)
from streamtopic.documents.subjects import SUBJECT_KEY, subject_digest
from streamtopic.service.ingest import forget_subjects
from streamtopic.service.ingest.rejections import retry
from streamtopic.state import ForgetKind
from streamtopic.state.meta import begin_epoch
from streamtopic.state.redis_keys import BUCKETS
from streamtopic.state.removal import remove_partition
from streamtopic.streams import FileLog, Message, open_log

SALT = b"0123456789abcdef"


class World(IngestWorld):
    """Ingests that carry out requests to forget a subject."""

    def ask(self, subject="alice", request="r-1"):
        """Ask to forget a subject; return the key of the request."""
        records = encode_delete_subject(subject, request, SALT, self.partitions)
        self.send(*records)
        return records[0].key

    def drain(self):
        """Count and carry out all that there is; outcomes."""
        outcomes = Counter()
        for progress in self.work():
            outcomes.update(progress.outcomes)
        return outcomes

    def index(self, subject):
        """Ids of the documents of a subject, as the index has them."""
        found = set()
        for ingest in self.ingests:
            digest = subject_digest(subject, ingest.state.secret)
            found.update(ingest.state.subject_documents(digest, 100_000))
        return {name.decode() for name in found}

    def indexes(self):
        """The whole index of every partition."""
        found = []
        for ingest in self.ingests:
            keys = [ingest.state.keys.subjects(bucket) for bucket in range(BUCKETS)]
            found.append([self.connection.call("ZRANGE", key, 0, -1) for key in keys])
        return found

    def requests(self):
        """Requests by partition."""
        return [list(ingest.state.subject_requests().values()) for ingest in self.ingests]

    def digests(self):
        """Digest of the counts in Redis, and of a recount of what compaction leaves of the log."""
        counted = self.counted()
        self.log.compact(self.topics.documents)
        return counted, self.recounted()


@pytest.fixture
def world(connection, tmp_path):
    """A model of two partitions, with a log in files."""
    return World(connection, FileLog(tmp_path, clock=lambda: NOW))


def add(name, *subjects, word="x"):
    """An add of a document with two words."""
    return encode_add(name, counts={word: 2, "y": 1}, subjects=subjects)


def test_the_index_follows_adds_replacements_and_deletions(world):
    """A document stands in the index under its present subjects, each exactly once, and nowhere without any."""
    world.send(add("a", "alice"), add("b", "alice", "bob"), add("c"), add("d", "bob"))
    world.drain()
    assert (world.index("alice"), world.index("bob")) == ({"a", "b"}, {"b", "d"})
    world.send(add("a", "carol", word="z"), encode_delete("d", "r"), add("c", "alice"), Message(b"b", b"damaged"))
    world.drain()
    assert (world.index("alice"), world.index("bob"), world.index("carol")) == ({"c"}, set(), {"a"})
    assert not world.index("alic")


def test_the_state_holds_no_subject(world):
    """Redis has digests under a secret of the partition, which no other partition shares."""
    world.send(add("a", "alice-in-plain"), add("b", "alice-in-plain"))
    world.ask("alice-in-plain")
    for ingest in world.ingests:
        ingest.step()
    pattern = f"{{st:{world.topics.model}:*"
    dumps = [world.connection.call("DUMP", key) for key in world.connection.call("KEYS", pattern)]
    assert dumps
    assert not any(b"alice" in dump for dump in dumps)
    assert world.ingests[0].state.secret != world.ingests[1].state.secret


def test_all_documents_of_a_subject_go_and_no_other(world):
    """In every partition, as ordinary deletions under one request; the log loses documents, subject and request."""
    world.send(*(add(f"a{n}", "alice", "team") for n in range(40)), *(add(f"b{n}", "bob", "team") for n in range(40)))
    world.drain()
    world.ask()
    outcomes = world.drain()
    assert outcomes["deleted"] == 40
    assert world.live() == {f"b{n}" for n in range(40)}
    forgets = world.forgets()
    assert {(f.kind, f.request, f.salt) for f in forgets} == {(ForgetKind.DELETED, "r-1", SALT)}
    assert len(forgets) == 40
    assert [[request.done for request in requests] for requests in world.requests()] == [[True], [True]]
    counted, recounted = world.digests()
    assert counted == recounted
    assert b"alice" not in world.log_values()
    assert world.index("team") == world.live()


def test_the_same_content_about_another_person_is_no_deletion(world):
    """Naming the subjects of documents that are there costs no capacity and makes no receipt."""
    world.send(*(add(f"d{n}") for n in range(10)))
    world.drain()
    before = world.digests()
    metas = [dict(ingest.state.meta.counted) for ingest in world.ingests]
    world.send(*(add(f"d{n}", "alice") for n in range(10)), add("d3", "bob"))
    assert world.drain() == {"unchanged": 11}
    assert world.index("alice") == {f"d{n}" for n in range(10)} - {"d3"}
    assert not world.forgets()
    assert [dict(ingest.state.meta.counted) for ingest in world.ingests] == metas
    assert world.digests() == before
    world.ask()
    world.drain()
    assert world.live() == {"d3"}


def test_what_comes_while_the_request_runs_goes_too(world):
    """An add behind the request, and one that overtakes its tombstones, are deleted before the request is done."""
    world.send(*(add(f"d{n}", "alice") for n in range(5)))
    world.drain()
    world.ask()
    for ingest in world.ingests:
        ingest.step()
        ingest.forward()
    world.send(add("late", "alice"), add("d0", "alice", word="again"))
    world.drain()
    assert not world.live()
    world.send(add("d0", "alice"))
    world.drain()
    assert world.live() == {"d0"}


def test_an_add_before_the_end_of_the_request_goes_even_if_it_was_counted_with_it(world):
    """The end of a request is in the log when the add is not counted yet; the request goes on until it is gone."""
    world.send(add("first", "alice"))
    key = world.ask()
    for ingest in world.ingests:
        ingest.step()
    world.send(add("second", "alice"), encode_subject_forgotten(key, 0), encode_subject_forgotten(key, 1))
    world.drain()
    assert not world.live()
    assert all(request.done for requests in world.requests() for request in requests)


def test_another_owner_s_document_is_not_deleted_by_a_late_tombstone(world):
    """A record that is not counted yet may have given the id to another person: the id is left for later."""
    world.send(add("shared", "alice"), add("own", "alice"))
    world.drain()
    world.ask()
    for ingest in world.ingests:
        ingest.step()
    world.send(add("shared", "bob", word="new"))
    for ingest in world.ingests:
        ingest.forward()
    world.drain()
    assert world.live() == {"shared"}


def test_a_document_of_two_people_who_are_forgotten_at_once_is_deleted_once(world):
    """One tombstone and one receipt; both requests end, and documents of either are gone."""
    world.send(*(add(f"both{n}", "alice", "bob") for n in range(9)), add("a", "alice"), add("b", "bob"), add("c"))
    world.drain()
    world.ask("alice", "r-1")
    world.ask("bob", "r-2")
    assert world.drain()["deleted"] == 11
    assert world.live() == {"c"}
    assert len(world.forgets()) == 11
    assert all(forget.found for forget in world.forgets())
    assert [[one.done for one in requests] for requests in world.requests()] == [[True, True], [True, True]]


def test_a_retry_of_refused_records_brings_no_forgotten_person_back(connection, tmp_path):
    """No document of the person was there when the request came, and its record is newer than the refused one."""
    first = InputMapping(format="json", text=("missing",), subject="who")
    rules = {"dialect": Dialect(first), "limits": LIMITS + first.rules}
    world = World(connection, FileLog(tmp_path, clock=lambda: NOW), 1, **rules)
    people = {"a": "alice", "b": "bob"}
    world.send(*(Message(k.encode(), json.dumps({"text": "x y", "who": who}).encode()) for k, who in people.items()))
    world.ask()
    assert world.drain()["rejected"] == 2
    corrected = Dialect(InputMapping(format="json", text=("text",), subject="who"))
    outcomes = retry(world.log, world.topics, dialect=corrected)
    assert (outcomes["retried"], outcomes["superseded"]) == (1, 1)
    assert world.records()[-1].key == b"b"


def test_a_forged_end_of_a_request_stops_nothing(world):
    """Whoever writes a tombstone under the request's key only makes the log forget the subject earlier."""
    world.send(*(add(f"d{n}", "alice") for n in range(5)))
    key = world.ask()
    world.send(*(encode_subject_forgotten(key, partition) for partition in range(2)))
    world.send(encode_subject_forgotten(SUBJECT_KEY + b"nobody's", 0), Message(SUBJECT_KEY, None, partition=1))
    world.drain()
    assert not world.live()


def test_requests_for_two_subjects_under_one_key_are_both_carried_out(world):
    """Whoever takes the key of a request for another one neither stops it nor is ignored."""
    world.send(*(add(f"a{n}", "alice") for n in range(5)), *(add(f"b{n}", "bob") for n in range(5)), add("c", "carol"))
    world.drain()
    key = world.ask()
    value = msgpack.packb({"op": "delete_subject", "subject": "bob", "request": "r-2"})
    world.send(*(Message(key, value, partition=partition) for partition in range(2)))
    world.drain()
    assert world.live() == {"c"}
    assert {forget.request for forget in world.forgets()} == {"r-1", "r-2"}
    assert [len(requests) for requests in world.requests()] == [2, 2]
    world.ask()
    world.send(add("again", "alice"))
    world.drain()
    assert world.live() == {"c"}


def test_a_request_that_cannot_be_read_is_pointed_at(world):
    """It goes to the rejected topic, deletes nothing, and is sent to no other partition."""
    world.send(add("a", "alice"))
    bad = msgpack.packb({"op": "delete_subject", "subject": 7})
    world.send(*(Message(SUBJECT_KEY + b"x", bad, partition=partition) for partition in range(2)))
    world.send(*(Message(SUBJECT_KEY + b"y", encode_add("a", text="a").value, partition=p) for p in range(2)))
    assert world.drain() == {"added": 1, "rejected": 4}
    reasons = [msgpack.unpackb(r.value)["reason"] for r in world.log.read(world.topics.rejected, 0, 0)]
    assert Counter(reasons) == {"subject": 2, "key-reserved": 2}
    assert world.live() == {"a"}


@pytest.mark.parametrize("moment", ["at once", "during", "after"])
def test_a_request_that_is_sent_again_keeps_its_first_deletions(world, moment):
    """Whenever a client repeats its request, all deletions since the first time lie in the range of the request."""
    world.send(*(add(f"d{n}", "alice") for n in range(8)))
    world.drain()
    first = [ingest.state.meta.next_offset for ingest in world.ingests]
    world.ask()
    if moment == "during":
        for ingest in world.ingests:
            ingest.step()
            ingest.forward()
    if moment == "after":
        world.drain()
    world.ask()
    world.send(add("again", "alice"))
    world.drain()
    assert not world.live()
    for offset, (request,) in zip(first, world.requests(), strict=True):
        assert request.done
        assert request.offset == offset
    assert len([forget for forget in world.forgets() if forget.document_offset >= 0]) == 9


def test_a_subject_of_nobody_is_done_at_once(world):
    """Without a document there is nothing to delete; the log still forgets the subject."""
    world.send(add("a", "bob"))
    world.ask("mallory-of-nowhere")
    world.drain()
    world.digests()
    assert b"mallory" not in world.log_values()
    assert world.live() == {"a"}


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("written", [False, True])
def test_a_process_that_is_killed_at_any_append_leaves_nothing_half_done(world, monkeypatch, at, written):
    """The next process goes on where the log and Redis stand: nothing is left, and no document is deleted twice."""
    monkeypatch.setattr(forget_subjects, "_AT_ONCE", 4)
    world.send(*(add(f"a{n}", "alice") for n in range(14)), *(add(f"b{n}", "bob") for n in range(3)))
    world.drain()
    world.ask()
    with killed_beside(world.log, world.topics.documents, at, written=written):
        world.drain()
    world.open()
    world.drain()
    assert world.live() == {"b0", "b1", "b2"}
    assert sorted(forget.document for forget in world.forgets()) == sorted(b"a%d" % n for n in range(14))
    assert all(forget.found for forget in world.forgets())
    counted, recounted = world.digests()
    assert counted == recounted


def test_a_request_is_carried_out_where_a_retrain_began_meanwhile(world):
    """The scheduler writes to the state of each partition, and no new record may come that has it read again."""
    world.send(*(add(f"a{n}", "alice") for n in range(9)), add("b", "bob"))
    world.drain()
    world.ask()
    for partition, ingest in enumerate(world.ingests):
        ingest.step()
        begin_epoch(world.connection, world.topics.model, partition, epoch=1, leader=1)
    world.drain()
    assert world.live() == {"b"}


def test_a_process_that_lost_the_partition_writes_no_tombstone(world):
    """A writer that another one has fenced out leaves the request to it."""
    world.send(*(add(f"d{n}", "alice") for n in range(5)))
    world.drain()
    world.ask()
    old = world.ingests
    for ingest in old:
        ingest.step()
    world.open()
    ends = [world.log.end(world.topics.documents, p) for p in range(2)]
    assert [ingest.forward() for ingest in old] == [0, 0]
    assert [world.log.end(world.topics.documents, p) for p in range(2)] == ends
    world.drain()
    assert not world.live()


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_rebuild_gives_the_same_index_and_finishes_the_request(world, moment, compacted):
    """Counted again from the log, the index has the same bytes, and an open request is still carried out."""
    world.send(*(add(f"a{n}", "alice", "team") for n in range(20)), *(add(f"b{n}", "bob", "team") for n in range(20)))
    world.drain()
    if moment != "before":
        world.ask()
        for ingest in world.ingests:
            ingest.step()
            ingest.forward()
    if moment == "after":
        world.drain()
    if moment != "during":
        before = world.indexes()
    if compacted:
        world.log.compact(world.topics.documents)
    for partition in range(2):
        remove_partition(world.connection, world.topics.model, partition)
    assert not world.connection.call("KEYS", f"{{st:{world.topics.model}:*:subjects:*")
    world.open()
    world.drain()
    if moment != "during":
        assert world.indexes() == before
    expected = {f"b{n}" for n in range(20)} | ({f"a{n}" for n in range(20)} if moment == "before" else set())
    assert world.live() == world.index("team") == expected
    assert all(request.done for requests in world.requests() for request in requests)


@pytest.mark.parametrize("partition_end", ["drained", "counted at once"])
def test_a_recount_leaves_what_was_added_behind_the_end_of_a_request(world, partition_end):
    """A person who came back stays, also where the whole log, their old request included, is counted again."""
    world.send(*(add(f"a{n}", "alice") for n in range(4)))
    world.drain()
    world.ask()
    world.drain()
    world.send(add("a0", "alice", word="again"), add("new", "alice"))
    if partition_end == "drained":
        world.drain()
    for partition in range(2):
        remove_partition(world.connection, world.topics.model, partition)
    world.open()
    world.drain()
    assert world.live() == world.index("alice") == {"a0", "new"}
    assert all(request.done for requests in world.requests() for request in requests)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_recount_leaves_a_document_that_named_the_person_behind_the_request(world, compacted):
    """The same content again with a subject keeps the place of its first add, and yet came behind the request."""
    world.send(add("kept"), add("gone", "alice"))
    world.drain()
    world.ask()
    world.drain()
    world.send(add("kept", "alice"))
    world.drain()
    if compacted:
        world.log.compact(world.topics.documents)
    for partition in range(2):
        remove_partition(world.connection, world.topics.model, partition)
    world.open()
    world.drain()
    assert world.live() == world.index("alice") == {"kept"}
    assert all(request.done for requests in world.requests() for request in requests)


def test_ten_thousand_documents_of_one_person(world):
    """They go in bounded steps, together with those that come meanwhile, and each of them once."""
    world.send(*(add(f"a{n}", "alice") for n in range(10_000)), add("kept", "bob"))
    world.drain()
    world.ask()
    steps = 0
    while any(ingest.lag for ingest in world.ingests):
        for ingest in world.ingests:
            ingest.step()
            assert ingest.forward() <= 1_000
        if steps < 5:
            world.send(add(f"late{steps}", "alice"))
        steps += 1
    assert steps > 5
    assert world.live() == {"kept"}
    gone = Counter(forget.document for forget in world.forgets())
    assert (len(gone), set(gone.values())) == (10_005, {1})


def test_a_person_is_forgotten_on_a_real_broker(connection, kafka_server):
    """The same over Kafka, with a producer, a restart in the middle, and adds that come meanwhile."""
    with open_log(kafka_server.servers)[0] as log:
        world = World(connection, log)
        with DocumentProducer(log, model=world.topics.model) as producer:
            for number in range(60):
                producer.add(f"d{number}", text=f"some words {number % 7}", subjects=[f"s{number % 3}"])
            world.drain()
            request = producer.delete_subject("s1")
            producer.add("late", text="one more of them", subjects=["s1", "s2"])
            for ingest in world.ingests:
                ingest.step()
                ingest.forward()
            world.open()
        world.drain()
        assert world.live() == {f"d{number}" for number in range(60) if number % 3 != 1}
        forgets = world.forgets()
        assert len(forgets) == 21
        assert {(forget.request, forget.salt) for forget in forgets} == {(str(request), request.salt.encode())}
        assert all(done.done for requests in world.requests() for done in requests)
        for partition in range(2):
            *_, last = log.read(world.topics.documents, partition, 0, 1_000)
            assert (last.key[:11], last.value) == (SUBJECT_KEY, None)


def test_many_requests_at_once(world):
    """Hundreds of subjects are carried out side by side, and the same request twice is one."""
    world.send(*(add(f"d{n}", f"s{n % 300}") for n in range(900)), add("kept", "s-other"))
    for number in range(300):
        world.ask(f"s{number}", f"r-{number}")
    world.ask("s7", "r-7")
    world.drain()
    assert world.live() == {"kept"}
    by_request = Counter(forget.request for forget in world.forgets())
    assert by_request == {f"r-{number}": 3 for number in range(300)}
