import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed import (
    Assembled,
    Assembler,
    Envelope,
    Payload,
    Removed,
    SigningKey,
    match_topics,
    open_release,
    seal,
    seal_release,
    to_messages,
    tombstones,
)
from streamtopic.signed.release import assign
from streamtopic.streams import Record


def records(messages):
    """Records as a log would give them back."""
    return [Record("t", 0, i, m.key, m.value, m.headers, 0) for i, m in enumerate(messages)]


def assembled(messages):
    """What an assembler makes of messages."""
    assembler = Assembler()
    return [found for record in records(messages) if (found := assembler.take(record)) is not None]


def test_a_release_reads_back_as_written(make, key):
    """Every field of payload and envelope comes back equal, arrays bit for bit."""
    payload, envelope = make(version=3, withdrawn=(1, 2), margin=math.inf, ratio=0.25, covered=False)
    release = open_release(seal_release(payload, envelope, key), key.public)
    assert release.envelope == envelope
    for field in dataclasses.fields(Payload):
        wrote, read = getattr(payload, field.name), getattr(release.payload, field.name)
        assert np.array_equal(wrote, read) if isinstance(wrote, np.ndarray) else wrote == read
    assert release.payload.A.dtype == np.float32


def test_a_release_has_one_encoding(make, key):
    """The same release gives the same bytes, whatever the layout of arrays and the order of maps."""
    payload, envelope = make()
    other = dataclasses.replace(
        payload, A=np.asfortranarray(payload.A), quality=dict(reversed(payload.quality.items()))
    )
    turned = dataclasses.replace(envelope, cut=dict(reversed(envelope.cut.items())))
    assert seal_release(other, turned, key) == seal_release(payload, envelope, key)


@pytest.mark.parametrize("changes", [{}, {"margin": math.inf, "guided": {"cars": ("w00001",)}}])
def test_an_opened_release_gives_its_signed_bytes_again(make, key, changes):
    """A reader can pass on the very bytes that the service signed, which others verify."""
    data = seal_release(*make(**changes), key)
    release = open_release(data, key.public)
    assert release.key == key.public.key_id
    assert release.signed() == data
    assert release.matched(release).signed() == data


def test_bytes_of_another_program_are_not_written_anew(make, key):
    """No bytes are given whose signature would not hold, since this program writes the fields differently."""
    release = open_release(seal_release(*make(), key), key.public)
    with pytest.raises(UsageError, match="release 1 was signed by an older program"):
        dataclasses.replace(release, digest="0" * 64).signed()
    with pytest.raises(InvalidRelease, match="withdrawn"):
        dataclasses.replace(release, is_withdrawn=lambda _: True).signed()


@pytest.mark.parametrize(
    "change",
    [
        {"A": None},
        {"A": None, "R": None},
        {"A": None, "R": None, "shares": None},
        {"A": None, "R": None, "shares": None, "top_words": ()},
        {"R": None},
        {"shares": None},
        {"A": np.full((6, 2), np.nan, np.float32)},
        {"shares": np.array([0.5, np.inf])},
    ],
    ids=str,
)
def test_models_with_parts_missing_or_no_numbers_are_not_signed(make, key, change):
    """Topics come whole, or not at all and then with heads only; no release holds a NaN."""
    payload, envelope = make()
    with pytest.raises(InvalidRelease):
        seal_release(dataclasses.replace(payload, **change), envelope, key)


def test_any_changed_byte_of_a_release_is_detected(make, key):
    """No byte of a sealed release can be changed unseen."""
    data = seal_release(*make(), key)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(InvalidRelease):
            open_release(bytes(changed), key.public)


def test_an_envelope_cannot_be_moved_to_another_payload(make, key):
    """Payload and envelope are signed together, so parts of two releases do not make a third."""
    one, two = (seal_release(*make(version=v, seed=v), key) for v in (1, 2))
    assert len(one) == len(two)
    place = one.index(b"payload")
    with pytest.raises(InvalidRelease):
        open_release(one[:place] + two[place:], key.public)


@pytest.mark.parametrize(
    "changes",
    [{"n": 7}, {"r": 3}, {"version": 0}, {"version": 2, "withdrawn": (2,)}, {"withdrawn": (3,)}],
)
def test_releases_that_contradict_themselves_are_not_signed(make, key, changes):
    """Shapes must fit n and r, and only earlier versions can be withdrawn."""
    payload, envelope = make()
    with pytest.raises(InvalidRelease):
        seal_release(payload, dataclasses.replace(envelope, **changes), key)


def test_unsorted_words_are_not_signed(make, key):
    """Words are sorted and distinct, so a vocabulary has one form."""
    payload, envelope = make()
    with pytest.raises(InvalidRelease, match="sorted"):
        seal_release(dataclasses.replace(payload, words=payload.words[::-1]), envelope, key)


def test_signed_nonsense_is_still_invalid(key):
    """Well-signed content that is no release is refused as such."""
    for parts in ({}, {"payload": b"\x80", "envelope": b"\x80"}, {"payload": b"\x01", "envelope": b"\x90"}):
        with pytest.raises(InvalidRelease):
            open_release(seal("release", parts, key), key.public)


def test_chunks_are_small_and_come_together(make, key):
    """A large release travels in records of at most 900 KiB, in any order and repeated, and is whole again once."""
    data = seal_release(*make(n=20_000, r=40), key)
    messages = to_messages(1, data)
    assert len(messages) == -(-len(data) // (900 << 10)) > 2
    assert max(len(message.value) for message in messages) <= 900 << 10
    assert [message.key for message in messages] == [b"1/%d" % i for i in range(len(messages))]
    assert assembled(messages[::-1]) == [Assembled(1, data)]
    assert assembled([messages[0], *messages]) == [Assembled(1, data)]
    assert open_release(data, key.public).A.shape == (20_000, 40)


def test_half_releases_never_appear(make, key):
    """A missing, damaged or tombstoned chunk means no release."""
    messages = to_messages(1, seal_release(*make(n=20_000, r=30), key))
    for missing in range(len(messages)):
        assert assembled([m for i, m in enumerate(messages) if i != missing]) == []
    damaged = dataclasses.replace(messages[0], value=messages[0].value[:-1] + b"\0")
    assert assembled([damaged, *messages[1:]]) == []
    dead = tombstones(1, len(messages))
    assert assembled([messages[0], dead[0], *messages[1:]]) == [Removed(1)]


@given(
    key=st.none() | st.sampled_from([b"1/0", b"1/1", b"0/0", b"1/-1", b"01/0", b"x"]) | st.binary(max_size=20),
    value=st.binary(max_size=10),
    headers=st.lists(
        st.tuples(
            st.sampled_from(["version", "chunk", "chunks", "sha256"]),
            st.sampled_from([b"0", b"1", b"2", b"-1", b"9" * 30, b"1_0", b"\xff", b""]),
        )
    ).map(tuple),
)
@settings(max_examples=300, deadline=None)
def test_stray_records_are_passed_over(key, value, headers):
    """Whatever lies in the topic, the assembler neither fails nor makes a release of it."""
    assert Assembler().take(Record("t", 0, 0, key, value, headers, 0)) is None


def test_unfinished_releases_are_bounded():
    """Chunks that never come together do not fill the memory."""
    assembler = Assembler()
    for version in range(1, 100):
        message = to_messages(version, bytes(1 << 20))[0]
        assembler.take(records([message])[0])
    assert len(assembler._pending) <= 8


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=150, deadline=None)
def test_assignment_is_optimal(r, seed, whole):
    """The assignment costs as little as scipy's, ties included."""
    cost = np.random.default_rng(seed).integers(0, 4, (r, r)) if whole else np.random.default_rng(seed).random((r, r))
    columns = assign(cost.astype(float))
    assert sorted(columns) == list(range(r))
    rows, best = linear_sum_assignment(cost)
    assert cost[np.arange(r), list(columns)].sum() == pytest.approx(cost[rows, best].sum())


def test_topics_keep_their_numbers(make, key):
    """Permuted, slightly changed topics over a changed vocabulary are found again."""
    payload, envelope = make(n=30, r=5)
    before = open_release(seal_release(payload, envelope, key), key.public)
    order = np.array([3, 0, 4, 1, 2])
    words = payload.words[1:]
    A = payload.A[1:, order] + 0.001
    assert np.array_equal(order[list(match_topics(payload.words, payload.A, words, A))], np.arange(5))
    changed = dataclasses.replace(
        payload, words=words, A=A, shares=np.arange(5) / 10, top_words=tuple(payload.top_words[i] for i in order)
    )
    release = open_release(seal_release(changed, dataclasses.replace(envelope, n=29), key), key.public)
    matched = release.matched(before)
    assert matched.top_words == before.top_words
    assert [topic.words for topic in matched.topics()] == [topic.words for topic in before.topics()]
    assert pytest.approx(payload.A[1:] + 0.001) == matched.A
    assert matched.shares[order] == pytest.approx(release.shares)
    text = " ".join(payload.words[3:9])
    assert matched.transform([text])[0, order] == pytest.approx(release.transform([text])[0], abs=1e-4)


def test_release_answers(make, key):
    """Topics, proportions and guarantee come from the release."""
    release = open_release(seal_release(*make(), key), key.public)
    (first, second) = release.topics(top=2)
    assert (first.topic, first.share, first.words) == (0, 0.5, release.top_words[0][:2])
    assert second.topic == 1
    theta = release.transform([" ".join(first.words), "", "unknown words only"])
    assert theta.shape == (3, 2)
    assert theta.sum(axis=1) == pytest.approx(np.ones(3))
    assert theta[1:] == pytest.approx(np.full((2, 2), 0.5))
    assert release.transform([]).shape == (0, 2)
    assert (release.guarantee.epsilon, release.guarantee.sigma) == (1.0, 8.5e-7)
    assert "epsilon 1, delta 1e-06" in str(release.guarantee)


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "certificate at most 5e-11", "assumptions"),
        ({}, "an older program made it", "assumptions"),
        ({"revision": 1}, "certificate at most 5e-11", "older program"),
        ({"ratio": 2.5}, "the noise has 2.5 times the norm of the model", "assumptions"),
        ({"guarantee": "theorem", "covered": True}, "under the paper's assumptions;", "certificate"),
        (
            {"guarantee": "theorem", "covered": False},
            "under the paper's assumptions, which do not all hold",
            "certificate",
        ),
    ],
)
def test_a_guarantee_says_what_it_rests_on(make, key, changes, said, unsaid):
    """Assumptions that do not hold, and noise that outweighs the model, are part of the sentence."""
    payload, envelope = make()
    guarantee = open_release(seal_release(payload, dataclasses.replace(envelope, **changes), key), key.public).guarantee
    assert said in str(guarantee)
    assert unsaid not in str(guarantee)
    assert guarantee.vacuous == (changes.get("ratio", 0) >= 1)


def test_envelope_fields_are_the_contract():
    """Names on the wire are what other programs depend on."""
    assert {field.name for field in dataclasses.fields(Envelope)} == {
        "format", "model", "version", "kind", "parent", "base", "cut", "m", "n", "r", "guarantee", "epsilon", "delta",
        "sigma", "tolerance", "certificate", "anchors", "margin", "forgotten", "capacity", "capacity_rule",
        "cumulative_epsilon", "withdrawn", "created", "scale", "slack", "epoch", "counted", "ratio",
        "covered", "revision", "previous", "commitment", "guided",
    }  # fmt: skip
    assert SigningKey.generate().public != SigningKey.generate().public
