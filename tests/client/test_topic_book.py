"""Topics keep their numbers and names from version to version."""

import json

import numpy as np
import pytest

from ledger_maker import envelope_of
from streamtopic.client import TopicBook
from streamtopic.errors import UsageError
from streamtopic.signed import Payload, Release

WORDS = tuple(f"w{k:03d}" for k in range(120))


def release(version, A, anchors, top=0, **changes):
    """A version with these topics (n, r) and anchor words, which shows so many words of each."""
    r = A.shape[1]
    shown = [tuple(WORDS[k] for k in np.argsort(-column)[:top]) for column in A.T]
    payload = Payload(WORDS, A, np.eye(r) / r, np.full(r, 1 / r), tuple(shown), anchors=tuple(anchors))
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
    assert [topic.title for topic in again.follow(release(2, table[:, ::-1], "FEDCBA"))] == [*"FED", "harvests", *"BA"]
    again.name(3, None)
    assert again.topics[3].title == "C"
    gone = table[:, [0, 1, 2]].copy()
    gone[40:] = 0
    TopicBook(path).follow(release(3, gone / gone.sum(axis=0), "abc"))
    held = json.loads(path.read_text("utf-8"))
    words = {word for topic in held["topics"] for word in topic["words"]}
    assert words <= {*WORDS[:40]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["names.json"]


def test_a_name_that_was_found_for_words_goes_with_them(table, tmp_path):
    """It may say what a forgotten document said; a name of the user stays."""
    path = tmp_path / "names.json"
    book = TopicBook(path)
    first, second, *_ = book.follow(release(1, table, "abcdef"))
    words = first.first(5)
    assert words == tuple(WORDS[k] for k in np.argsort(-table[:, 0], kind="stable")[:5])
    book.name(first.id, "about harvests", words)
    book.name(second.id, "mine")
    assert TopicBook(path).topics == book.topics
    assert book.follow(release(2, table, "abcdef"))[0].name == "about harvests"
    # The most frequent word leaves, as if the documents that held it had been forgotten.
    without = table.copy()
    without[np.argmax(table[:, 0]), 0] = 0.0
    after = book.follow(release(3, without / without.sum(axis=0), "abcdef"))
    assert (after[0].id, after[0].title, after[1].title) == (first.id, "a", "mine")


def test_what_cannot_be_followed_is_refused(table, tmp_path):
    """Another model, an older version, unknown topics, bad names and other files are named, with a remedy."""
    book = TopicBook()
    book.follow(release(2, table, "abcdef"))
    with pytest.raises(UsageError, match="another file"):
        book.follow(release(3, table, "abcdef", model="other"))
    with pytest.raises(UsageError, match="older"):
        book.follow(release(1, table, "abcdef"))
    with pytest.raises(UsageError, match="no topic 7 in version 2: it has 1, 2"):
        book.name(7, "x")
    for bad in ("two\nlines", "x" * 101):
        with pytest.raises(UsageError, match="printable"):
            book.name(1, bad)
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


def test_topics_of_one_name_are_shown_as_one(table, tmp_path):
    """The book keeps which topics are shown together or not at all, while they last, and the model keeps each."""
    path = tmp_path / "names.json"
    book = TopicBook(path)
    first = release(1, table, "abcdef", top=4)
    book.follow(first)
    for number in (1, 2, 4, 5):
        book.name(number, "whole")
    book.name(3, "")
    whole, last = TopicBook(path).shown(first, top=5)
    assert (whole.title, [topic.topic for topic in whole.topics], last.title) == ("whole", [0, 1, 3, 4], "f")
    assert (whole.share, last.share) == (pytest.approx(4 / 6), pytest.approx(1 / 6))
    together = dict(zip(WORDS, table[:, [0, 1, 3, 4]].sum(axis=1), strict=True))
    offered = {word for topic in whole.topics for word in first.top_words[topic.topic]}
    assert list(whole.words) == sorted(offered, key=together.get, reverse=True)[:5]
    assert last.words == first.top_words[5][:5]
    second = release(2, table[:, 1:], "bcdef", top=4)
    book.follow(second)
    book.name(2, None)
    book.name(3, None)
    assert sorted(topic.title for topic in book.shown(second)) == ["b", "c", "f", "whole"]
    with pytest.raises(UsageError, match="follow it first"):
        book.shown(first)
