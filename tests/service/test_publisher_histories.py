"""Whatever becomes of Redis and of two leaders, every deletion has exactly one receipt in one whole ledger."""

import dataclasses
import hashlib
import itertools
import json
import os
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crashes import copied, put_back
from memory_log import MemoryLog
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.publish.publisher import Publisher
from streamtopic.service.schedule.scheduler import follow_ledger, release_record
from streamtopic.signed import (
    Checkpoint,
    Envelope,
    KeyList,
    KeyRing,
    Keys,
    LedgerReader,
    Payload,
    PublicKey,
    Receipt,
    Refused,
    Release,
    ReleaseReader,
    SigningKey,
    leaf_hash,
    pack_payload,
    seal_keys,
    to_messages,
    tombstones,
)
from streamtopic.state import Forget, ForgetKind, Forgets, ModelSettings, ModelState
from streamtopic.state.connection import ModelKeys
from streamtopic.streams import Message, TopicNames
from whole_tree import Tree

pytestmark = pytest.mark.slow

_numbers = itertools.count()


class Killed(BaseException):
    """Ends a process in the middle of what it does."""


class Process:
    """One that leads, or believes that it does: it makes versions, and publishes.

    key: signs what it publishes.
    """

    def __init__(self, history, name):
        self.name, self.key = name, history.key
        ring = KeyRing.load(history.root.public, history.state.model, [self.key.public])
        self.writer = LedgerWriter(history.connection, history.log, history.state.model, ring, self.key)
        self.publisher = Publisher(
            history.state, history.log, self.writer,
            secret=b"s" * 32, interval_ms=60_000, clock=lambda: history.now,
        )  # fmt: skip


class History:
    """One model: its Redis, which may be set back, its log, and two processes, which may be killed or sleep.

    signed: every text that was signed with a key of the ledger.
    """

    def __init__(self, connection, signed):
        self.connection, self.signed = connection, signed
        self.state = ModelState.open(connection, f"history{next(_numbers)}", ModelSettings(1, 256))
        model = self.state.model
        self.names = TopicNames(model)
        self.log = MemoryLog()
        self.keys = ModelKeys(model).partition(0)
        # Of all that the model has in Redis.
        self.patterns = f"{{st:{model}}}*", f"{{st:{model}:*"
        self.forgets = Forgets(connection, self.keys)
        self.deletions, self.drawn, self.now = 0, 0, 1_700_000_000.0
        self.asleep, self.copies = [], []
        self.root, self.key = (SigningKey.from_seed(seed * 32, f"test/{model}") for seed in (b"r", b"0"))
        self.list = KeyList(self.key.name, 1, 0, self.key.public)
        self.processes = [Process(self, "first"), Process(self, "second")]
        assert self.processes[0].writer.append([Keys(seal_keys(self.list, self.root))])

    def delete(self, count):
        """Ingest counts deletions out. After a restored Redis it does so again: their records are still in the log."""
        self.deletions += count
        for offset in range(self.counted(), self.deletions):
            forget = Forget(offset, b"d%d" % offset, ForgetKind.DELETED, f"r-{offset}", b"", 1, 1, next(_numbers))
            self.connection.change([*self.forgets.made(), *self.forgets.added([forget])])
        self.connection.call("SET", f"{self.keys.tag}:counted", self.deletions)

    def counted(self):
        return int(self.connection.call("GET", f"{self.keys.tag}:counted") or 0)

    def publish(self, who):
        """One round of what is due."""
        self.processes[who].publisher.step()

    def version(self, who):
        """Make a version of what is counted, as the scheduler does; each time another one is drawn."""
        process = self.processes[who]
        # The other one believes that it leads until it looks.
        self.connection.call("DEL", ModelKeys(self.state.model).named("lease"))
        lease = self.state.acquire(process.name, 60_000)
        if lease is None:
            # Redis was set back in this moment, to a lease of the other process.
            return
        process.writer.catch_up()
        follow_ledger(self.state, lease, process.writer, self.log)
        newest = self.state.releases(1)
        known = newest[0][0] if newest else 0
        if known > process.writer.ledger.newest:
            return
        self.drawn += 1
        data, envelope = self.made(known + 1)
        messages = to_messages(envelope.version, data)
        gone = tombstones(known, 1) if known else []
        record = release_record(envelope, chunks=len(messages), reason="a test")
        records = [*messages, *gone]
        self.state.stage(lease, envelope.version, before=known, release=record, records=records)

    def made(self, version):
        """The bytes and the facts of a version; the one before is withdrawn."""
        words = (f"drawn{self.drawn}",)
        one = np.ones((1, 1), np.float32)
        payload = Payload(words, one, one, np.ones(1), anchors=words)
        withdrawn = (version - 1,) if version > 1 else ()
        envelope = Envelope(
            model=self.state.model, version=version, kind="retrain", parent=version - 1, base=version,
            cut={0: self.counted()}, m=9, n=1, r=1, guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8e-7,
            tolerance=1e-7, certificate=5e-11, forgotten=1, capacity=5, capacity_rule="fixed", cumulative_epsilon=1.5,
            withdrawn=withdrawn, created=0,
        )  # fmt: skip
        data = pack_payload(payload, envelope)
        return data, dataclasses.replace(envelope, release=hashlib.sha256(data).hexdigest())

    def rotate(self, who):
        """A new key signs from now on; a process has it once it is started again, and this one is."""
        present = Process(self, self.processes[who].name).writer
        self.key = SigningKey.from_seed(bytes([1 + self.list.sequence % 200]) * 32, self.key.name)
        self.list = self.list.rotated(self.key.public, self.list.sequence)
        self.processes[who] = Process(self, self.processes[who].name)
        page = [Keys(seal_keys(self.list, self.root))]
        # A draft that waits is not signed by a key that nobody knows yet.
        present.catch_up()
        present.complete()
        assert self.processes[who].writer.append(page)

    def wait(self, seconds):
        """Time passes: an `alive` may be due."""
        self.now += seconds

    def at_a_call(self, what, who, names, number, act):
        """Do what a process does, and let something happen at its call with this number.

        names: of the calls that count: `append_many` of the log, `call` and `script` of Redis. act: is given the call
        and its arguments, and returns its answer.
        """
        calls = itertools.count()

        def watched(original):
            def call(*arguments, **more):
                if next(calls) == number:
                    return act(original, *arguments, **more)
                return original(*arguments, **more)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                target = self.log if name == "append_many" else self.connection
                patch.setattr(target, name, watched(getattr(target, name)))
            try:
                getattr(self, what)(who)
            except Killed:
                patch.undo()
                self.processes[who] = Process(self, self.processes[who].name)

    def kill(self, what, who, number, *, done):
        """Kill a process at one of its calls, before or after the call has done its work."""

        def die(original, *arguments, **more):
            if done:
                original(*arguments, **more)
            raise Killed

        self.at_a_call(what, who, ("append_many", "call", "script"), number, die)

    def fall_asleep(self, who, number):
        """A process stops with records in its hands: a draft, a checkpoint, or the chunks of a version."""

        def sleep(_, topic, messages):
            self.asleep.append((topic, list(messages)))
            raise Killed

        self.at_a_call("publish", who, ("append_many",), number, sleep)

    def lose(self, who, number):
        """Redis forgets all that the sleeper knew."""
        self.copy()
        self.delete(2)
        self.version(1 - who)
        self.fall_asleep(who, number)
        self.set_back()

    def interrupt(self, what, who, names, number, event):
        """Something else happens just before a call of a process."""

        def first_this(original, *arguments, **more):
            getattr(self, event)(*([1 - who] if event in {"publish", "version", "rotate", "overtake"} else []))
            return original(*arguments, **more)

        self.at_a_call(what, who, names, number, first_this)

    def overtake(self, who):
        """Another process publishes, and Redis is set back to before that: only the ledger knows."""
        self.publish(who)
        self.set_back()

    def wake_up(self):
        """Sleepers go on, believing that nothing has happened."""
        while self.asleep:
            topic, messages = self.asleep.pop(0)
            self.log.append_many(topic, [dataclasses.replace(message, partition=0) for message in messages])

    def soil(self, kind):
        """Somebody else writes into the ledger's topic: anything, or all its records again."""
        values = [b"anything", None, b"{}"]
        if kind == "again":
            values = [record.value for record in self.log.read(self.names.ledger, 0, 0)]
        self.log.append_many(self.names.ledger, [Message(None, value, partition=0) for value in values])

    def copy(self):
        self.copies.append(copied(self.connection, *self.patterns))

    def set_back(self):
        if self.copies:
            put_back(self.connection, self.copies[-1], *self.patterns)
            self.delete(0)

    def settle(self):
        """Everybody comes to rest, with a last version of all that was deleted."""
        self.delete(1)
        for who in (0, 1):
            self.publish(who)
        self.version(0)
        self.wake_up()
        for who in (1, 0, 1):
            self.publish(who)
        self.version(1)
        for who in (0, 1, 0):
            self.publish(who)

    def forget(self):
        """Leave nothing to the next history: a Redis full of old ones takes long to list the keys of one."""
        put_back(self.connection, {}, *self.patterns)

    def index(self):
        """All that the index in Redis holds, by the rest of its name."""
        start = f"{{st:{self.state.model}}}:ledger:"
        found = {}
        for name in self.connection.call("KEYS", f"{start}*"):
            rest = name.decode().removeprefix(start)
            read = {"head": ("HGETALL",), "tiles": ("GET",), "nodes": ("GET",)}.get(rest, ("SMEMBERS",))[0]
            found[rest] = self.connection.call(read, name)
        # Whoever goes on from a dump reads the records after a draft that waits again, and may count strays twice.
        found["head"][b"dump"] = {**json.loads(found["head"][b"dump"]), "strays": 0}
        return found


@pytest.fixture(autouse=True)
def _verified_once(monkeypatch):
    """A signature that was verified is right: every process and every reader meets the same ones again."""
    monkeypatch.setattr(PublicKey, "verify", lru_cache(10_000)(PublicKey.verify))


@pytest.fixture
def signed(monkeypatch):
    """Every text that a key signs, in their order."""
    texts, sign = [], SigningKey.sign

    def noted(key, message):
        texts.append((key.name, message.decode()))
        return sign(key, message)

    monkeypatch.setattr(SigningKey, "sign", noted)
    return texts


def checked(history):
    """Check all that must hold at the end of a history; return the number of checkpoints that were signed."""
    model = history.state.model
    reader = LedgerReader(history.log, model, KeyRing.load(history.root.public, model))
    tree, pages, entries = Tree(), [], []
    for page in reader.read():
        # Until its first list, a reader with the root key knows no key.
        if page.anew:
            tree, pages, entries = Tree(), [], []
        pages.append(page.draft)
        entries += [logged.entry for logged in page.entries]
        for line in page.draft.lines:
            tree.append(leaf_hash(line.encode()))
    ledger = reader.ledger
    assert (ledger.size, ledger.gaps) == (tree.size, set())

    # Every deletion has one receipt, which names a version in the ledger before it that reflects it.
    receipts = [entry for entry in entries if isinstance(entry, Receipt)]
    assert sorted(receipt.offset for receipt in receipts) == list(range(history.deletions))
    cuts = {}
    for entry in entries:
        if isinstance(entry, Envelope):
            # Every version has one entry.
            assert entry.version == len(cuts) + 1
            cuts[entry.version] = entry.cut[0]
        elif isinstance(entry, Receipt):
            assert cuts[entry.version] > entry.offset
            assert cuts.get(entry.version - 1, 0) <= entry.offset
    assert len(history.forgets) == 0

    # No two checkpoints that were ever signed contradict each other.
    texts = {text for name, text in history.signed if name == history.key.name and text.count("\n") == 3}
    for checkpoint in map(Checkpoint.parse, texts):
        assert tree.root(checkpoint.size) == checkpoint.root
    assert {page.after.text for page in pages} <= texts

    # The newest version is there, and no bytes are in a version's place that are not its own.
    releases = ReleaseReader(ledger)
    found = list(releases.read(history.log))
    assert not [one for one in found if isinstance(one, Refused)]
    assert ledger.newest in {one.version for one in found if isinstance(one, Release)}
    assert ledger.alive.newest == ledger.newest
    assert ledger.withdrawn == set(range(1, ledger.newest))

    # The index in Redis is the one that the topic makes.
    history.processes[0].writer.catch_up()
    kept = history.index()
    for name in kept:
        history.connection.call("DEL", f"{{st:{model}}}:ledger:{name}")
    Process(history, "third").writer.catch_up()
    assert history.index() == kept
    return len(texts)


EXAMPLES = int(os.environ.get("EXAMPLES", "75"))
"""CI's share. After a change of publisher, ledger or index: EXAMPLES=20000."""

WHO = st.integers(0, 1)
WHAT = st.sampled_from(["publish", "publish", "version"])
CALLS = st.sampled_from([("append_many",), ("append_many", "script"), ("call",), ("append_many", "call", "script")])
STEPS = st.one_of(
    st.tuples(st.just("delete"), st.integers(1, 3)),
    st.tuples(st.just("publish"), WHO),
    st.tuples(st.just("version"), WHO),
    st.tuples(st.just("kill"), WHAT, WHO, st.integers(0, 30), st.booleans()),
    st.tuples(st.just("fall_asleep"), WHO, st.integers(0, 3)),
    st.tuples(st.just("lose"), WHO, st.integers(0, 3)),
    st.tuples(
        st.just("interrupt"),
        WHAT,
        WHO,
        CALLS,
        st.integers(0, 12),
        st.sampled_from(["publish", "version", "wake_up", "set_back", "copy", "rotate", "overtake"]),
    ),
    st.tuples(st.just("wake_up")),
    st.tuples(st.just("soil"), st.sampled_from(["anything", "again"])),
    st.tuples(st.just("copy")),
    st.tuples(st.just("set_back")),
    st.tuples(st.just("rotate"), WHO),
    st.tuples(st.just("wait"), st.sampled_from([1, 40, -40])),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
# A number is drawn again, and then a sleeper writes the page of the first draw.
@example(steps=[("lose", 0, 0), ("version", 1), ("wake_up",), ("publish", 1)])
@example(steps=[("lose", 0, 0), ("delete", 1), ("interrupt", "publish", 0, ("append_many",), 0, "wake_up")])
@example(steps=[("delete", 2), ("version", 0), ("fall_asleep", 0, 1), ("publish", 1), ("wake_up",), ("publish", 0)])
@example(steps=[("fall_asleep", 0, 0), ("wait", 1), ("interrupt", "publish", 1, ("append_many",), 1, "wake_up")])
@example(
    steps=[
        ("fall_asleep", 0, 0),
        ("delete", 1),
        ("version", 1),
        ("interrupt", "publish", 1, ("append_many",), 0, "wake_up"),
    ]
)
@example(
    steps=[
        ("copy",),
        ("delete", 1),
        ("version", 0),
        ("publish", 0),
        ("delete", 2),
        ("version", 0),
        ("interrupt", "publish", 0, ("call",), 8, "overtake"),
    ]
)
@example(steps=[("version", 1), ("copy",), ("interrupt", "version", 0, ("append_many", "script"), 0, "set_back")])
@example(steps=[("delete", 3), ("lose", 0, 3), ("lose", 1, 1), ("soil", "anything"), ("version", 0), ("rotate", 0)])
def test_every_deletion_has_one_receipt_in_one_ledger(connection, signed, steps):
    """Kills, sleepers with drafts and checkpoints in their hands, and restored snapshots, in any order."""
    signed.clear()
    history = History(connection, signed)
    for name, *arguments in steps:
        more = {"done": arguments.pop()} if name == "kill" else {}
        getattr(history, name)(*arguments, **more)
    history.settle()
    assert checked(history) >= 3
    history.forget()
