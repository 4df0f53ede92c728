"""Counting documents that come and documents that go in one pass, as a whole and block by block."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cooccurrence import N, corpora, counted, same

from streamtopic.counts import DocumentBatch, Weighting, count


def signed(kept, gone):
    """Return both sets of documents as one batch, and their signs."""
    both = DocumentBatch.joined(DocumentBatch.build(kept), DocumentBatch.build(gone))
    return both, np.repeat(np.array([1, -1]), [len(kept), len(gone)])


@settings(max_examples=150)
@given(corpora, corpora)
def test_one_pass_over_both_is_the_difference(kept, gone):
    """Counts with signs equal counts less counts, in every array."""
    batch, signs = signed(kept, gone)
    assert same(count(batch, N, Weighting(), signs), counted(kept) - counted(gone))


@settings(max_examples=100)
@given(corpora, st.data())
def test_documents_taken_from_a_batch_are_those_documents(corpus, data):
    """Some documents of a batch, with all their passages or none, are the batch of just these."""
    chosen = sorted(data.draw(st.sets(st.integers(0, max(len(corpus) - 1, 0)), max_size=len(corpus)))) if corpus else []
    taken = DocumentBatch.build(corpus).take(np.array(chosen, np.intp))
    expected = DocumentBatch.build([corpus[k] for k in chosen])
    for name in ("indptr", "words", "counts", "lengths", "owners"):
        assert np.array_equal(getattr(taken, name), getattr(expected, name)), name
    assert taken.documents == expected.documents
