"""Numbers and names of topics that stay from version to version.

A version's topics are in the order of their anchor words, so their places say nothing about the version before. A book
follows a model's versions and gives a number to each topic, which the topic keeps while it lasts. Numbers and names
depend on which versions were followed. So they are outside what is signed and claimed: they live with their reader.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.signed import Release
from streamtopic.signed.canonical import load, save

__all__ = ["NamedTopic", "ShownTopic", "TopicBook"]

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
    name: given by the user or by `name_by`, None without one.
    since: the first version that the book met it in.
    words: probabilities of its most frequent words, by which it is known again.
    asked: the words that `name_by` got the name for; () for a name that the user gave.
    within: the `id` of the topic that it is shown as a part of; its own if it is shown by itself.
    dropped: whether it is not shown.
    """

    id: int
    topic: int
    anchor: str
    name: str | None
    since: int
    words: Mapping[str, float]
    asked: tuple[str, ...] = ()
    within: int = 0
    dropped: bool = False

    def first(self, count: int) -> tuple[str, ...]:
        """Return its most frequent words, `count` at most."""
        return tuple(sorted(self.words, key=self.words.__getitem__, reverse=True)[:count])

    def named_as(self, before: "NamedTopic") -> "NamedTopic":
        """Return it with number and name of the same topic in the version before.

        A name that was found for words is dropped with them: it may say what a forgotten document said.
        """
        known = replace(self, id=before.id, since=before.since, within=before.within, dropped=before.dropped)
        first = self.first(len(before.asked))
        if before.asked and set(before.asked) != set(first):
            return known
        return replace(known, name=before.name, asked=before.asked)

    @property
    def title(self) -> str:
        """The name, or the anchor word of a topic without one."""
        return self.name or self.anchor


@dataclass(frozen=True, slots=True)
class _Book:
    """What the file of a book holds. next: the number of the next new topic."""

    model: str
    version: int
    next: int
    topics: tuple[NamedTopic, ...]


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """One topic for display, of one topic of the version or of several that were merged.

    id: the number of the topic, or of the one that the others were merged into.
    title: its name, or its anchor word.
    topics: their numbers in the version, from 0: the columns of `transform` to add up.
    share: of the corpus, of all of them.
    words: in display order.
    """

    id: int
    title: str
    topics: tuple[int, ...]
    share: float
    words: tuple[str, ...]


class TopicBook:
    """Follows the topics of a model through its versions.

    path: file that keeps the book, None for a book in memory. It holds words of the newest version that was followed,
        and none of a topic that has ended. After a withdrawal follow the next version, so that the file has its words.
    topics: of the version that was followed last, in its order.
    version: the version that was followed last, 0 before the first.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Open the book. Raises UsageError for a file that is not one."""
        self._path = None if path is None else Path(path)
        self.topics: tuple[NamedTopic, ...] = ()
        self.version = 0
        self._model = ""
        self._next = 1
        if self._path is not None and self._path.exists():
            book = load(_Book, self._path, "book of topics")
            self._model, self.version, self._next, self.topics = book.model, book.version, book.next, book.topics

    def follow(self, release: Release) -> tuple[NamedTopic, ...]:
        """Return the topics of a version with their numbers and names, in the version's order.

        A topic is known again by its anchor word, else by its words: those pairs first whose cosines are largest in
        sum, of .3 at least. All others are new. A version that was followed before changes nothing.

        Raises UsageError for a version of another model or an older one, InvalidRelease if topics are withheld.
        """
        model = release.envelope.model
        if self._model not in ("", model):
            raise UsageError(f"this book follows the topics of model {self._model}, not of {model}: use another file")
        if release.version < self.version:
            raise UsageError(f"this book has followed version {self.version}: version {release.version} is older")
        found = _topics(release)
        known = _known_again(self.topics, found)
        followed = []
        for topic, before in zip(found, known, strict=True):
            if before is None:
                followed.append(replace(topic, id=self._next, within=self._next))
                self._next += 1
            else:
                followed.append(topic.named_as(before))
        there = {topic.id for topic in followed}
        # A topic whose whole has ended is shown by itself again.
        followed = [topic if topic.within in there else replace(topic, within=topic.id) for topic in followed]
        self._model = model
        self.version = release.version
        self.topics = tuple(followed)
        self._write()
        return self.topics

    def name(self, number: int, name: str | None) -> None:
        """Give a topic a name, or take it away with None.

        number: `id` of a topic of the version that was followed last. Raises UsageError for another number or a name
        that cannot be printed in a line.
        """
        _check_name(name)
        self._change([number], name=name, asked=())

    def merge(self, number: int, others: Sequence[int]) -> None:
        """Show topics as parts of another one, and all that was merged into them before. The model keeps each.

        number, others: `id` of topics of the version that was followed last. Raises UsageError for other numbers.
        """
        parts = [topic.id for topic in self.topics if topic.within in others]
        self._change([number, *others, *parts], within=number)

    def drop(self, numbers: Sequence[int]) -> None:
        """Show these topics no more. `restore` undoes it. Raises UsageError as `merge`."""
        self._change(numbers, dropped=True)

    def restore(self, numbers: Sequence[int]) -> None:
        """Show each of these topics by itself again: undo `merge` and `drop`. Raises UsageError as `merge`."""
        for number in numbers:
            self._change([number], within=number, dropped=False)

    def shown(self, release: Release, top: int = 10) -> tuple[ShownTopic, ...]:
        """Return the topics of a version as they are displayed: merged, without dropped ones, the largest share first.

        release: the version that was followed last. Words of merged topics are among those that the release shows, in
            the order of their probability in all of them together.
        Raises UsageError for another version, and as `Release.topics`.
        """
        if (self._model, self.version) != (release.envelope.model, release.version):
            raise UsageError(f"this book has followed version {self.version}, not {release.version}: follow it first")
        found = release.topics(top)
        place = {word: k for k, word in enumerate(release.words)}
        shown = []
        for whole in self.topics:
            if whole.dropped or whole.within != whole.id:
                continue
            parts = [topic.topic for topic in self.topics if topic.within == whole.id and not topic.dropped]
            shares = release.shares[parts]
            words = found[parts[0]].words
            if len(parts) > 1:
                together = release.A[:, parts] @ shares
                offered = {word for k in parts for word in found[k].words}
                words = tuple(sorted(offered, key=lambda word: (-together[place[word]], word))[:top])
            shown.append(ShownTopic(whole.id, whole.title, tuple(parts), float(shares.sum()), words))
        return tuple(sorted(shown, key=lambda topic: -topic.share))

    def _change(self, numbers: Sequence[int], **changes: Any) -> None:  # noqa: ANN401  fields of a topic
        """Change topics of the version that was followed last. Raises UsageError for numbers that it does not have."""
        have = [topic.id for topic in self.topics]
        for number in numbers:
            if number not in have:
                listed = ", ".join(map(str, have)) or "no topics yet"
                raise UsageError(f"there is no topic {number} in version {self.version}: it has {listed}")
        changed = [replace(topic, **changes) if topic.id in numbers else topic for topic in self.topics]
        self.topics = tuple(changed)
        self._write()

    def name_by(self, ask: Callable[[Sequence[str]], str | None], count: int = 10) -> int:
        """Name each topic that has no name by a function, such as a call of a language model; return how many got one.

        ask: returns a name for the first words of a topic, most frequent first, or None. It sees nothing else: words of
            a version that is published already, and no document.
        count: number of these words, from 1.

        A name stays as long as these words are the first ones of the topic; then `name_by` asks again. A name that the
        user gives stays for good. Raises UsageError for a name that cannot be printed in a line; those before it stay.
        """
        if count < 1:
            raise UsageError(f"a name for {count} words cannot be found: give 1 word or more")
        named = 0
        for topic in self.topics:
            if topic.name is not None:
                continue
            asked = topic.first(count)
            name = ask(asked)
            if name is None:
                continue
            _check_name(name)
            self._change([topic.id], name=name, asked=asked)
            named += 1
        return named

    def _write(self) -> None:
        if self._path is not None:
            save(_Book(self._model, self.version, self._next, self.topics), self._path)


def _check_name(name: str | None) -> None:
    """Raise UsageError for a name that cannot be printed in a line."""
    if name is None:
        return
    fits_a_line = name.strip() and name.isprintable() and len(name) <= 100
    if not fits_a_line:
        raise UsageError(f"a topic cannot be named {name!r}: give a name of 1 to 100 printable characters")


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


def _known_again(before: tuple[NamedTopic, ...], now: list[NamedTopic]) -> list[NamedTopic | None]:
    """Return for each topic the one of the version before that it is, None for a new one."""
    from scipy.optimize import linear_sum_assignment

    alike = _cosines(now, before)
    found: list[NamedTopic | None] = [None] * len(now)
    by_anchor = {topic.anchor: k for k, topic in enumerate(before)}
    left = set(range(len(before)))
    for row, topic in enumerate(now):
        place = by_anchor.get(topic.anchor, -1)
        if place in left and alike[row, place] >= _SAME_ANCHOR:
            found[row] = before[place]
            left.remove(place)
    rows = [row for row, topic in enumerate(found) if topic is None]
    columns = sorted(left)
    nearness = alike[np.ix_(rows, columns)]
    # A pair that is not alike is worth as much as no pair.
    worth = np.where(nearness >= _ALIKE, nearness, 0.0)
    for row, column in zip(*linear_sum_assignment(worth, maximize=True), strict=True):
        if worth[row, column] > 0:
            found[rows[row]] = before[columns[column]]
    return found


def _cosines(left: list[NamedTopic], right: tuple[NamedTopic, ...]) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair of topics by their kept words, (left, right)."""
    every = (*left, *right)
    words = sorted({word for topic in every for word in topic.words})
    place = {word: k for k, word in enumerate(words)}
    tables = []
    for topics in (left, right):
        table = np.zeros((len(topics), len(words)))
        for row, topic in enumerate(topics):
            columns = [place[word] for word in topic.words]
            table[row, columns] = list(topic.words.values())
        length = np.linalg.norm(table, axis=1, keepdims=True)
        bounded = np.maximum(length, 1e-300)
        tables.append(table / bounded)
    return np.asarray(tables[0] @ tables[1].T)
