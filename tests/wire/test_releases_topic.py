"""The topic of releases: versions in chunks, with their proofs."""

import dataclasses
import hashlib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger_maker import LedgerMaker, key_of
from memory_log import MemoryLog
from streamtopic.errors import CannotLearn
from streamtopic.signed import (
    RELEASE_BYTES,
    KeyRing,
    LedgerReader,
    Refused,
    Release,
    ReleaseReader,
    proof_message,
    to_messages,
    tombstones,
    version_of,
)
from streamtopic.streams import Record
from waiting import flipped

LARGE = bytes(range(256)) * (3 * 4096)


class AnyBytes:
    """A ledger that opens whatever is whole: each test is about the records."""

    keys = KeyRing.load(key_of().public, "news")

    def open_release(self, version, data, proof):
        return SimpleNamespace(version=version, data=data, proof=proof, digest=hashlib.sha256(data).hexdigest())


def taken(messages):
    """What a reader makes of messages, as a log would give them back."""
    reader = ReleaseReader(AnyBytes())
    records = (Record("t", 0, i, m.key, m.value, m.headers, 0) for i, m in enumerate(messages))
    return [news for record in records for news in reader.take(record)]


def sent(version=1, data=LARGE, proof="proof"):
    """The records of a version: its chunks, and its proof."""
    return [*to_messages(version, data), proof_message(version, proof)]


def test_chunks_are_small_and_come_together():
    """A large release travels in records of at most 900 KiB, in any order and repeated, and is whole once."""
    messages = to_messages(1, LARGE)
    proof = proof_message(1, "proof")
    assert len(messages) == -(-len(LARGE) // (900 << 10)) > 2
    assert max(len(message.value) for message in messages) <= 900 << 10
    assert [message.key for message in messages] == [b"1/%d" % i for i in range(len(messages))]
    assert {version_of(message.key) for message in (*messages, proof)} == {1}
    for order in ([*messages, proof], [proof, *messages[::-1]], [messages[0], proof, *messages, *messages]):
        (opened,) = taken(order)
        assert (opened.version, opened.data) == (1, LARGE)
        assert opened.proof == "proof"


def test_half_releases_never_appear():
    """A missing, damaged, tombstoned or misnumbered chunk means no release; so does a proof that is missing."""
    messages = sent()
    for missing in range(len(messages)):
        assert taken([m for i, m in enumerate(messages) if i != missing]) == []
    damaged = dataclasses.replace(messages[0], value=flipped(messages[0].value))
    assert taken([damaged, *messages[1:]]) == []
    past_the_last = dataclasses.replace(messages[0], key=b"1/%d" % (len(messages) - 1))
    assert taken([past_the_last, *messages[1:]]) == []
    dead = tombstones(1, len(messages) - 1)
    assert taken([messages[0], dead[0], *messages[1:]]) == []
    assert taken([*messages[:-1], dead[-1], messages[-1]]) == []
    assert [message.key for message in dead] == [message.key for message in messages]


@given(
    key=st.none()
    | st.sampled_from([b"1/0", b"1/1", b"0/0", b"1/-1", b"01/0", b"1/proof", b"1/Proof", b"x"])
    | st.binary(max_size=20),
    value=st.binary(max_size=10),
    headers=st.lists(
        st.tuples(
            st.sampled_from(["chunks", "sha256"]),
            st.sampled_from([b"0", b"1", b"2", b"-1", b"9" * 30, b"1_0", b"\xff", b""]),
        )
    ).map(tuple),
)
@settings(max_examples=300)
def test_stray_records_are_passed_over(key, value, headers):
    """Whatever lies in the topic, the reader neither fails nor makes a release of it."""
    assert list(ReleaseReader(AnyBytes()).take(Record("t", 0, 0, key, value, headers, 0))) == []


def test_a_refused_version_is_opened_once_its_key_is_known():
    """A reader with the root key has read the releases before the first list."""
    maker = LedgerMaker(MemoryLog(), key=key_of(), root=key_of(number=9))
    ledger = LedgerReader(maker.log, "news", maker.keys())
    maker.publish(1)
    ledger.catch_up()
    releases = ReleaseReader(ledger.ledger)
    assert [type(one) for one in releases.read(maker.log)] == [Refused]
    maker.begin_list()
    ledger.catch_up()
    releases.ledger = ledger.ledger
    assert [type(one) for one in releases.read(maker.log)] == [Release]


def test_a_release_that_no_reader_accepts_is_not_sent():
    """Its service says what to change."""

    class Long(bytes):
        def __len__(self):
            return RELEASE_BYTES + 1

    with pytest.raises(CannotLearn, match="max_words"):
        to_messages(1, Long())
