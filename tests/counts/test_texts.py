"""A matrix that knows its texts: rows keep what they know, everything else is scipy's."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils import _safe_indexing
from test_cooccurrence import N, corpora

from streamtopic.counts import CountedTexts, DocumentBatch, TextMatrix

WORDS = tuple(f"w{k}" for k in range(N))


def matrix(corpus):
    """A matrix of documents that leave out as many tokens as their number says."""
    return TextMatrix.of(CountedTexts(WORDS, DocumentBatch.build(corpus), np.arange(len(corpus))))


def amounts(corpus):
    """Word counts of documents, all passages together."""
    dense = np.zeros((len(corpus), N), np.int64)
    for row, document in enumerate(corpus):
        for passage in document:
            dense[row, passage.words] += passage.counts
    return dense


def knows(X, corpus, unknown):
    """Whether a matrix is that of these documents, lengths and passages included."""
    expected = DocumentBatch.build(corpus)
    arrays = ("indptr", "words", "counts", "lengths", "owners", "documents")
    return (
        isinstance(X, TextMatrix)
        and np.array_equal(X.toarray(), amounts(corpus))
        and all(np.array_equal(getattr(X.texts.batch, name), getattr(expected, name)) for name in arrays)
        and np.array_equal(X.texts.unknown, unknown)
    )


@settings(max_examples=60)
@given(corpora.filter(len), st.data())
def test_rows_keep_what_they_know(corpus, data):
    """Slices, lists with repetitions, masks, copies and pickles are the matrices of those documents."""
    X, numbers = matrix(corpus), np.arange(len(corpus))
    assert knows(X, corpus, numbers)
    some = data.draw(st.lists(st.integers(-len(corpus), len(corpus) - 1), max_size=6))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus))))
    for key in (np.array(some, np.intp), slice(data.draw(st.integers(0, 3)), None, data.draw(st.integers(1, 2))), mask):
        rows = numbers[key]
        for taken in (X[key], X[key, :], X[key, ...], _safe_indexing(X, key)):
            assert knows(taken, [corpus[k] for k in rows], rows)
    assert knows(X.copy(), corpus, numbers)
    assert knows(pickle.loads(pickle.dumps(X)), corpus, numbers)  # noqa: S301  made in this line


def test_numbers_cannot_be_changed_behind_the_texts():
    """A number changed in place would not be what is counted, so it is refused."""
    from test_kept import TWO

    X = matrix([TWO])
    with pytest.raises(ValueError, match="read-only"):
        X.data[0] = 5
