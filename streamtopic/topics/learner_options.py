"""The options of a learner, in one value."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from streamtopic.counts import Weighting
from streamtopic.errors import CannotLearn, UsageError

__all__ = ["LEAST_TOLERANCE", "GuidedTopic", "LearnerOptions", "too_few_words", "too_much_alike", "words_given"]

LEAST_TOLERANCE = 1e-9
"""A lower tolerance would ask the certificate to be sharper than the rounding of its own inputs."""

_NUMBERS = ("min_df", "min_share", "max_df", "anchor_min_df", "max_words", "max_candidates", "tolerance")


@dataclass(frozen=True, slots=True)
class GuidedTopic:
    """A topic that people ask for.

    name: the name of the topic.
    seeds: words that represent it together, all different.
    """

    name: str
    seeds: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.seeds:
            raise UsageError(f"guided topic {self.name} has no seed: give one or more words that stand for it")
        if len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"guided topic {self.name} names a seed twice: name each seed once")


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """How topics are learned from counts.

    n_topics: r.
    learner: "default", or "paper" for the published learner of Arora et al. 2013 (mass 1, no column weights, farthest
        rows with a swap pass, no super-anchors).
    min_df: the fewest documents that must hold a kept word; 2 % of the documents are always enough.
    min_share: the least share of the documents that must hold a kept word. Both limits hold.
    max_df: the largest share of the documents that may hold a kept word; 20 documents always may.
    anchor_min_df: the least share of the documents that must hold an anchor word; at least 2 documents. If it is not 0,
        the default learner asks for 20 documents too, or for 2 % of all if that is fewer.
    max_words: the most words of the working vocabulary.
    max_candidates: the most words that may become anchors (default learner).
    tolerance: bound on ||A - A*||_F that the certificate must reach.
    guided: topics of seed words, among the n_topics (learner "default"); all others are found.
    exclude_words: words that are not kept, however many documents hold them. They count in the length of a document.
    Raises UsageError for a value that is not possible.
    """

    n_topics: int = 20
    learner: Literal["default", "paper"] = "default"
    min_df: int = 5
    min_share: float = 0.0005
    max_df: float = 0.1
    anchor_min_df: float = 0.0075
    max_words: int = 20_000
    max_candidates: int = 2_000
    tolerance: float = 1e-7
    # Without a part in the representation, which enters the digests of models that were published before.
    guided: tuple[GuidedTopic, ...] = field(default=(), repr=False)
    exclude_words: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        # In one order, so that options of the same words are equal.
        object.__setattr__(self, "exclude_words", tuple(sorted(set(self.exclude_words))))
        # Limits may be fractions: 1e4 words. A number of topics is a shape.
        _require(isinstance(self.n_topics, Integral), "n_topics", repr(self.n_topics), "use a whole number")
        for name in _NUMBERS:
            value = getattr(self, name)
            _require(isinstance(value, Real), name, repr(value), "use a number")
        _require(self.n_topics >= 1, "n_topics", self.n_topics, "use at least 1")
        _require(self.learner in ("default", "paper"), "learner", self.learner, 'use "default" or "paper"')
        _require(self.min_df >= 1, "min_df", self.min_df, "use at least 1 document")
        _require(0 <= self.min_share <= 1, "min_share", self.min_share, "use a share from 0 to 1")
        _require(0 < self.max_df <= 1, "max_df", self.max_df, "use a share above 0 and at most 1")
        _require(0 <= self.anchor_min_df <= 1, "anchor_min_df", self.anchor_min_df, "use a share from 0 to 1")
        _require(self.max_words >= 1, "max_words", self.max_words, "use at least 1 word")
        enough = f"use at most {self.max_candidates}, the most words that may become anchors"
        _require(self.n_topics <= self.max_candidates, "n_topics", self.n_topics, enough)
        _require(self.tolerance >= LEAST_TOLERANCE, "tolerance", self.tolerance, f"use at least {LEAST_TOLERANCE}")

        names = {topic.name for topic in self.guided}
        seeds = {frozenset(topic.seeds) for topic in self.guided}
        own = len(self.guided)
        _require(self.learner == "default" or not own, "learner", self.learner, 'guided topics need "default"')
        _require(own <= self.n_topics, "n_topics", self.n_topics, f"use at least the {own} guided topics")
        _require(len(names) == own, "guided", sorted(names), "give each guided topic a name of its own")
        _require(len(seeds) == own, "guided", sorted(names), "give each guided topic other seeds")

    @property
    def rules(self) -> dict[str, Any]:
        """The choices that decide which model belongs to counts, by the names of settings; values are plain.

        Without the tolerance: it says how far from that model a published one may be.
        """
        return {
            "topics": self.n_topics,
            "learner": self.learner,
            "min_df": self.min_df,
            "min_share": self.min_share,
            "max_df": self.max_df,
            "anchor_min_df": self.anchor_min_df,
            "max_words": self.max_words,
            "exclude_words": self.excluded_digest,
            "guided": [[topic.name, *topic.seeds] for topic in self.guided],
        }

    @property
    def excluded_digest(self) -> str:
        """SHA-256 of the excluded words, ascending and a line each, hexadecimal; "" if no word is excluded."""
        lines = "".join(f"{word}\n" for word in self.exclude_words)
        return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest() if lines else ""

    @property
    def weighting(self) -> Weighting:
        """The document mass that this learner's counts must have been made with."""
        return Weighting(256 if self.learner == "default" else 1)


def words_given(words: Iterable[str] | Path | str | None) -> tuple[str, ...]:
    """Return the words of a list, or of a UTF-8 file that has a word on each line.

    words: the words, or the path of the file; None for no word.
    Raises UsageError for a file that cannot be read, and for a list that holds anything else than words.
    """
    if isinstance(words, str | Path):
        try:
            lines = Path(words).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"exclude_words names the file {words}, which cannot be read ({error}): give a list of words, or a "
                "file in UTF-8 with a word on each line"
            ) from error
        stripped = [line.strip() for line in lines]
        return tuple(filter(None, stripped))
    found = tuple(words or ())
    if not all(isinstance(word, str) for word in found):
        raise UsageError("exclude_words holds something that is not a text: give a list of words")
    return found


def too_much_alike(topics: int) -> CannotLearn:
    """Return the error for documents that do not hold as many topics as are asked for."""
    return CannotLearn(
        "rank", f"the documents are too few or too much alike for {_topics(topics)}: add documents or ask fewer topics"
    )


def too_few_words(words: int, topics: int) -> CannotLearn:
    """Return the error for fewer words that may represent a topic than there are topics."""
    return CannotLearn(
        "candidates",
        f"the documents are too few for {_topics(topics)}, since only {words} words are in enough of them to stand for "
        "one: add documents, ask fewer topics or lower anchor_min_df",
    )


def _topics(topics: int) -> str:
    return "one topic" if topics == 1 else f"{topics} topics"


def _require(holds: bool, name: str, value: object, remedy: str) -> None:  # noqa: FBT001  the sentence reads in this order
    """Raise UsageError unless a condition holds."""
    if not holds:
        raise UsageError(f"{name} is {value}: {remedy}")
