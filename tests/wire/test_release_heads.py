"""Heads of downstream tasks, as releases carry them and readers use them."""

import dataclasses

import numpy as np
import pytest

from ledger_maker import envelope_of, payload_of
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed import Head, Payload, open_release, pack_payload


def with_heads(payload, **heads):
    """The payload with heads on its first two words as anchors: w by task, or B in place of A, R and shares."""
    return dataclasses.replace(payload, heads=heads)


def withheld(n=6, **heads):
    """A payload without topics."""
    words = tuple(f"w{i:05d}" for i in range(n))
    return Payload(words, heads=heads, anchors=words[:2])


def opened(payload, **facts):
    """The release of a payload, as a reader has it once its proof was checked."""
    envelope = envelope_of(n=len(payload.words), r=len(payload.anchors), **facts)
    return open_release(pack_payload(payload, envelope), envelope)


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
