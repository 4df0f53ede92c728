"""Numbers and names of topics that stay from version to version.

A version's topics are in the order of their anchor words, so their places say nothing about the version before. A book
follows a model's versions and gives a number to each topic, which the topic keeps while it lasts. Numbers and names
depend on which versions were followed. So they are outside what is signed and claimed: they live with their reader.

Names also say what is displayed: topics of one name are shown as one, and a topic with an empty name is not shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.signed import Release
from streamtopic.signed.canonical import load, save

__all__ = ["NamedTopic", "ShownTopic", "TopicBook"]

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
    named_for: the words that the name was found for; () for a name that stays whatever the words are.
    """

    id: int
    topic: int
    anchor: str
    name: str | None
    since: int
    words: Mapping[str, float]
    named_for: tuple[str, ...] = ()

    def first(self, count: int) -> tuple[str, ...]:
        """Return its most frequent words, `count` at most."""
        return tuple(sorted(self.words, key=self.words.__getitem__, reverse=True)[:count])

    def known_as(self, before: "NamedTopic") -> "NamedTopic":
        """Return it with number and name of the same topic in the version before.

        A name that was found for words is dropped with them: it may say what a forgotten document said.
        """
        known = replace(self, id=before.id, since=before.since)
        if set(before.named_for) != set(self.first(len(before.named_for))):
            return known
        return replace(known, name=before.name, named_for=before.named_for)

    @property
    def title(self) -> str:
        """The name, or the anchor word of a topic without one."""
        return self.anchor if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class _Book:
    """What the file of a book holds. next: the number of the next new topic."""

    model: str = ""
    version: int = 0
    next: int = 1
    topics: tuple[NamedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """One topic for display, of one topic of the version or of several that have one name.

    title: the name, or the anchor word.
    topics: these topics; each `topic` is a column of `transform`, to be added up.
    share: of the corpus, of all of them.
    words: in display order.
    """

    title: str
    topics: tuple[NamedTopic, ...]
    share: float
    words: tuple[str, ...]


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
            followed.append(replace(topic, id=new) if before is None else topic.known_as(before))
            new += before is None
        self._keep(_Book(model, release.version, new, tuple(followed)))
        return self.topics

    def name(self, number: int, name: str | None, named_for: Sequence[str] = ()) -> None:
        """Give a topic a name, or take it away with None.

        number: `id` of a topic of the version that was followed last.
        name: that of another topic to show both as one, "" to show it no more.
        named_for: words that the name was found for, as by a language model, such as `first(10)` of the topic: the name
            goes once these are not its most frequent words any more. () for a name that stays.

        Raises UsageError for another number or a name that cannot be printed in a line.
        """
        if name is not None and not (name.isprintable() and len(name) <= 100):
            raise UsageError(f"a topic cannot be named {name!r}: give a name of at most 100 printable characters")
        have = [topic.id for topic in self.topics]
        if number not in have:
            listed = ", ".join(map(str, have)) or "no topics yet"
            raise UsageError(f"there is no topic {number} in version {self.version}: it has {listed}")
        changed = list(self.topics)
        place = have.index(number)
        changed[place] = replace(changed[place], name=name, named_for=tuple(named_for))
        self._keep(replace(self._book, topics=tuple(changed)))

    def shown(self, release: Release, top: int = 10) -> tuple[ShownTopic, ...]:
        """Return the topics of a version as they are displayed, the largest share first.

        release: the version that was followed last. Words of topics that are shown as one are among those that the
            release shows, in the order of their probability in all of them together.
        Raises UsageError for another version, and as `Release.topics`.
        """
        if (self._book.model, self.version) != (release.envelope.model, release.version):
            raise UsageError(f"this book has followed version {self.version}, not {release.version}: follow it first")
        found = release.topics(top)
        by_title: dict[str, list[NamedTopic]] = {}
        for topic in self.topics:
            by_title.setdefault(topic.title, []).append(topic)
        by_title.pop("", None)
        shown = []
        for title, parts in by_title.items():
            columns = [part.topic for part in parts]
            shares = release.shares[columns]
            words = found[columns[0]].words
            if len(parts) > 1:
                together = dict(zip(release.words, release.A[:, columns] @ shares, strict=True))
                offered = {word for column in columns for word in found[column].words}
                words = tuple(sorted(offered, key=lambda word: (-together[word], word))[:top])
            shown.append(ShownTopic(title, tuple(parts), float(shares.sum()), words))
        return tuple(sorted(shown, key=lambda one: -one.share))

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
