"""Phrases of topics: two words of a topic that stand side by side in documents, such as "neural network".

A topic's phrases are made of its top words, and of the number of documents that hold two of them one directly after the
other. These numbers are whole and are counted when somebody asks, from the documents that are there. So a document that
was forgotten is in none of them.

    PhraseFinder     the pairs of neighbours in a document that could be phrases
    choose_phrases   pairs that stand together often enough, for each topic
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamtopic.topics.over_time import FLOOR

__all__ = ["FLOOR", "TOP_WORDS", "Pair", "Phrase", "PhraseFinder", "PhraseReport", "choose_phrases"]

TOP_WORDS = 20
"""Words of a topic among which its phrases are sought, as many as a release shows."""

# A pair is a phrase where this many in a hundred of the documents with its rarer word hold both side by side. Two words
# that any text may put together stay below it.
_TOGETHER = 10

_NOTHING: frozenset[str] = frozenset()

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Phrase:
    """Two words that stand side by side.

    words: the words in their order.
    documents: number of documents that hold the phrase, each counted once.
    """

    words: Pair
    documents: int

    def __str__(self) -> str:
        """Return the phrase as it is read."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class PhraseReport:
    """The phrases of a service's topics.

    version: of the model.
    topics: phrases of each topic, those first that most documents hold.
    whole: whether the phrases of all documents were read at one point; if not, some documents came or went meanwhile.
    """

    version: int
    topics: tuple[tuple[Phrase, ...], ...]
    whole: bool

    def as_json(self, topic: int) -> list[dict[str, Any]]:
        """Return the phrases of a topic as `topics --phrases --json` shows them."""
        return [{"words": list(phrase.words), "documents": phrase.documents} for phrase in self.topics[topic]]


class PhraseFinder:
    """Finds the pairs of neighbours in documents of which both words are top words of one topic.

    topics: top words of each topic, (r,) sequences.
    """

    def __init__(self, topics: Sequence[Sequence[str]]) -> None:
        partners: dict[str, set[str]] = {}
        for words in topics:
            for word in words:
                partners.setdefault(word, set()).update(words)
        # A word said twice is not a phrase.
        self._partners = {word: frozenset(others - {word}) for word, others in partners.items()}

    @property
    def words(self) -> frozenset[str]:
        """All words that a phrase can have."""
        return frozenset(self._partners)

    def pairs(self, words: Sequence[str]) -> frozenset[Pair]:
        """Return the pairs that stand side by side in a document. words: of the document, in their order."""
        partners = self._partners
        found = [(first, second) for first, second in pairwise(words) if second in partners.get(first, _NOTHING)]
        return frozenset(found)


def choose_phrases(
    topics: Sequence[Sequence[str]],
    pairs: Mapping[Pair, int],
    frequency: Mapping[str, int],
    *,
    floor: int = FLOOR,
    top: int = 5,
) -> tuple[tuple[Phrase, ...], ...]:
    """Return the phrases of each topic, (r,), those first that most documents hold.

    topics: top words of each topic, (r,) sequences.
    pairs: number of documents that hold each pair side by side.
    frequency: number of documents that hold each word.
    floor: the fewest documents of a phrase that is shown, at least 1.
    top: the most phrases of a topic.

    A pair is a phrase where a tenth of the documents with its rarer word hold both words side by side. All comparisons
    are of whole numbers, and equal numbers come in the order of the words. So equal documents give equal phrases.
    """
    sound = []
    for (first, second), documents in pairs.items():
        rarer = min(frequency.get(first, 0), frequency.get(second, 0))
        if documents >= max(floor, 1) and documents * 100 >= rarer * _TOGETHER:
            sound.append(Phrase((first, second), documents))
    sound.sort(key=lambda phrase: (-phrase.documents, phrase.words))
    chosen = []
    for words in topics:
        own = frozenset(words)
        phrases = [phrase for phrase in sound if own.issuperset(phrase.words)]
        chosen.append(tuple(phrases[:top]))
    return tuple(chosen)
