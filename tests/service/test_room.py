"""The limit of a partition's words: who is refused, what that leaves behind, and that it is a function of the log."""

import itertools
import logging
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtopic.counts import DocumentBatch, Passage, Weighting, count
from streamtopic.events import encode_add, encode_delete
from streamtopic.service.ingest import Ingest
from streamtopic.service.rejections import rejections, retry
from streamtopic.service.room import NO_ROOM, WordLimits
from streamtopic.state import ForgetKind, ModelSettings, PartitionState, Reader, Stale
from streamtopic.state.measure import Growth
from streamtopic.streams import FileLog, TopicNames

_numbers = itertools.count()


class World:
    """A model of one partition that holds few words."""

    def __init__(self, connection, folder, limits, cap=256):
        self.connection, self.limits, self.cap = connection, limits, cap
        self.names = TopicNames(f"room{next(_numbers)}")
        self.log = FileLog(folder / self.names.model, clock=lambda: 1.0)
        self.log.create(self.names.documents, 1)
        self.log.create(self.names.rejected, 1)
        self.open()

    def open(self, limits=None):
        """Take the partition over, as another process would."""
        fixed = ModelSettings(1, self.cap)
        self.limits = limits or self.limits
        self.ingest = Ingest.open(
            self.connection, self.log, self.names, 0, settings=fixed, clock=lambda: 2.0, limits=self.limits
        )

    def send(self, *messages):
        self.log.append_many(self.names.documents, messages)

    def take(self, *messages, at_once=None):
        """Send, count `at_once` records at a time, and return what became of them."""
        self.send(*messages)
        outcomes = Counter()
        while (progress := self.ingest.step(at_once)).records:
            outcomes.update(progress.outcomes)
        return dict(outcomes)

    @property
    def words(self):
        return set(self.ingest.state.vocabulary.words().values())

    def digest(self):
        snapshot = Reader(self.connection, self.names.model, 1).snapshot()
        assert set(snapshot.words) == self.words
        return snapshot.restrict(np.arange(len(snapshot.words))).digest(snapshot.words)


def add(document, words, **more):
    """Return the record of a document with each of these words twice."""
    return encode_add(document, counts=dict.fromkeys(words.split(), 2), **more)


def recount(documents):
    """Digest of the counts of these texts, by the counting kernel alone."""
    words = sorted({word for text in documents for word in text.split()})
    rows = []
    for text in documents:
        ids = np.array(sorted(words.index(word) for word in text.split()), np.int32)
        rows.append([Passage(2 * len(ids), ids, np.full(len(ids), 2, np.int32))])
    return count(DocumentBatch.build(rows), len(words), Weighting(256)).digest(words)


@pytest.fixture
def world(connection, tmp_path):
    """A partition of at most four words."""
    return World(connection, tmp_path, WordLimits(words=4))


def test_the_last_word_fits_and_the_next_is_refused(world):
    """A document is refused whole, by a stable code, where its new words pass the limit; one of known words is not."""
    assert world.take(add("a", "one two"), add("b", "three four")) == {"added": 2}
    assert world.take(add("c", "four five"), add("d", "one four")) == {"added": 1, "rejected": 1, "rejected_words": 1}
    assert world.digest() == recount(["one two", "three four", "one four"])
    (refused,) = rejections(world.log, world.names)
    assert (refused.document, refused.offset, refused.reason) == (b"c", 2, NO_ROOM)


def test_a_single_document_that_holds_too_much_is_refused(world):
    """Also where no limit is near and its words alone are more than there is room for."""
    assert world.take(add("a", "one two three four five"), at_once=1) == {"rejected": 1, "rejected_words": 1}
    assert world.words == set()


def test_words_that_die_make_room(world):
    """A deletion frees its words at once, within the same flush too, and what was refused is accepted when retried."""
    world.take(add("a", "one two"), add("b", "three four"))
    assert world.take(add("c", "five"), encode_delete("a", "r"), add("d", "six one")) == {
        "rejected": 1, "rejected_words": 1, "deleted": 1, "added": 1,
    }  # fmt: skip
    assert world.words == {"three", "four", "six", "one"}
    world.take(encode_delete("d", "r2"))
    assert retry(world.log, world.names)["retried"] == 1
    assert world.take() == {"added": 1}
    assert world.digest() == recount(["three four", "five"])


def test_an_update_that_no_longer_fits_leaves_the_document_as_it_was(world):
    """As with any rejected record; one that brings no more words than it frees is taken, and leaves its receipt."""
    world.take(add("a", "one two"), add("b", "three four"))
    assert world.take(add("a", "one five six")) == {"rejected": 1, "rejected_words": 1, "rejected_live": 1}
    assert world.digest() == recount(["one two", "three four"])
    assert world.ingest.state.forgets.read(0) == []
    assert world.take(add("a", "five six")) == {"replaced": 1}
    assert world.digest() == recount(["five six", "three four"])
    assert [forget.kind for forget in world.ingest.state.forgets.read(0)] == [ForgetKind.REPLACED]


def test_a_refused_document_can_be_deleted_and_sent_again(world):
    """Its delete finds nothing and has its receipt; the same content again is refused again, without other effect."""
    world.take(add("a", "one two three four"))
    assert world.take(add("b", "five"), add("b", "five"), encode_delete("b", "r")) == {
        "rejected": 2, "rejected_words": 2, "not_found": 1,
    }  # fmt: skip
    assert [forget.kind for forget in world.ingest.state.forgets.read(0)] == [ForgetKind.NOT_FOUND]
    assert world.digest() == recount(["one two three four"])


def test_a_lowered_limit_keeps_what_is_there(world):
    """Documents stay and may be replaced by such as need no more words; only growth is refused."""
    world.take(add("a", "one two"), add("b", "three four"))
    world.open(WordLimits(words=2))
    assert world.take(add("c", "one three"), add("a", "five two"), add("d", "six")) == {
        "added": 1, "rejected": 2, "rejected_words": 2, "rejected_live": 1,
    }  # fmt: skip
    assert world.take(encode_delete("c", "r"), add("a", "five two")) == {"deleted": 1, "replaced": 1}
    assert world.words == {"five", "two", "three", "four"}


def test_ids_that_run_out_refuse_new_words_only(connection, tmp_path):
    """Where every id was given, deletions and documents of known words go on; a rebuild begins at 0."""
    world = World(connection, tmp_path, WordLimits(words=4, ids=4))
    world.take(add("a", "one two three"))
    world.take(encode_delete("a", "r"))
    assert world.take(add("b", "one"), add("c", "one two"), add("d", "one")) == {
        "added": 2, "rejected": 1, "rejected_words": 1,
    }  # fmt: skip
    assert world.ingest.state.meta.next_word == 4
    assert world.digest() == recount(["one", "one"])
    assert world.take(encode_delete("b", "r2")) == {"deleted": 1}


def test_a_commit_whose_answer_was_lost_refuses_once(world, monkeypatch):
    """The writer that goes on after a lost answer decides the same, and counts it once."""
    world.take(add("a", "one two three"))
    world.send(add("b", "four five"), add("c", "four"))
    commit = PartitionState.commit
    answers = iter([Stale("lost")])

    def lost(state, flush):
        result = commit(state, flush)
        return next(answers, result)

    monkeypatch.setattr(PartitionState, "commit", lost)
    world.take()
    assert dict(world.ingest.state.meta.totals) == {"added": 2, "rejected": 1, "rejected_words": 1}
    assert world.digest() == recount(["one two three", "four"])


def test_a_crash_before_the_commit_decides_again_alike(world, monkeypatch):
    """What was announced and not committed is refused again by the next writer; the place is listed once."""
    world.take(add("a", "one two three"))
    world.send(add("b", "four five"), add("c", "four"))
    with monkeypatch.context() as crash:
        crash.setattr(PartitionState, "commit", _killed)
        with pytest.raises(KeyboardInterrupt):
            world.ingest.step()
    world.open()
    assert world.take() == {"added": 1, "rejected": 1, "rejected_words": 1}
    assert [rejection.offset for rejection in rejections(world.log, world.names)] == [1]
    assert world.ingest.state.meta.words == 4


def _killed(state, flush):
    raise KeyboardInterrupt


def test_it_warns_once_when_room_runs_short_and_once_when_it_is_gone(connection, tmp_path, caplog):
    """At 80 % and at the first refusal, with the setting to change; again only after there was room."""
    world = World(connection, tmp_path, WordLimits(words=10))
    with caplog.at_level(logging.WARNING, "streamtopic.service.room"):
        world.take(add("a", "a1 a2 a3 a4 a5 a6 a7 a8"))
        assert not caplog.records
        world.take(add("b", "a9"), at_once=1)
        world.take(add("c", "a1"))
        assert ["will be refused" in record.getMessage() for record in caplog.records] == [True]
        world.take(add("d", "b1 b2"), add("e", "b1 b3"), at_once=1)
        world.take(add("f", "b1 b2"))
    assert len(caplog.records) == 2
    assert "raise max_partition_words" in caplog.records[1].getMessage()


EVENTS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.frozensets(st.sampled_from([*"uvwxyz"]), max_size=4) | st.none()),
    max_size=18,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, limit=st.integers(1, 6), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_what_is_refused_depends_on_the_log_alone(connection, tmp_path, events, limit, cuts):
    """However a log is cut into flushes and writers, the same records are refused; counts are those of the others."""
    live, refused = {}, []
    for offset, (document, words) in enumerate(events):
        before = set().union(*live.values())
        if words is None:
            live.pop(document, None)
            continue
        after = set(words).union(*(held for other, held in live.items() if other != document))
        if len(after) > max(limit, len(before)) and live.get(document) != set(words):
            refused.append(offset)
        else:
            live[document] = set(words)
    world = World(connection, tmp_path, WordLimits(words=limit))
    world.send(*(encode_delete(d, "r") if w is None else add(d, " ".join(sorted(w))) for d, w in events))
    for size in itertools.cycle(cuts):
        if not world.ingest.step(size).records:
            break
        if size % 2:
            world.open()
    assert [rejection.offset for rejection in rejections(world.log, world.names)] == refused
    assert world.ingest.state.meta.words == len(world.words) == len(set().union(*live.values()))
    assert world.digest() == recount([" ".join(sorted(words)) for words in live.values()])


@pytest.mark.parametrize(("hapaxes", "times"), [(1_000, 10.0), (500, 100.0), (0, float("inf"))])
def test_growth_is_extrapolated_by_heaps_law(hapaxes, times):
    """Ten times as many words take ten times as many documents at exponent 1, a hundred times as many at 1/2."""
    assert Growth(1_000, hapaxes).times_until(10_000) == pytest.approx(times)
