"""Splits a text into the words that are counted.

A word is a run of two or more letters, combining marks and digits, in lower case and in Unicode form NFC: `covid19`,
`mp3` and `2004` are words, `x` and `7` are not. Vowel signs (Indic scripts, Arabic) never split a word. Numbers count
because they tell topics apart (docs/decisions/0008); numbers that are everywhere fall to max_df like other words.
Invisible joiners and soft hyphens vanish. Scripts written without spaces give overlapping pairs: of characters for Han
and kana, of letters with their marks for Thai, Lao, Khmer and Burmese. Hangul has spaces and stays whole.
Lower case rather than case folding: people read topics, and folding turns `Straße` into `strasse`.
Of a run of combining marks the first 30 count, as many as a language needs (UAX #15, stream-safe text). The others are
dropped before the text is brought into NFC, which takes time with the square of such a run.

Letters are the letters of the running Python's Unicode tables.

Anyone may send a text. So all steps take time and memory in proportion to its length, and its passages make a bounded
number of pairs (docs/decisions/0006).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from numbers import Integral
from operator import itemgetter

__all__ = [
    "MAX_MARKS",
    "MAX_PAIRS",
    "MAX_PASSAGE",
    "MAX_TEXT_WORDS",
    "MAX_WORD",
    "MAX_WORDS",
    "TOKENISER",
    "AnyText",
    "pairs",
    "passages",
    "tokenize",
]

TOKENISER = "streamtopic"
"""Name of this module's way to make words of texts, as versions name it."""

AnyText = str | Sequence[str] | Mapping[str, int]
"""A text, the words of one in their order, or how often it has each word."""

MAX_WORD = 64
MAX_PASSAGE = 8_192
MAX_MARKS = 30

MAX_WORDS = 4_096
"""The most different words of a document of one passage."""

MAX_TEXT_WORDS = 65_536
"""The most different words of a text that count, over all of its passages."""

MAX_PAIRS = MAX_WORDS * (MAX_WORDS - 1) // 2
"""The most pairs of different words that all passages of a document may make together."""

# With passages of so many tokens a text of 1,000,000 bytes makes fewer pairs than it may. Longer texts come from a
# caller of the library, never from a record, and their passages are not shorter either.
_SHORTEST = 32

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
    """Return the words of a text in order, without words of more than 64 characters."""
    return [word for word in _words(text) if len(word) <= MAX_WORD]


def passages(text: AnyText) -> list[tuple[int, Counter[str]]]:
    """Return the passages of a text, each as (tokens, counts of words); [] without a token.

    A text is cut into the fewest consecutive passages of at most 8,192 tokens. If these would make more than
    8,386,560 pairs of different words together, passages have at most 4,096 tokens, or 2,048, and so on down to 32.
    Lengths of passages differ by one at most. Words longer than 64 characters, and words beyond the first 65,536
    different ones, are tokens without a count.

    Words in a list are taken as they are, and cut as those of a text. Counts make one passage, as in a record.
    Raises ValueError for counts that a record could not have.
    """
    if isinstance(text, str):
        return _passages(_words(text))
    if not isinstance(text, Mapping):
        return _passages(list(text))
    # Sets of types and sizes, since a loop over words would take three times as long.
    kinds = {*map(type, text.values())}
    whole = all(issubclass(kind, Integral) for kind in kinds) and min(text.values(), default=1) > 0
    sound = whole and all(0 < size <= MAX_WORD for size in {*map(len, text)})
    if not sound or len(text) > MAX_WORDS or sum(text.values()) > MAX_PASSAGE:
        raise ValueError(
            f"counts of words must be whole numbers from 1 on, of words of 1 to {MAX_WORD} characters, with at most "
            f"{MAX_WORDS} words and {MAX_PASSAGE} tokens: split the document, or give its words in a list"
        )
    return [(int(sum(text.values())), Counter(text))] if text else []


def _passages(words: list[str]) -> list[tuple[int, Counter[str]]]:
    """Return the passages of the words of a text; see `passages`."""
    if len(words) > MAX_TEXT_WORDS:
        words = _first_words(words)
    most = MAX_PASSAGE
    while most > _SHORTEST and not _affordable(words, most):
        most //= 2
    cuts = _cuts(len(words), most)
    return [(stop - start, _count(words[start:stop])) for start, stop in pairwise(cuts)]


def pairs(words: int) -> int:
    """Return the number of pairs that the different words of one passage make; words: their number."""
    return words * (words - 1) // 2


def _first_words(words: list[str]) -> list[str]:
    """Put "" in place of words that do not count."""
    # A dictionary keeps the order in which words first occur.
    different = (word for word in dict.fromkeys(words) if len(word) <= MAX_WORD)
    counted = set(islice(different, MAX_TEXT_WORDS))
    return [word if word in counted else "" for word in words]


def _cuts(tokens: int, most: int) -> Sequence[int]:
    """Return the ends of the fewest equal pieces of at most `most` tokens, 0 first; [] for no tokens."""
    pieces = -(-tokens // most)
    if not pieces:
        return []
    return [tokens * piece // pieces for piece in range(pieces + 1)]


def _affordable(words: list[str], most: int) -> bool:
    """Return whether passages of at most so many tokens keep the bound on a document's pairs."""
    # Most texts are short enough for any words.
    if len(words) * (most - 1) <= 2 * MAX_PAIRS:
        return True
    made = 0
    for start, stop in pairwise(_cuts(len(words), most)):
        different = set(words[start:stop])
        counted = sum(0 < len(word) <= MAX_WORD for word in different)
        made += pairs(counted)
        if made > MAX_PAIRS:
            return False
    return True


def _count(words: list[str]) -> Counter[str]:
    """Return the counts of a passage's words, without words that do not count."""
    counts = Counter(words)
    counts.pop("", None)
    # Hardly a text has such a word, and the greatest length is found without a loop in Python.
    if max(map(len, counts), default=0) > MAX_WORD:
        for word in [word for word in counts if len(word) > MAX_WORD]:
            del counts[word]
    return counts


def _words(text: str) -> list[str]:
    """Return the words of a text in order, of any length."""
    lowered = text.lower()
    if lowered.isascii():
        return ASCII_WORD.findall(lowered)
    # Character classes that reach past plane 0 are slow in `re`, so they are used only if they are needed.
    script = _script(ASTRAL.search(lowered) is not None)
    special = script.special.search(lowered) is not None
    composed = unicodedata.normalize("NFC", script.surplus.sub(r"\1", lowered) if special else lowered)
    if composed != lowered:
        # Some letters of plane 0 become others beyond it, and some become letters with marks.
        script = _script(ASTRAL.search(composed) is not None)
        special = script.special.search(composed) is not None
    visible = INVISIBLE.sub("", composed)
    return script.words(visible) if special else ALPHANUMERIC.findall(visible)


class _Script:
    """Patterns for text with combining marks, or without spaces; `astral`: beyond plane 0 too.

    Each repeats single characters only: to repeat a group, `re` keeps 150 bytes for every time.
    """

    def __init__(self, *, astral: bool) -> None:
        marks = _marks(0x300, 0x10000) + (_marks(0x10000, 0x1F000) + _marks(0xE0100, 0xE01F0) if astral else "")
        paired = PAIRED + PAIRED_ASTRAL if astral else PAIRED
        self.special = re.compile(f"[{marks}{paired}]")
        # Of a run of marks: the first 30, and the others.
        self.surplus = re.compile(f"([{marks}]{{{MAX_MARKS}}})[{marks}]+")
        self._runs = re.compile(f"\\w[\\w{marks}]+")
        self._paired = re.compile(f"[{paired}]")
        # Within a run there are letters and marks only.
        self._parts = re.compile(f"([^\\W{paired}][^{paired}]*)|((?=\\w)[{paired}][{paired}{marks}]*)")
        self._mark = re.compile(f"[{marks}]")
        self._clusters = re.compile(f"[^{marks}][{marks}]*")

    def words(self, text: str) -> list[str]:
        """Return the words of a text in lower case and NFC."""
        runs: list[str] = self._runs.findall(text.replace("_", " "))
        if not self._paired.search(text):
            return runs
        words = list[str]()
        for run in runs:
            if self._paired.search(run):
                words += self._mixed(run)
            else:
                words.append(run)
        return words

    def _mixed(self, run: str) -> list[str]:
        """Return the words of a run of letters and marks, some of them of a script without spaces."""
        words = list[str]()
        for part in self._parts.finditer(run):
            if part.lastindex == 2:
                letters = pairwise(self._letters(part[0]))
                words += [first + second for first, second in letters]
            elif len(part[0]) > 1:
                words.append(part[0])
        return words

    def _letters(self, part: str) -> Iterable[str]:
        """Return letters, each with its marks."""
        if not self._mark.search(part):
            return part
        return map(itemgetter(0), self._clusters.finditer(part))


@cache
def _script(astral: bool) -> _Script:  # noqa: FBT001 -- called in one place; a cache key
    # Made on first use: it takes some milliseconds, and ASCII text never needs it.
    return _Script(astral=astral)


def _marks(start: int, stop: int) -> str:
    """Return combining marks as the inside of a character class; the class of word characters leaves them out."""
    ranges: list[list[int]] = []
    for point in range(start, stop):
        if not unicodedata.category(chr(point)).startswith("M"):
            continue
        # As ranges, which keep the pattern short.
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
