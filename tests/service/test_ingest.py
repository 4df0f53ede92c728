"""Ingest over a real Redis and a real log: outcomes, exactness, crashes, refusals."""

import uuid
from collections import Counter
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import strategies as st

from streamtopic.counts import DocumentBatch, Passage, Weighting, count
from streamtopic.documents.deletion_record import decode_request
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.errors import ComponentUnreachable, StateMismatch
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.resolve import OUTCOMES
from streamtopic.state import ForgetKind, ModelSettings, ModelState, Reader, partition_writer
from streamtopic.state.redis_keys import BUCKETS
from streamtopic.streams import FileLog, Message, TopicNames, partition_of

NOW = 1_700_000_000.0


class World:
    """One model: its log, its topics, and an ingest for each partition."""

    def __init__(self, connection, folder, partitions=1, cap=256, model=None):
        self.connection = connection
        self.topics = TopicNames(model or f"i{uuid.uuid4().hex}")
        self.log = FileLog(folder / self.topics.model, clock=lambda: NOW)
        self.settings = ModelSettings(partitions, cap)
        self.clock = lambda: NOW + 1
        self.log.create(self.topics.documents, partitions)
        self.log.create(self.topics.rejected, 1)
        self.log.create(self.topics.requests, 1)
        self.ingests = [self.ingest(partition) for partition in range(partitions)]

    def ingest(self, partition=0):
        return Ingest.open(
            self.connection,
            self.log,
            self.topics,
            partition,
            settings=self.settings,
            clock=self.clock,
        )

    def send(self, *messages):
        self.log.append_many(self.topics.documents, messages)

    def drain(self):
        outcomes = Counter()
        for ingest in self.ingests:
            for progress in ingest.drain():
                outcomes.update(progress.outcomes)
        return dict(outcomes)

    def counts(self):
        return Reader(self.connection, self.topics.model, self.settings.partitions).counts()

    def digest(self):
        counts = self.counts()
        return counts.restrict(np.arange(len(counts.words))).digest(counts.words)


@pytest.fixture
def world(connection, tmp_path):
    """A model with one partition."""
    return World(connection, tmp_path)


def recount(documents, cap=256):
    """Digest of the counts of these documents (lists of (L, counts)), by the counting kernel alone."""
    words = sorted({word for passages in documents for _, counts in passages for word in counts})
    ids = {word: k for k, word in enumerate(words)}
    parts = []
    for passages in documents:
        rows = []
        for length, counts in passages:
            pairs = sorted((ids[w], n) for w, n in counts.items())
            rows.append(
                Passage(length, np.array([i for i, _ in pairs], np.int32), np.array([n for _, n in pairs], np.int32))
            )
        parts.append(rows)
    return count(DocumentBatch.build(parts), len(words), Weighting(cap)).digest(words)


def add(document, words, **more):
    """Return the record of a document with these counts."""
    return encode_add(document, counts=words, **more)


def test_every_outcome_is_counted_and_kept(world):
    """Each kind of event has its own counter, in the answer and durably in Redis."""
    world.send(
        add("a", {"x": 2, "y": 1}),
        add("a", {"x": 2, "y": 1}),
        add("a", {"x": 2, "z": 1}),
        add("b", {"x": 1}),
        add("c", {}),
        encode_delete("a", "r1"),
        encode_delete("unknown", "r2"),
        Message(b"b", b"not an event"),
        Message(None, None),
        encode_heartbeat(0),
    )
    expected = {
        "added": 3, "unchanged": 1, "replaced": 1, "too_short": 2, "deleted": 1, "not_found": 1, "rejected": 2,
        "deleted_by_refusal": 1,
    }  # fmt: skip
    assert world.drain() == expected
    assert dict(world.ingests[0].state.meta.totals) == expected
    assert set(expected) < set(OUTCOMES)
    assert world.counts().documents == 1
    assert world.digest() == recount([[]])


def test_the_time_that_was_reached_is_kept_but_never_one_to_come(world):
    """The newest record's time is known even of a flush of rejected records; a clock that is ahead is cut to ours."""
    world.send(Message(b"bad", b"{"))
    world.drain()
    assert world.ingests[0].state.meta.time_ms == int(NOW * 1000)
    world.log = FileLog(world.log._directory, clock=lambda: NOW + 3600)
    world.ingests = [world.ingest()]
    world.send(add("a", {"x": 1}))
    world.drain()
    assert world.ingests[0].state.meta.time_ms == int(NOW * 1000) + 1000


def test_a_rejected_record_is_pointed_at_without_its_text(world):
    """The rejected topic says where and why; what the record held stays in the log alone."""
    world.send(add("a", {"x": 1}), Message(b"bad", b'{"op": "add", "text": 7, "secret": "s3cret"}'))
    world.drain()
    (record,) = world.log.read(world.topics.rejected, 0, 0)
    value = msgpack.unpackb(record.value)
    assert (record.key, value["partition"], value["offset"]) == (b"bad", 0, 1)
    assert b"s3cret" not in record.value


def test_forgets_carry_what_a_receipt_needs(world):
    """Found, not found and replaced deletions each leave one entry, in the order of the log."""
    world.send(add("a", {"x": 2, "y": 1}), add("b", {"x": 2}))
    world.drain()
    world.send(encode_delete("a", "r1"), encode_delete("no", "r2"), add("b", {"q": 3}), encode_delete("b", "r3"))
    world.drain()
    forgets = Reader(world.connection, world.topics.model, 1).forgets(0)
    found = [(f.offset, f.document, f.kind, f.request, f.document_offset) for f in forgets.read()]
    assert found == [
        (2, b"a", ForgetKind.DELETED, "r1", 0),
        (3, b"no", ForgetKind.NOT_FOUND, "r2", -1),
        (4, b"b", ForgetKind.REPLACED, "", 1),
        (5, b"b", ForgetKind.DELETED, "r3", 4),
    ]
    first = forgets.read()[0]
    assert (first.received_ms, first.applied_ms) == (int(NOW * 1000), int(NOW * 1000) + 1000)
    forgets.drop(forgets.read()[:2])
    assert [f.offset for f in forgets.read()] == [4, 5]


def test_labels_are_part_of_a_document(world):
    """A changed label is a replacement, the same label is no change."""
    world.send(add("a", {"x": 2}, labels={"t": "c"}), add("a", {"x": 2}, labels={"t": "c"}))
    assert world.drain() == {"added": 1, "unchanged": 1}
    world.send(add("a", {"x": 2}, labels={"t": "c"}), add("a", {"x": 2}, labels={"t": "d"}))
    assert world.drain() == {"unchanged": 1, "replaced": 1}
    assert world.ingests[0].state.documents([b"a"])[b"a"].labels == {"t": "d"}


words = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=4)


def test_a_flush_is_bounded(world):
    """Redis is never asked to take more than a flush's worth at once: records by their bytes, words that are new."""
    world.send(*(add(f"d{k}", {f"w{j}": 1 for j in range(400)}) for k in range(2500)))
    sizes = [progress.records for progress in world.ingests[0].drain()]
    assert sum(sizes) == 2500
    assert len(sizes) > 1
    records = sum(world.connection.call("HLEN", world.ingests[0].state.keys.documents(b)) for b in range(BUCKETS))
    assert records == 2500
    world.send(*(add(f"n{k}", {f"n{k}-{j}": 1 for j in range(100)}) for k in range(100)))
    assert max(progress.records for progress in world.ingests[0].drain()) <= 4_000 // 101


def test_flushes_of_large_documents_are_of_one_size(world):
    """What is read at a time is what fits into a flush, so that no flush is a small rest of the one before."""
    world.send(*(add(f"d{k}", {f"w{j}": 1 for j in range(350)}) for k in range(9_000)))
    sizes = [progress.records for progress in world.ingests[0].drain()]
    assert sum(sizes) == 9_000
    assert min(sizes[2:-1]) > 0.9 * max(sizes)


def test_long_texts_are_counted_as_passages_and_forgotten_whole(world):
    """A text of several passages is one document: one delete takes all of it away."""
    world.send(encode_add("long", text="alpha beta gamma " * 6000), add("b", {"alpha": 2, "delta": 1}))
    world.drain()
    assert len(world.ingests[0].state.documents([b"long"])[b"long"].passages) > 1
    world.send(encode_delete("long", "r"))
    world.drain()
    assert world.digest() == recount([[(3, {"alpha": 2, "delta": 1})]])


def test_adds_of_foreign_keys_are_refused_and_their_deletes_become_requests(connection, tmp_path):
    """In the wrong partition an add is pointed at and stays where it is; a delete becomes a request."""
    world = World(connection, tmp_path, partitions=2)
    key = next(f"k{n}" for n in range(99) if partition_of(f"k{n}".encode(), 2) == 1)
    message = add(key, {"x": 2})
    world.send(replace(message, partition=0))
    assert world.drain() == {"rejected": 1, "misplaced": 1}
    (pointer,) = world.log.read(world.topics.rejected, 0, 0)
    assert msgpack.unpackb(pointer.value)["reason"] == "partition"
    assert world.log.end(world.topics.documents, 1) == 0
    world.send(message, replace(encode_delete(key, "r"), partition=0))
    assert world.drain() == {"forwarded": 1, "added": 1}
    (record,) = world.log.read(world.topics.requests, 0, 0)
    (asked,) = decode_request(record).misplaced
    assert (asked.document, asked.request, asked.asked) == (key, "r", True)
    assert (world.counts().documents, sum(ingest.lag for ingest in world.ingests)) == (1, 0)


def test_other_partition_counts_and_weightings_are_refused_with_the_remedy(world):
    """A changed setting would look for documents where they are not; the message says what to do."""
    ModelState.open(world.connection, world.topics.model, world.settings)
    for changed in (ModelSettings(2, 256), ModelSettings(1, 1)):
        with pytest.raises(StateMismatch, match="rebuild"):
            ModelState.open(world.connection, world.topics.model, changed)
    world.settings = ModelSettings(1, 1)
    with pytest.raises(StateMismatch, match="cap 256"):
        world.ingest()
    world.settings = ModelSettings(3, 256)
    with pytest.raises(StateMismatch, match="3"):
        world.ingest()


def test_a_log_that_is_behind_the_state_is_refused(world, tmp_path):
    """Another or restored log must not be counted on top of this state."""
    world.send(add("a", {"x": 2}))
    world.drain()
    world.log = FileLog(tmp_path / "other")
    world.log.create(world.topics.documents, 1)
    with pytest.raises(StateMismatch, match="ends at offset 0"):
        world.ingest()


class StampedLog(FileLog):
    """A log with a clock of its own, as Kafka's topics have."""

    def read(self, *args, **options):
        return [replace(record, stamped=True) for record in super().read(*args, **options)]


def test_the_clock_of_the_log_outranks_that_of_ingest(world):
    """A deletion came when the log says, though this machine is an hour behind: its age decides what waits for it."""
    world.log = StampedLog(world.log._directory, clock=lambda: NOW)
    world.clock = lambda: NOW - 3600
    world.ingests = [world.ingest()]
    world.send(add("a", {"x": 2}), add("b", {"x": 2}))
    assert world.drain() == {"added": 2}
    assert world.ingests[0].state.meta.time_ms == int(NOW * 1000)
    world.send(encode_delete("a", "request"))
    world.drain()
    (forget,) = Reader(world.connection, world.topics.model, 1).forgets(0).read(0)
    assert forget.received_ms == int(NOW * 1000)


def test_a_clock_that_was_ahead_makes_no_other_topic_of_it(world):
    """The first record is as new as if the topic had been made again, and its document was counted from it."""
    world.log = FileLog(world.log._directory, clock=lambda: NOW + 3600)
    world.ingests = [world.ingest()]
    world.send(add("a", {"x": 2}))
    world.drain()
    world.clock = lambda: NOW + 7200
    world.ingests = [world.ingest()]
    assert world.drain() == {}


@pytest.mark.parametrize("records", [1, 3])
def test_a_topic_that_was_made_again_is_refused(world, tmp_path, records):
    """However many records it holds by now: those up to the position would never be counted, and nobody would know."""
    world.send(add("a", {"x": 2}))
    world.drain()
    world.log = FileLog(tmp_path / "other", clock=lambda: NOW + 3600)
    world.log.create(world.topics.documents, 1)
    world.send(*(add(f"b{number}", {"x": 2}) for number in range(records)))
    world.clock = lambda: NOW + 3601
    with pytest.raises(StateMismatch, match=r"made again: .*`streamtopic rebuild`"):
        world.ingest()


def test_records_that_come_after_an_absence_are_counted(world, tmp_path):
    """The log is the same, whenever its next records come."""
    world.send(add("a", {"x": 2}))
    world.drain()
    world.log = FileLog(tmp_path / world.topics.model, clock=lambda: NOW + 3600)
    world.send(add("b", {"x": 2}))
    world.clock = lambda: NOW + 3601
    world.ingests = [world.ingest()]
    assert world.drain() == {"added": 1}


def test_summing_up_while_ingesting_keeps_the_changes_few(world, monkeypatch):
    """Many small flushes do not leave many changes: a reader that begins has few of them to read."""
    monkeypatch.setattr(partition_writer, "MOST_UNSUMMED", 2_000)
    for k in range(40):
        world.send(add(f"d{k}", {"x": 1, f"w{k}": 2}))
        world.drain()
    keys = world.ingests[0].state.keys
    assert sum(world.connection.call("HLEN", changes) for changes in keys.changes) <= 25
    assert world.digest() == recount([[(3, {"x": 1, f"w{k}": 2})] for k in range(40)])


def long_stream(world, documents=40):
    """Send documents, replacements and deletes that make several reads of ten records."""
    live = {}
    for k in range(documents):
        world.send(add(f"d{k % 30}", {"x": 1 + k % 3, f"w{k}": 2}))
        live[k % 30] = [(3 + k % 3, {"x": 1 + k % 3, f"w{k}": 2})]
        if k % 7 == 0:
            world.send(encode_delete(f"d{k % 30}", "r"))
            live.pop(k % 30)
    return live


@pytest.mark.parametrize("ahead", [True, False])
def test_reading_ahead_changes_nothing(connection, tmp_path, ahead):
    """With a second thread or without one, in steps of any size, the same records are counted once each."""
    world = World(connection, tmp_path)
    ingest = Ingest.open(
        connection, world.log, world.topics, 0, settings=world.settings, clock=lambda: NOW + 1, ahead=ahead
    )
    live, sizes = long_stream(world), []
    while records := ingest.step(max_records=10 if len(sizes) != 2 else 3).records:
        sizes.append(records)
    assert sum(sizes) == world.log.end(world.topics.documents, 0)
    assert max(sizes) <= 10
    assert world.digest() == recount(list(live.values()))


def test_a_log_that_fails_while_reading_ahead_fails_in_its_turn(world, monkeypatch):
    """What was read before is committed; the next step raises, and the one after that goes on."""
    live, read, calls = long_stream(world), world.log.read, []

    def fail_twice(*arguments):
        calls.append(arguments)
        if len(calls) in (2, 3):
            raise ComponentUnreachable("the log is away")
        return read(*arguments)

    monkeypatch.setattr(world.log, "read", fail_twice)
    ingest = world.ingests[0]
    assert ingest.step(max_records=10).records == 10
    assert ingest.state.meta.next_offset == 10
    with pytest.raises(ComponentUnreachable):
        ingest.step(max_records=10)
    world.drain()
    assert world.digest() == recount(list(live.values()))


def test_words_read_ahead_into_a_lexicon_that_was_replaced_are_read_again(connection, tmp_path, monkeypatch):
    """A new lexicon numbers words anew, so records decoded with the old one are decoded once more."""
    monkeypatch.setattr("streamtopic.state.partition_writer._SPARE_WORDS", -1000)
    world = World(connection, tmp_path)
    live, ingest, lexicons = long_stream(world), world.ingests[0], set()
    while ingest.step(max_records=10).records:
        lexicons.add(id(ingest.state.lexicon))
    assert len(lexicons) > 1
    assert world.digest() == recount(list(live.values()))
