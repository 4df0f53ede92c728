"""Whatever becomes of Redis and of publishers, every deletion has exactly one receipt in one whole chain."""

import itertools
import math
import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamtopic.service.publish.publisher import Publisher
from streamtopic.signed import Envelope, ReceiptReader, SigningKey
from streamtopic.state import Forget, ForgetKind, Forgets, ModelSettings, ModelState
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import FileLog, Message, TopicNames

KEY = SigningKey.from_bytes(bytes(32))
_numbers = itertools.count()


class Killed(BaseException):
    """Ends a publisher in the middle of what it does."""


class History:
    """One model: its Redis, which may be set back, its log, and two publishers, which may be killed or sleep."""

    def __init__(self, connection, folder):
        self.connection = connection
        self.state = ModelState.open(connection, f"history{next(_numbers)}", ModelSettings(1, 256))
        self.names = TopicNames(self.state.model)
        self.log = FileLog(folder / self.state.model)
        self.log.create(self.names.receipts, 1, self.names.settings()[self.names.receipts])
        self.keys = ModelKeys(self.state.model).partition(0)
        self.forgets = Forgets(connection, self.keys)
        self.deletions = 0
        self.asleep = []
        self.copies = []
        self.publishers = [self.publisher(), self.publisher()]
        self.version = Envelope(
            model=self.state.model, version=1, kind="unlearn", parent=0, base=1, cut={0: 1 << 40}, m=9, n=5, r=2,
            guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8e-7, tolerance=1e-7, certificate=5e-11, anchors=(),
            margin=math.inf, forgotten=1, capacity=5, capacity_rule="fixed", cumulative_epsilon=1.5, withdrawn=(),
            created=0,
        )  # fmt: skip

    def publisher(self):
        return Publisher(self.state, self.log, key=KEY, secret=b"s" * 32)

    def delete(self, count):
        """Ingest counts deletions out. After a restored Redis it does so again: their records are still in the log."""
        for _ in range(count):
            self.deletions += 1
        newest = self.connection.call("XREVRANGE", self.keys.forgets, "+", "-", "COUNT", 1)
        done = max(self.counted(), int(newest[0][0].split(b"-")[0]) if newest else 0)
        for offset in range(done, self.deletions):
            forget = Forget(offset, b"d%d" % offset, ForgetKind.DELETED, f"r-{offset}", b"", 1, 0, 1, next(_numbers))
            self.connection.call("XADD", self.keys.forgets, forget.entry, "forget", forget.pack())
        self.connection.call("SET", f"{self.keys.tag}:counted", self.deletions)

    def counted(self):
        return int(self.connection.call("GET", f"{self.keys.tag}:counted") or 0)

    def issue(self, who):
        self.publishers[who].issue_receipts({0: self.forgets}, [self.version])

    def kill(self, who, monkeypatch, calls):
        """Kill a publisher at one of its calls: of the log before or after it has written, or of Redis."""
        left = itertools.count(calls, -1)

        def deadly(act):
            def call(*arguments, **more):
                number = next(left)
                if number == 0:
                    raise Killed
                result = act(*arguments, **more)
                if number == 1 and act.__name__ == "append_many":
                    raise Killed
                return result

            return call

        with monkeypatch.context() as patch:
            for target, name in ((self.log, "append_many"), (self.connection, "call"), (self.connection, "script")):
                patch.setattr(target, name, deadly(getattr(target, name)))
            try:
                self.issue(who)
            except Killed:
                self.publishers[who] = self.publisher()

    def fall_asleep(self, who, monkeypatch):
        """A publisher stops with staged records in its hands, about to append them."""

        def sleep(topic, messages):
            self.asleep.append((topic, list(messages)))
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(self.log, "append_many", sleep)
            try:
                self.issue(who)
            except Killed:
                self.publishers[who] = self.publisher()

    def lose(self, who, monkeypatch):
        """Redis forgets that the sleeper ever staged what it holds."""
        self.copy()
        self.delete(2)
        self.fall_asleep(who, monkeypatch)
        self.set_back()

    def interrupt(self, who, monkeypatch, name, event):
        """Something happens just before a publisher's call of this name."""
        publisher = self.publishers[who]
        target = {"append": publisher._staged, "drain": publisher, "append_many": self.log}[name]
        act = getattr(target, name)

        def call(*arguments, **more):
            monkeypatch.undo()
            getattr(self, event)(*([1 - who] if event == "issue" else []))
            return act(*arguments, **more)

        monkeypatch.setattr(target, name, call)
        self.issue(who)
        monkeypatch.undo()

    def wake_up(self):
        """It goes on, believing that nothing has happened."""
        while self.asleep:
            topic, messages = self.asleep.pop()
            self.log.append_many(topic, [Message(m.key, m.value, m.headers, 0) for m in messages])

    def soil(self, value):
        """Somebody else writes under the key of each record that is there: a tombstone, or anything."""
        keys = {record.key for record in self.log.read(self.names.receipts, 0, 0)}
        self.log.append_many(self.names.receipts, [Message(key, value, partition=0) for key in sorted(keys)])

    def copy(self):
        names = self.connection.call("KEYS", f"{{st:{self.state.model}*")
        self.copies.append({name: self.connection.call("DUMP", name) for name in names})

    def set_back(self):
        if self.copies:
            self.connection.call("DEL", *self.connection.call("KEYS", f"{{st:{self.state.model}*"))
            for name, data in self.copies[-1].items():
                self.connection.call("RESTORE", name, 0, data)
            self.delete(0)

    def receipts(self):
        reader = ReceiptReader(self.log, self.state.model, KEY.public)
        offsets = [receipt.offset for receipt in reader.read()]
        assert reader.chain.lost == []
        return sorted(offsets)


EXAMPLES = int(os.environ.get("EXAMPLES", "150"))
"""CI's share. After a change of the publisher or the chain: EXAMPLES=20000, which takes about half an hour."""

WHO = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("delete"), st.integers(1, 3)),
    st.tuples(st.just("issue"), WHO),
    st.tuples(st.just("kill"), WHO, st.integers(0, 25)),
    st.tuples(st.just("fall_asleep"), WHO),
    st.tuples(st.just("lose"), WHO),
    st.tuples(
        st.just("interrupt"),
        WHO,
        st.sampled_from(["append", "drain", "append_many"]),
        st.sampled_from(["issue", "wake_up", "set_back", "copy"]),
    ),
    st.tuples(st.just("wake_up")),
    st.tuples(st.just("soil"), st.sampled_from([None, b"", b"anything"])),
    st.tuples(st.just("copy")),
    st.tuples(st.just("set_back")),
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
@example(steps=[("lose", 0), ("delete", 1), ("interrupt", 0, "append", "wake_up")])
def test_every_deletion_has_one_receipt_in_one_chain(connection, tmp_path_factory, steps):
    """Kills, sleepers with lost histories in their hands and restored snapshots, in any order, change nothing."""
    history = History(connection, tmp_path_factory.mktemp("history"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, *arguments in steps:
            if name in {"kill", "fall_asleep", "lose", "interrupt"}:
                arguments.insert(1, monkeypatch)
            getattr(history, name)(*arguments)
    history.delete(1)
    history.issue(0)
    history.wake_up()
    history.issue(1)
    history.delete(1)
    history.issue(0)
    assert len(history.forgets) == 0
    history.log.compact(history.names.receipts)
    assert history.receipts() == list(range(history.deletions))
