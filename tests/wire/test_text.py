import re
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.words.text import MAX_PASSAGE, passages, tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop_me", ["don", "stop", "me"]),
        ("COVID-19 covid19 MP3 2004 x x2 a1b2", ["covid", "19", "covid19", "mp3", "2004", "x2", "a1b2"]),
        ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),
        ("العَرَبِيَّة", ["العَرَبِيَّة"]),
        ("می\u200cخواهم so\u00adft", ["میخواهم", "soft"]),
        ("Straße cafe\u0301 ΛΌΓΟΣ", ["straße", "café", "λόγος"]),
        ("機械学習とは 字", ["機械", "械学", "学習", "習と", "とは"]),
        ("กำลังดี", ["กำ", "ำลั", "ลัง", "งดี"]),
        ("데이터 분석", ["데이터", "분석"]),
        ("dataを見る", ["data", "を見", "見る"]),
        ("good 😀 day 𠀀𠀁", ["good", "day", "𠀀𠀁"]),
        ("", []),
        ("- 1 _ \ud800", []),
    ],
)
def test_words_of_many_scripts(text, words):
    """A word is a run of two or more letters, marks and digits, in every script."""
    assert tokenize(text) == words


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_any_text_gives_clean_words(text):
    """Words are never empty, long, spaced or upper case."""
    words = tokenize(text)
    assert all(2 <= len(word) <= 64 and word == word.lower() for word in words)
    assert all(not re.search(r"\s|_", word) for word in words)


def test_long_words_are_skipped_but_counted():
    """A word of more than 64 characters adds to L and to nothing else."""
    ((length, counts),) = passages("aa " + "b" * 65 + " " + "c" * 64)
    assert (length, counts) == (3, {"aa": 1, "c" * 64: 1})


@pytest.mark.parametrize("tokens", [0, 1, MAX_PASSAGE, MAX_PASSAGE + 1, 3 * MAX_PASSAGE, 3 * MAX_PASSAGE + 5])
def test_long_texts_are_cut_evenly(tokens):
    """Passages are as few as fit, equal in length to one token, and hold every token in order."""
    words = [f"w{i * i % 2_003}w" for i in range(tokens)]
    found = passages(" ".join(words))
    lengths = [length for length, _ in found]
    assert sum(lengths) == tokens
    assert len(lengths) == -(-tokens // MAX_PASSAGE)
    assert not lengths or max(lengths) - min(lengths) <= 1
    ends = [*accumulate(lengths)]
    held = [words[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    assert [counts for _, counts in found] == [*map(Counter, held)]
