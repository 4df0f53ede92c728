"""After anything that can happen to it, the store is that of the live documents, bit for bit.

One machine drives the ingest of each partition, the leader beside them, and Redis below. After each step everything
that Redis tells is compared with the records of the log, read in plain Python up to where each partition has counted.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from ingest_world import IngestWorld
from state_reference import LiveDocuments, as_words, difference, plain

from crashes import copied, put_back
from plain_counts import plain_counts
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.errors import ComponentUnreachable, StateError
from streamtopic.service.schedule.scheduler import counts_are_due, fold_counts
from streamtopic.state import (
    CutGone,
    ModelSettings,
    ModelState,
    Reader,
    RemainingBase,
    SubjectIndex,
)
from streamtopic.state import connection as connection_module
from streamtopic.state.document_counts import read_documents
from streamtopic.state.stored_counts import CountsStore, SummedCounts
from streamtopic.streams import FileLog, Message, partition_of

PEOPLE = ("ann", "bob")
numbers = st.integers(0, 6)
counts = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "é", "zz"]), st.integers(1, 3), max_size=4)
people = st.lists(st.sampled_from(PEOPLE), max_size=2, unique=True).map(tuple)
labels = st.sampled_from([{}, {}, {"task": "one"}, {"task": "two"}])


class Killed(BaseException):
    """A process ends here."""


class StoreMachine(RuleBasedStateMachine):
    """A model of one or two partitions and what happens to it."""

    connection = log = world = None

    @initialize(partitions=st.integers(1, 2), documents=st.lists(st.tuples(numbers, counts, people), max_size=6))
    def begin(self, partitions, documents):
        """Make a model that no other example uses, with documents, a base that was learned of them, and a reader."""
        self.world = IngestWorld(self.connection, self.log, partitions)
        self.model = self.world.topics.model
        self.state = ModelState.open(self.connection, self.model, ModelSettings(partitions, 256))
        # By partition, what each record of its log does: (document, its content; None for a delete).
        self.records = [[] for _ in range(partitions)]
        self.last = {}
        self.version, self.start = 0, None
        self.lead()
        for number, words, about in documents:
            self.add(number, words, {}, about)
        self.drain()
        self.learn(1)
        self.look()
        self.save()

    def lead(self):
        """Begin as a leader that knows nothing yet."""
        self.reader = Reader(self.connection, self.model, self.world.partitions)
        self.store = CountsStore(self.connection, self.model)

    def send(self, name, message, content):
        """Append a record. content: (counts, labels, subjects) of an add, None for all that ends the document."""
        self.world.send(message)
        self.records[partition_of(message.key, self.world.partitions)].append((name, content))

    def live(self):
        """Return the documents of the records that are counted: (partition, id) to offset, counts, labels, subjects."""
        found = {}
        for partition, meta in self.reader.positions().items():
            for offset, (name, content) in enumerate(self.records[partition][: meta.next_offset]):
                have = found.pop((partition, name), None)
                if content is None:
                    continue
                same = have is not None and have[1:3] == content[:2]
                found[partition, name] = (have[0] if same else offset, *content)
        return found

    # What producers do.

    @rule(number=numbers, words=counts, labels=labels, people=people)
    def add(self, number, words, labels, people):
        """Add a document, or replace one; with the same content this changes nothing."""
        name = f"d{number}"
        self.last[name] = words, labels
        self.send(name, encode_add(name, counts=words, labels=labels, subjects=people), (words, labels, set(people)))

    @rule(number=numbers, people=people)
    def add_again(self, number, people):
        """Add what was added last under an id, perhaps about other people."""
        name = f"d{number}"
        if name in self.last:
            words, labels = self.last[name]
            self.add(number, words, labels, people)

    @rule(number=numbers)
    def delete(self, number):
        """Delete a document, or one that is not there."""
        self.send(f"d{number}", encode_delete(f"d{number}", "r"), None)

    @rule(number=numbers)
    def refuse(self, number):
        """Send a record that is refused: it ends the document of its id."""
        self.send(f"d{number}", Message(f"d{number}".encode(), b"{"), None)

    @rule(person=st.sampled_from(PEOPLE))
    def forget(self, person):
        """Delete the documents of a person, as far as they are counted."""
        index = SubjectIndex(self.connection, self.model, self.world.partitions)
        for partition in range(self.world.partitions):
            for document in index.documents([person], partition):
                self.send(document.decode(), encode_delete(document.decode(), person), None)

    # What happens to ingest.

    @rule(most=st.integers(1, 4))
    def step(self, most):
        """Count some records of each partition."""
        for ingest in self.world.ingests:
            ingest.step(most)

    @rule()
    def drain(self):
        """Count all records."""
        for ingest in self.world.ingests:
            ingest.went_back()
            list(ingest.drain())

    @rule()
    def take_over(self):
        """Let other processes take the partitions; those of before write nothing any more."""
        former = self.world.ingests
        self.world.open()
        before = self.dump()
        for ingest in former:
            with pytest.raises(StateError):
                ingest.state.reload()
        assert self.dump() == before

    @rule(script=st.sampled_from(["CHANGE", "READ_DOCUMENTS"]), call=st.integers(0, 1), done=st.booleans())
    def crash(self, script, call, done):
        """End a process before a commit, a look-up or statistics, or after it; the next one goes on."""
        with self.failing(script, Killed(), call, done=done):
            for ingest in self.world.ingests:
                try:
                    ingest.step(3)
                    ingest.state.sum_changes()
                except Killed:
                    break
        self.world.open()

    @rule(call=st.integers(0, 1), done=st.booleans())
    def lose_answer(self, call, done):
        """Let a connection break before a commit or statistics, or after it; the same process tries again."""
        for ingest in self.world.ingests:
            with self.failing("CHANGE", ComponentUnreachable("gone"), call, done=done):
                try:
                    ingest.step(3)
                    ingest.state.sum_changes()
                except ComponentUnreachable:
                    pass
            ingest.step(3)

    @contextmanager
    def failing(self, name, error, call, *, done):
        """Raise an error at a call of a script. call: how many come before it; done: after the script has run."""
        script, text, before = self.connection.script, getattr(connection_module, name), iter(range(call))

        def fail(given, *arguments):
            if given != text or next(before, None) is not None:
                return script(given, *arguments)
            self.connection.script = script
            if done:
                script(given, *arguments)
            raise error

        self.connection.script = fail
        try:
            yield
        finally:
            self.connection.script = script

    @rule()
    def sum(self):
        """Begin a generation of changes, which trims the one before the last."""
        for ingest in self.world.ingests:
            ingest.went_back()
            ingest.state.sum_changes()

    # What happens to Redis.

    def dump(self):
        """Return all keys of the model."""
        return copied(self.connection, f"{{st:{self.model}*")

    @rule()
    def save(self):
        """Keep a copy of Redis as it is."""
        self.saved = self.dump(), [ingest.state.fence for ingest in self.world.ingests]

    @rule()
    def set_back(self):
        """Put Redis back to the copy, as a replica that was behind or a restored file does."""
        keys, fences = self.saved
        put_back(self.connection, keys, f"{{st:{self.model}*")
        self.seen = None
        # A writer that Redis has forgotten may write nothing more, and takes the partition anew.
        if fences != [ingest.state.fence for ingest in self.world.ingests]:
            self.world.open()

    # What the leader does.

    @rule()
    def restart_leader(self):
        """Begin again as a leader, with what Redis has."""
        self.lead()

    @rule(step=st.integers(1, 3))
    def learn(self, step):
        """Take all documents as those of a base model, and keep the counts of some words."""
        found = self.reader.counts()
        self.version, self.start = self.version + 1, RemainingBase.at(found.positions, found.documents)
        keep = np.arange(len(found.words))[step - 1 :: step]
        self.store.write([found.words[k] for k in keep], found.symmetric(keep), found, self.lease())

    @rule()
    def fold(self):
        """Fold what came and went into the counts."""
        if self.store.cut() is not None:
            fold_counts(self.store, self.reader, self.lease())

    def lease(self):
        """Return the lease of the leader."""
        return self.state.acquire("leader", 3_600_000)

    @rule()
    def look(self):
        """Begin to read a cut, which is read to its end later."""
        self.seen = self.reader.counts(), self.live()

    @rule()
    def read_cut(self):
        """Read that cut, whatever has come and gone: it is exact, or its changes were trimmed."""
        if self.seen is None:
            return
        found, documents = self.seen
        try:
            assert as_words(found) == expected(documents)
            change = self.reader.counts().since(found)
            assert as_words(change) == difference(expected(self.live()), expected(documents))
        except CutGone:
            now = self.reader.positions()
            assert any(now[p].generation - then.generation >= 2 for p, then in found.positions.items())

    @invariant()
    def statistics_are_those_of_the_live_documents(self):
        """Words and their statistics are those of the counted records, for who follows and for who begins."""
        live = self.live()
        for reader in (self.reader, Reader(self.connection, self.model, self.world.partitions)):
            assert of_words(as_words(reader.counts(), NO_PAIRS)) == of_words(expected(live))
        self.base_is_followed(live)

    @rule(step=st.integers(1, 3))
    def compare(self, step):
        """Compare all that Redis holds: documents, people, pairs, and the sums of some words."""
        live = self.live()
        for reader in (self.reader, Reader(self.connection, self.model, self.world.partitions)):
            assert as_words(reader.counts()) == expected(live)
        followed = self.reader.counts()
        self.documents_are(followed, live)
        self.sums_are_counted(followed, np.arange(len(followed.words))[step - 1 :: step])

    def teardown(self):
        """Compare all once more at the end."""
        if self.world is not None:
            self.drain()
            self.compare(1)

    def documents_are(self, found, live):
        """Stored documents have their content, and people theirs."""
        stored = read_documents(found, found.words)
        assert plain(stored, found.words) == {
            name.encode(): (passages(words), labels) for (_, name), (_, words, labels, _) in live.items()
        }
        index = SubjectIndex(self.connection, self.model, self.world.partitions)
        for person in PEOPLE:
            have = {name for p in range(self.world.partitions) for name in index.documents([person], p)}
            assert have == {name.encode() for (_, name), (*_, people) in live.items() if person in people}

    def sums_are_counted(self, found, keep):
        """The stored sums with the changes since are the counts of the documents, over the words to keep."""
        stored = self.store.read()
        if stored is None or not len(keep):
            return
        try:
            summed = SummedCounts.of(found, stored).symmetric(keep)
        except CutGone:
            positions = self.reader.positions()
            assert any(stored.cut.places[p].version < meta.version for p, meta in positions.items()) or counts_are_due(
                self.store, self.reader
            )
            return
        words = [found.words[k] for k in keep]
        assert plain_counts(summed.upper(), words) == plain_counts(found.symmetric(keep).upper(), words)

    def base_is_followed(self, live):
        """What is left of the base is what the log says."""
        if self.start is None:
            return
        positions = self.reader.positions()
        left = sum(offset < self.start.offsets[p] for (p, _), (offset, *_) in live.items())
        assert self.reader.left(self.version, self.start, positions).documents == left


# No pair of any word, where pairs are not looked at.
NO_PAIRS = SimpleNamespace(indptr=np.zeros(100, int), columns=(), values=())


def of_words(found):
    """Return documents and the statistics of words, without pairs."""
    return found[:4]


def passages(words):
    """Return the passages of a document with these counts."""
    return ((sum(words.values()), words),) if words else ()


def expected(live):
    """Return what counts of these documents are, by the definition."""
    documents = {key: (offset, passages(words), labels) for key, (offset, words, labels, _) in live.items()}
    return LiveDocuments(documents).recount()


def test_whatever_happens_the_store_is_that_of_the_live_documents(connection, tmp_path):
    """Records, crashes, lost answers, set-backs, trims, folds and restarts in any order."""
    StoreMachine.connection = connection
    with FileLog(tmp_path / "log") as StoreMachine.log:
        run_state_machine_as_test(StoreMachine, settings=settings(max_examples=30, stateful_step_count=25))
