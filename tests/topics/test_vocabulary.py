"""Who can take a word out of the vocabulary, and how many documents of their own it takes.

Words that repeat themselves are left out: h >= 10, 5 h >= k and t >= 5 k, for the k documents that hold a word, the h
in which it is heavy, and its t occurrences. Of documents that someone adds, a hold it, and it is heavy in at most all a
of these. So the first two need h + a >= 10 and 5 (h + a) >= k + a, h and k those of the others: a >= 10 - h and
a >= (k - 5 h) / 4. Where it is heavy in no other document that is max(10, k / 4). The third is not a limit: one long
document has occurrences enough. So a word that is heavy in a fifth of its documents, ten at least, is out of the
vocabulary when one document repeats it.

Thresholds of document frequency are shares of m, rounded to powers of sqrt 2. Any document, whatever it holds, is one
more, and where a rounded share steps up with it all words in between leave at once. A document can also take a word
over max_df, bring a word in that makes more than max_words, and bring the thousandth word in, from which on the rule
holds.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.counts import MAX_LENGTH, Counts, DocumentBatch, Passage, count
from streamtopic.counts.count_pairs import statistics
from streamtopic.topics.learner import choose_words, prepare, thresholds
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.words.text import passages

WORDS, DOCUMENTS = 1_200, 1_000
NEARLY = 6
"""Words that are heavy in nine of their fifty documents: one more is not a fifth."""
OPTIONS = LearnerOptions(n_topics=2)
MOST_PASSAGES = 41
"""As many passages a text of 1,000,000 bytes has at most: words have two letters and something between them."""


def source(frequency, tokens, heavy, documents):
    """Numbers of words, as counts give them."""
    columns = [np.asarray(column, np.int64) for column in (frequency, tokens, heavy)]
    return SimpleNamespace(frequency=columns[0], tokens=columns[1], heavy=columns[2], documents=documents)


def numbers(documents):
    """Count what is kept of each word over documents, each a list of passages."""
    signs = np.ones(len(documents), np.int64)
    return source(*statistics(DocumentBatch.build(documents), WORDS, signs), len(documents))


def added(one, other, sign=1):
    """Add the numbers of two sets of documents, or take one away."""
    return source(
        one.frequency + sign * other.frequency,
        one.tokens + sign * other.tokens,
        one.heavy + sign * other.heavy,
        one.documents + sign * other.documents,
    )


def kept(counted, options=OPTIONS):
    """Return the kept words as a set of positions."""
    return {*choose_words(counted, options)[0].tolist()}


@pytest.fixture(scope="module")
def honest():
    """Numbers of a thousand documents of sixty words each, every word in fifty of them."""
    documents = []
    for k in range(DOCUMENTS):
        words = np.sort((k * 60 + np.arange(60)) % WORDS).astype(np.int32)
        repeated = (words < NEARLY) & (k < 9 * WORDS // 60)
        counts = np.where(repeated, 20, 1).astype(np.int32)
        documents.append([Passage(int(counts.sum()), words, counts)])
    return numbers(documents)


def test_no_text_of_a_million_bytes_removes_a_word(honest):
    """A text of nothing but one word is as many passages, and still one document that the word fills."""
    parts = passages("ax " * 333_333)
    text = [Passage(length, np.array([3], np.int32), np.array([held["ax"]], np.int32)) for length, held in parts]
    assert 1 < len(text) <= MOST_PASSAGES
    after = added(honest, numbers([text]))
    assert after.heavy[3] == honest.heavy[3] + 1
    assert after.tokens[3] >= 5 * after.frequency[3]
    assert kept(after) == {*range(WORDS)}


@st.composite
def anything(draw):
    """One document within the limits: up to 41 passages, any words, any numbers of them, and tokens besides."""
    made = []
    for _ in range(draw(st.sampled_from([1, 1, 2, MOST_PASSAGES]))):
        first, many = draw(st.integers(0, WORDS - 1)), draw(st.sampled_from([1, 2, 9, 10, 11, 200, WORDS]))
        words = np.unique((first + np.arange(many)) % WORDS).astype(np.int32)
        each = draw(st.integers(1, MAX_LENGTH // len(words)))
        length = draw(st.integers(each * len(words), MAX_LENGTH))
        made.append(Passage(length, words, np.full(len(words), each, np.int32)))
    return made


@given(one=anything())
@settings(max_examples=50)
def test_no_single_document_removes_a_word_that_fifty_others_hold(honest, one):
    """Whatever a document within the limits holds, every word of the others is kept, and so it is when it has gone."""
    part = numbers([one])
    after = added(honest, part)
    assert kept(after) == {*range(WORDS)}
    assert kept(added(after, part, -1)) == kept(honest)


def fewest(k, h):
    """Return how many documents it takes by what is proven above, for a word that k hold and h of them heavily."""
    return max(10 - h, math.ceil((k - 5 * h) / 4), 0)


@given(
    k=st.integers(1, 400),
    share=st.floats(0, 1),
    occurrences=st.integers(0, 10_000),
    data=st.data(),
)
@settings(max_examples=100)
def test_a_word_goes_by_no_fewer_documents_than_proven(k, share, occurrences, data):
    """Below max(10 - h, (k - 5 h) / 4) added documents no word goes; at it one does that they repeat enough."""
    h = int(share * k)
    needed = fewest(k, h)
    assert h > 0 or needed == max(10, math.ceil(k / 4))
    a = data.draw(st.integers(0, 120))
    own = data.draw(st.integers(0, a))
    tokens = k + occurrences + data.draw(st.sampled_from([a, a * MAX_LENGTH, a * 333_333]))
    assert (0 not in of_any(among_others(k + a, tokens, h + own))) <= (a >= needed)
    enough = k + needed * 333_333 if needed else 5 * k
    assert 0 not in of_any(among_others(k + needed, enough, h + needed))


def among_others(frequency, tokens, heavy, others=1_000):
    """Numbers of one word, at 0, and of a thousand plain ones beside it, among so many documents that all may stay."""
    plain = np.full(others, 60)
    columns = ([frequency, *plain], [tokens, *plain], [heavy, *(0 * plain)])
    return source(*columns, 10_000)


def of_any(counted):
    """Return the kept words where no word is in too few or too many documents."""
    return kept(counted, LearnerOptions(n_topics=2, min_df=1, min_share=0.0, max_df=1.0))


@pytest.mark.parametrize(("others", "stays"), [(998, True), (999, False), (1_500, False)])
def test_few_words_switch_the_rule_off(others, stays):
    """Of fewer than a thousand words none is left out for repeating itself; the thousandth switches the rule on."""
    assert (0 in of_any(among_others(60, 6_000, 60, others))) == stays


def steps(name, options):
    """Return where a threshold changes as one document comes, and by what factor."""
    found = {}
    for m in range(50, 12_000):
        before, after = (getattr(thresholds(documents, options), name) for documents in (m, m + 1))
        if before != after:
            found[m] = after / before
    return found


def test_a_word_that_meets_no_other_takes_no_second_reading(monkeypatch):
    """Documents of one known word each would else double the cost of every retrain: all documents are read again."""
    pair, alone = (np.array(words, np.int32) for words in ([0, 1], [2]))
    documents = [[Passage(2, pair, np.ones(2, np.int32))]] * 20 + [[Passage(2, alone, np.ones(1, np.int32))]] * 20
    batch, read = DocumentBatch.build(documents), []
    counted = Counts(["a", "b", "c"], count(batch, 3, OPTIONS.weighting))
    symmetric = Counts.symmetric
    monkeypatch.setattr(Counts, "symmetric", lambda self, keep: read.append(keep) or symmetric(self, keep))
    assert prepare(counted, LearnerOptions(n_topics=2, min_df=2, max_df=1.0)).words == ("a", "b")
    assert [keep.tolist() for keep in read] == [[0, 1, 2]]


@pytest.mark.parametrize("name", ["least", "most", "anchor"])
def test_one_document_tips_a_threshold_by_a_root_of_two(name):
    """Whatever it holds, a document tips a threshold at few sizes of a corpus, always up and by sqrt 2 at most."""
    found = steps(name, OPTIONS)
    assert 1 <= len(found) <= 18
    assert all(1 < factor <= math.sqrt(2) * (1 + 1e-12) for factor in found.values())
