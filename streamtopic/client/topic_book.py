"""Numbers and names of topics that stay from version to version.

A version's topics are in the order of their anchor words, so their places say nothing about the version before. A book
follows a model's versions and gives a number to each topic, which the topic keeps while it lasts. Numbers and names
depend on which versions were followed. So they are outside what is signed and claimed: they live with their reader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.signed import Release
from streamtopic.signed.canonical import Whole, load, save

__all__ = ["NamedTopic", "TopicBook"]

Float = npt.NDArray[np.float64]

# Words of a topic by which it is known again: the others add little to a cosine.
_WORDS = 100
# Less alike than this, two topics without a common anchor are two topics.
_ALIKE = 0.3
# An anchor may move to another topic when documents go: below this, a common anchor alone is not enough.
_SAME_ANCHOR = 0.2


@dataclass(frozen=True, slots=True)
class NamedTopic:
    """A topic of the version that was followed last.

    id: its number, from 1, which no other topic of the model has had.
    topic: its number in the version, from 0.
    anchor: its anchor word.
    name: None without one.
    since: the first version that the book met it in.
    words: probabilities of its most frequent words, by which it is known again.
    """

    id: Whole
    topic: Whole
    anchor: str
    name: str | None
    since: Whole
    words: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Book:
    """What the file of a book holds. next: the number of the next new topic."""

    model: str = ""
    version: Whole = 0
    next: Whole = 1
    topics: tuple[NamedTopic, ...] = ()


class TopicBook:
    """Follows the topics of a model through its versions.

    path: file that keeps the book, None for a book in memory. It holds words of the newest version that was followed,
        and none of a topic that has ended. After a withdrawal follow the next version, so that the file has its words.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Open the book. Raises UsageError for a file that is not one."""
        self._path = None if path is None else Path(path)
        there = self._path is not None and self._path.exists()
        self._book = load(_Book, self._path, "book of topics") if self._path is not None and there else _Book()

    @property
    def topics(self) -> tuple[NamedTopic, ...]:
        """The topics of the version that was followed last, in its order."""
        return self._book.topics

    @property
    def version(self) -> int:
        """The version that was followed last, 0 before the first."""
        return self._book.version

    def follow(self, release: Release) -> tuple[NamedTopic, ...]:
        """Return the topics of a version with their numbers and names, in the version's order.

        A topic is known again by its anchor word, else by its words: those pairs whose cosines are largest in sum, of
        .3 at least. All others are new. A version that was followed before changes nothing.

        Raises UsageError for a version of another model or an older one, InvalidRelease if topics are withheld.
        """
        book, model = self._book, release.envelope.model
        if book.model not in ("", model):
            raise UsageError(f"this book follows the topics of model {book.model}, not of {model}: use another file")
        if release.version < book.version:
            raise UsageError(f"this book has followed version {book.version}: version {release.version} is older")
        found, new = _topics(release), book.next
        followed = []
        for topic, before in zip(found, _known_again(book.topics, found), strict=True):
            if before is None:
                followed.append(replace(topic, id=new))
                new += 1
            else:
                followed.append(replace(topic, id=before.id, since=before.since, name=before.name))
        self._keep(_Book(model, release.version, new, tuple(followed)))
        return self.topics

    def name(self, number: int, name: str | None) -> None:
        """Give a topic a name, or take it away with None. It stays until then, whatever the topic's words are.

        number: `id` of a topic of the version that was followed last.

        Raises UsageError for another number.
        """
        have = [topic.id for topic in self.topics]
        if number not in have:
            listed = ", ".join(map(str, have)) or "no topics yet"
            raise UsageError(f"there is no topic {number} in version {self.version}: it has {listed}")
        renamed = (replace(topic, name=name) if topic.id == number else topic for topic in self.topics)
        self._keep(replace(self._book, topics=tuple(renamed)))

    def _keep(self, book: _Book) -> None:
        self._book = book
        if self._path is not None:
            save(book, self._path)


def _topics(release: Release) -> list[NamedTopic]:
    """Return the topics of a version, without numbers yet."""
    A = np.asarray(release.A)
    found = []
    for topic, anchor in enumerate(release.anchors):
        column = A[:, topic]
        best = np.argsort(-column, kind="stable")[:_WORDS].tolist()
        held = [k for k in best if column[k] > 0]
        words = {release.words[k]: float(column[k]) for k in held}
        found.append(NamedTopic(0, topic, anchor, None, release.version, words))
    return found


def _known_again(before: Sequence[NamedTopic], now: Sequence[NamedTopic]) -> list[NamedTopic | None]:
    """Return for each topic the one of the version before that it is, None for a new one."""
    from scipy.optimize import linear_sum_assignment

    place: dict[str, int] = {}
    for topic in (*before, *now):
        for word in topic.words:
            place.setdefault(word, len(place))
    alike = _directions(now, place) @ _directions(before, place).T
    anchors = np.array([topic.anchor for topic in now], object)
    others = np.array([topic.anchor for topic in before], object)
    same = (anchors[:, None] == others) & (alike >= _SAME_ANCHOR)
    # A common anchor is worth more than any two pairs by their words, and a pair that is not alike as much as no pair.
    worth = np.where(same, 2 + alike, np.where(alike >= _ALIKE, alike, 0.0))
    found: list[NamedTopic | None] = [None] * len(now)
    for row, column in zip(*linear_sum_assignment(worth, maximize=True), strict=True):
        if worth[row, column] > 0:
            found[row] = before[column]
    return found


def _directions(topics: Sequence[NamedTopic], place: Mapping[str, int]) -> Float:
    """Return the kept words of each topic as a vector of length 1, (topics, words). place: of each word."""
    table = np.zeros((len(topics), len(place)))
    for row, topic in zip(table, topics, strict=True):
        row[[place[word] for word in topic.words]] = list(topic.words.values())
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-300))
