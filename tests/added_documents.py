"""Documents to add, made from words as text, for tests that commit without a log."""

from streamtopic.state import AddedDocument, Rows, RowSpan


def added_document(state, document, offset, passages, labels=None):
    """Return a document to add.

    state: the writer of its partition, whose lexicon gets the words.
    document: its id.
    offset: of the record that adds it.
    passages: (L, word to its count), each count at least 1, their sum at most L.
    labels: task to class.
    """
    rows = Rows.of(passages, state.lexicon)
    span = RowSpan(rows, 0, len(passages))
    return AddedDocument(document, offset, span, labels or {})
