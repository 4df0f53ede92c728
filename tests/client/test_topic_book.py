"""Topics keep their numbers and names from version to version."""

import json

import numpy as np
import pytest

from ledger_maker import envelope_of
from streamtopic.client import TopicBook
from streamtopic.errors import UsageError
from streamtopic.signed import Payload, Release

WORDS = tuple(f"w{k:03d}" for k in range(120))


def release(version, A, anchors, **changes):
    """A version with these topics (n, r) and anchor words."""
    r = A.shape[1]
    payload = Payload(WORDS, A, np.eye(r) / r, np.full(r, 1 / r), anchors=tuple(anchors))
    return Release(payload, envelope_of(version, **{"n": len(WORDS), "r": r, **changes}))


@pytest.fixture
def table():
    """Six topics over 120 words."""
    return np.random.default_rng(2).dirichlet(np.full(len(WORDS), 0.1), 6).T


def ids(topics):
    """The number of each topic."""
    return [topic.id for topic in topics]


def test_topics_are_known_again_by_anchor_and_by_words(table):
    """The order of topics, their anchors and their words change: a topic that lasts keeps its number."""
    book = TopicBook()
    assert ids(book.follow(release(1, table, "abcdef"))) == [1, 2, 3, 4, 5, 6]
    moved = 0.9 * table[:, ::-1] + 0.1 / len(WORDS)
    # Two have kept their anchors, and the anchor of one has become that of another topic, whose words it does not have.
    assert ids(book.follow(release(2, moved, "fxyzba"))) == [6, 5, 4, 3, 2, 1]
    assert ids(book.topics) == [6, 5, 4, 3, 2, 1]


def test_a_topic_that_ends_gives_its_number_to_no_other(table):
    """A topic with new words is a new one, also in the place and with the anchor of one that ended."""
    book = TopicBook()
    book.follow(release(1, table, "abcdef"))
    other = np.random.default_rng(9).dirichlet(np.full(len(WORDS), 0.02), 1)[0]
    changed = np.column_stack([table[:, :5], other])
    assert ids(book.follow(release(2, changed, "abcdef"))) == [1, 2, 3, 4, 5, 7]
    fewer = book.follow(release(3, table[:, 1:3], "bc"))
    assert ids(fewer) == [2, 3]
    assert [topic.since for topic in fewer] == [1, 1]
    assert ids(book.follow(release(4, table, "abcdef"))) == [8, 2, 3, 9, 10, 11]


def test_names_stay_and_a_file_keeps_them(table, tmp_path):
    """A name goes with its topic, through another process; a topic that ended leaves none of its words in the file."""
    path = tmp_path / "names.json"
    book = TopicBook(path)
    book.follow(release(1, table, "abcdef"))
    book.name(3, "harvests")
    again = TopicBook(path)
    assert again.version == 1
    names = [topic.name for topic in again.follow(release(2, table[:, ::-1], "FEDCBA"))]
    assert names == [None, None, None, "harvests", None, None]
    again.name(3, None)
    assert again.topics[3].name is None
    gone = table[:, [0, 1, 2]].copy()
    gone[40:] = 0
    TopicBook(path).follow(release(3, gone / gone.sum(axis=0), "abc"))
    held = json.loads(path.read_text("utf-8"))
    words = {word for topic in held["topics"] for word in topic["words"]}
    assert words <= {*WORDS[:40]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["names.json"]


def test_what_cannot_be_followed_is_refused(table, tmp_path):
    """Another model, an older version, unknown topics and other files are named, with a remedy."""
    book = TopicBook()
    book.follow(release(2, table, "abcdef"))
    with pytest.raises(UsageError, match="another file"):
        book.follow(release(3, table, "abcdef", model="other"))
    with pytest.raises(UsageError, match="older"):
        book.follow(release(1, table, "abcdef"))
    with pytest.raises(UsageError, match="no topic 7 in version 2: it has 1, 2"):
        book.name(7, "x")
    for content in (
        "[]",
        "[" * 100_000,
        "{}",
        '{"format": 2}',
        "\xff",
        '{"format": 2, "model": "m", "version": 1, "next": 2, "topics": 3}',
    ):
        path = tmp_path / "file"
        path.write_text(content, encoding="latin-1")
        with pytest.raises(UsageError, match="not a book"):
            TopicBook(path)
