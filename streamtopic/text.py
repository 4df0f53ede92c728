"""Text to words.

A word is a run of two or more letters, combining marks and digits, lower-cased, in Unicode form NFC: `covid19`, `mp3`
and `2004` are words, `x` and `7` are not; vowel signs (Indic scripts, Arabic) never split a word. Numbers count because
they tell topics apart (docs/decisions/0005); those that are everywhere fall to max_df like any other word.
Invisible joiners and soft hyphens vanish. Scripts written without spaces give overlapping pairs: of characters for Han
and kana, of letters with their marks for Thai, Lao, Khmer and Burmese; Hangul is written with spaces and stays whole.
Lower case rather than case folding: topics are read by people, and folding turns `Straße` into `strasse`.

What counts as a letter follows the Unicode tables of the running Python.
"""

import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise

__all__ = ["MAX_PASSAGE", "MAX_WORD", "passages", "tokenize"]

MAX_WORD = 64
MAX_PASSAGE = 8_192

ALPHANUMERIC = re.compile(r"[^\W_]{2,}")
ASCII_WORD = re.compile(r"[a-z0-9]{2,}")
INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufeff]")
ASTRAL = re.compile("[\U00010000-\U0010ffff]")
PAIRED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"  # kana and Han
)
PAIRED_ASTRAL = "\U0001b000-\U0001b16f\U00020000-\U0003ffff"


def tokenize(text: str) -> list[str]:
    """Words of `text` in order, those longer than 64 characters left out."""
    return [word for word in _words(text) if len(word) <= MAX_WORD]


def passages(text: str) -> list[tuple[int, Counter[str]]]:
    """Word counts of `text` as passages of at most 8,192 tokens, each as (tokens, counts); [] without any token.

    A longer text is cut into the fewest consecutive passages that fit, whose lengths differ by one at most. Tokens
    count words longer than 64 characters, the counts leave them out.
    """
    words = _words(text)
    pieces = -(-len(words) // MAX_PASSAGE)
    cuts = [len(words) * piece // pieces for piece in range(pieces + 1)] if pieces else []
    return [(stop - start, _count(words[start:stop])) for start, stop in pairwise(cuts)]


def _count(words: list[str]) -> Counter[str]:
    counts = Counter(words)
    if max(map(len, counts), default=0) > MAX_WORD:
        for word in [word for word in counts if len(word) > MAX_WORD]:
            del counts[word]
    return counts


def _words(text: str) -> list[str]:
    lowered = text.lower()
    if lowered.isascii():
        return ASCII_WORD.findall(lowered)
    lowered = INVISIBLE.sub("", unicodedata.normalize("NFC", lowered))
    # Character classes that reach past plane 0 are slow in `re`, so they are used only where they are needed.
    script = _script(ASTRAL.search(lowered) is not None)
    return script.words(lowered) if script.special.search(lowered) else ALPHANUMERIC.findall(lowered)


class _Script:
    """Patterns for text with combining marks, or without spaces; `astral`: beyond plane 0 too."""

    def __init__(self, *, astral: bool) -> None:
        marks = _marks(0x300, 0x10000) + (_marks(0x10000, 0x1F000) + _marks(0xE0100, 0xE01F0) if astral else "")
        paired = PAIRED + PAIRED_ASTRAL if astral else PAIRED
        letter = f"(?:(?![{paired}])[^\\W_])"
        pair = f"(?:[{paired}](?<=[^\\W_]))"
        self.special = re.compile(f"[{marks}{paired}]")
        self._runs = re.compile(f"({letter}(?:{letter}|(?![{paired}])[{marks}])*)|({pair}(?:{pair}|[{marks}])*)")
        self._clusters = re.compile(f"[^{marks}][{marks}]*")

    def words(self, text: str) -> list[str]:
        words = []
        for run, paired in self._runs.findall(text):
            if len(run) > 1:
                words.append(run)
            elif paired:
                clusters = self._clusters.findall(paired)
                words += [first + second for first, second in pairwise(clusters)]
        return words


@cache
def _script(astral: bool) -> _Script:  # noqa: FBT001 -- called in one place; a cache key
    # Made on first use: it takes some milliseconds, and ASCII text never needs it.
    return _Script(astral=astral)


def _marks(start: int, stop: int) -> str:
    """Combining marks as the inside of a character class; the word class of `re` leaves them out."""
    marks = [point for point in range(start, stop) if unicodedata.category(chr(point)).startswith("M")]
    starts = [point for point, before in zip(marks, [-1, *marks], strict=False) if point != before + 1]
    stops = [point for point, after in zip(marks, [*marks[1:], -1], strict=True) if after != point + 1]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(starts, stops, strict=True))
