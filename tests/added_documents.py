"""Documents to add, made from words as text, for tests that commit without a log."""

import numpy as np

from streamtopic.state import AddedDocuments


def added_documents(state, *documents):
    """Return documents to add.

    state: the writer of their partition, whose lexicon gets the words.
    documents: each as its id, the offset of the record that adds it, its passages (L, word to its count), and its
        labels if it has any.
    """
    rows = [(*document, {})[:4] for document in documents]
    ids, offsets, passages, labels = zip(*rows, strict=True) if rows else ((), (), (), ())
    batch, subjects = state.lexicon.numbered(passages), [()] * len(ids)
    return AddedDocuments(ids, np.array(offsets, np.int64), batch, labels, subjects)
