"""Releases: the bytes of a version, its heads of tasks, and how readers use both."""

import dataclasses
import math

import numpy as np
import pytest

from ledger_maker import envelope_of, payload_of
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed import Head, Payload, open_release, pack_payload
from streamtopic.tensors import parts, unpacked


def made(n=6, r=2, seed=0, **changes):
    """Payload and facts of a version. changes: fields of Envelope."""
    return payload_of(n, r, seed), envelope_of(**({"n": n, "r": r} | changes))


def opened(payload, envelope=None):
    """The release as a reader has it, once its proof was checked. envelope: None for facts that fit the payload."""
    envelope = envelope or envelope_of(n=len(payload.words), r=len(payload.anchors))
    return open_release(pack_payload(payload, envelope), envelope)


def test_a_release_reads_back_as_written():
    """Every field of the payload comes back equal, arrays bit for bit; its facts are those of the ledger."""
    payload, envelope = made(version=3, withdrawn=(1, 2), ratio=0.25, covered=False, release="d" * 64)
    payload = dataclasses.replace(payload, guided={"cars": ("w00001",), "ended": ()})
    release = opened(payload, envelope)
    assert (release.envelope, release.version, release.digest) == (envelope, 3, "d" * 64)
    for field in dataclasses.fields(Payload):
        wrote, read = getattr(payload, field.name), getattr(release.payload, field.name)
        assert np.array_equal(wrote, read) if isinstance(wrote, np.ndarray) else wrote == read
    assert release.payload.A.dtype == np.float32
    assert release.anchors == payload.anchors


def test_every_field_of_a_payload_is_there():
    """A missing field is refused, unless topics are withheld as a whole; so is a field that no model has."""
    payload, envelope = made()
    arrays, texts = unpacked(pack_payload(payload, envelope))
    wrong = [(arrays, texts | {"classes": '["a"]'}), (arrays, texts | {"quality": '{ "npmi":0.5}'})]
    wrong += [(arrays | {name: arrays["A"]}, texts) for name in ("other", "heads/none/w", "words")]
    for name in (*arrays, *texts):
        left = [{other: value for other, value in held.items() if other != name} for held in (arrays, texts)]
        wrong.append(tuple(left))
    for other in wrong:
        with pytest.raises(InvalidRelease):
            open_release(b"".join(parts(*other)), envelope)


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
        {"A": np.full((6, 2), 0.5, np.float32)},
        {"A": np.array([[2, 1], [-1, 0], *[[0, 0]] * 4], np.float32)},
        {"shares": np.array([0.5, np.inf])},
        {"shares": np.array([0.5, 0.6])},
        {"shares": np.array([1.5, -0.5])},
        {"R": np.diag([0.5, -0.5]).astype(np.float32)},
        {"R": np.array([[0.5, 0.1], [0.2, 0.5]], np.float32)},
        {"anchors": ("w00000",)},
        {"top_words": (("w00000",),)},
    ],
    ids=str,
)
def test_models_with_parts_missing_or_no_numbers_are_not_published(change):
    """Topics come whole, or not at all and then with heads only; their numbers are shares, and a covariance."""
    payload, envelope = made()
    with pytest.raises(InvalidRelease):
        pack_payload(dataclasses.replace(payload, **change), envelope)


@pytest.mark.parametrize("certificate", [1.01e-7, math.inf, math.nan])
def test_a_certificate_above_the_tolerance_is_not_published(certificate):
    """The noise is made for models that lie within the tolerance of the exact one."""
    with pytest.raises(InvalidRelease, match="certificate"):
        pack_payload(*made(certificate=certificate))


@pytest.mark.parametrize("changes", [{"n": 7}, {"r": 3}])
def test_bytes_that_contradict_their_facts_are_refused(changes):
    """Shapes must fit n and r, both where a release is made and where it is read."""
    payload, envelope = made()
    facts = dataclasses.replace(envelope, **changes)
    with pytest.raises(InvalidRelease):
        pack_payload(payload, facts)
    with pytest.raises(InvalidRelease):
        open_release(pack_payload(payload, envelope), facts)


def test_release_answers():
    """Topics, proportions and guarantee come from the release."""
    release = opened(*made())
    (first, second) = release.topics(top=2)
    assert (first.topic, first.share, first.words) == (0, 0.5, release.top_words[0][:2])
    assert second.topic == 1
    with pytest.warns(UserWarning, match=r"2 of 3 documents hold no word of the model \(rows 1, 2\)"):
        theta = release.transform([" ".join(first.words), "", "unknown words only"])
    assert theta.shape == (3, 2)
    assert theta.sum(axis=1) == pytest.approx(np.ones(3))
    assert theta[1:] == pytest.approx(np.full((2, 2), 0.5))
    assert release.transform([]).shape == (0, 2)
    assert "epsilon 1, delta 1e-06" in release.guarantee


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "certificate at most 5e-11", "assumptions"),
        ({"ratio": 2.5}, "the noise has 2.5 times the norm of the model", "assumptions"),
        ({"guarantee": "theorem", "covered": True}, "under the paper's assumptions;", "certificate"),
        (
            {"guarantee": "theorem", "covered": False},
            "under the paper's assumptions, which do not all hold",
            "certificate",
        ),
    ],
)
def test_a_guarantee_says_what_it_rests_on(changes, said, unsaid):
    """Assumptions that do not hold, and noise that outweighs the model, are part of the sentence."""
    guarantee = opened(*made(**changes)).guarantee
    assert said in guarantee
    assert unsaid not in guarantee


# Heads of tasks.


def with_heads(payload, **heads):
    """The payload with heads on its first two words as anchors: w by task, or B in place of A, R and shares."""
    return dataclasses.replace(payload, heads=heads)


def withheld(n=6, **heads):
    """A payload without topics."""
    words = tuple(f"w{i:05d}" for i in range(n))
    return Payload(words, heads=heads, anchors=words[:2])


W = Head(("w00001", "w00000"), ("no", "yes"), 9, w=np.array([[1.0, -1.0], [-2.0, 2.0]]))
B = Head(("w00001",), ("a", "b", "c"), 7, B=np.arange(18, dtype=np.float32).reshape(6, 3))


def test_heads_read_back():
    """Heads travel with the topics as w, or in their place as B; every field comes back, arrays bit for bit."""
    for sent in (with_heads(payload_of(), desk=W, mood=W), withheld(desk=B, mood=B)):
        release = opened(sent)
        assert release.data() == pack_payload(sent, release.envelope)
        assert release.heads == ("desk", "mood")
        for task, head in sent.heads.items():
            got = release.head(task)
            assert (got.topics, got.classes, got.documents) == (head.topics, head.classes, head.documents)
            assert np.array_equal(got.w, head.w)
            assert np.array_equal(got.B, head.B)
            assert {array.dtype for array in (got.w, got.B) if array is not None} <= {np.dtype("f8"), np.dtype("f4")}


def test_scores_are_x_times_b():
    """Scores follow from shares of the vocabulary's words; a text without one is of no class, not of the first."""
    payload = payload_of()
    release = opened(with_heads(payload, desk=W))
    weights = payload.A.astype(float)[:, [1, 0]] @ W.w
    assert release.task_weights("desk") == pytest.approx(weights)
    assert release.classes("desk") == ("no", "yes")
    texts = ["w00002 w00002 w00005 unknown", "nothing known", ""]
    by_hand = (2 * weights[2] + weights[5]) / 3
    assert release.scores(texts, "desk") == pytest.approx(np.array([by_hand, [0, 0], [0, 0]]))
    assert release.classify(texts, "desk") == [("no", "yes")[int(by_hand.argmax())], None, None]
    assert release.scores([], "desk").shape == (0, 2)
    assert release.classify([], "desk") == []


def test_withheld_topics_say_so():
    """Where only heads are published, they classify, and whatever needs A says that it is withheld."""
    release = opened(withheld(desk=B))
    assert np.array_equal(release.task_weights("desk"), B.B)
    assert release.classify(["w00003"], "desk") == ["c"]
    assert release.top_words == ()
    for ask in (
        lambda: release.A,
        lambda: release.R,
        lambda: release.shares,
        release.topics,
        lambda: release.transform(["w00001"]),
    ):
        with pytest.raises(InvalidRelease, match="withholds its topics"):
            ask()
    with pytest.raises(UsageError, match="it has desk"):
        release.classes("mood")


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ("yes", "no")},
        {"classes": ("yes",), "w": np.zeros((2, 1))},
        {"classes": ("no", "no")},
        {"documents": 1},
        {"topics": ()},
        {"topics": ("w00001", "w00001")},
        {"topics": ("w00001", "w00005")},
        {"w": np.zeros((3, 2))},
        {"w": None},
        {"w": np.array([[np.nan, 0], [0, 0]])},
        {"w": None, "B": np.zeros((6, 2), np.float32)},
        {"B": np.zeros((6, 2), np.float32)},
    ],
    ids=str,
)
def test_heads_that_contradict_themselves_are_not_published(change):
    """Classes sorted and distinct, topics among the anchors, shapes that fit, numbers that are numbers."""
    with pytest.raises(InvalidRelease, match="head of task 'desk'"):
        pack_payload(with_heads(payload_of(), desk=dataclasses.replace(W, **change)), envelope_of())


def test_words_of_a_class_are_those_that_speak_for_it():
    """In order of B less its mean over classes, ties by word."""
    release = opened(withheld(desk=B))
    assert release.class_words("desk", 2)["c"] == ("w00000", "w00001")
    tilted = dataclasses.replace(B, B=B.B * np.array([[1, -1, 0]], np.float32))
    release = opened(withheld(desk=tilted))
    assert release.class_words("desk", 2)["a"] == ("w00005", "w00004")
    assert release.class_words("desk", 99)["b"][0] == "w00000"
