"""Segments as programs before 0044 wrote them: pairs, and the passages of a small flush beside them."""

import numpy as np
from whole_segments import Segment, encode

from streamtopic.counts import Cooccurrence
from streamtopic.state import segments
from streamtopic.state.segments import pack_integers


def as_older(connection, state, *, passages=True):
    """Write all segments that hold rows as an older program would have.

    passages: whether they are small flushes of a program that kept their passages.
    """
    for entry in state.manifest:
        if not entry.rows:
            continue
        names = [state.keys.segment(entry.name, k) for k in range(2)]
        head = segments.decode_head(connection.call("GET", names[0]))
        rows = segments.decode_rows(connection.call("GET", names[1]), len(head.ids))
        strings = encode(_counted(head, rows))
        if passages:
            strings.append(older_passages(rows))
        for k, string in enumerate(strings):
            connection.call("SET", state.keys.segment(entry.name, k), string)
        size = sum(map(len, strings))
        value = f"{entry.order}:{entry.epoch}:{len(strings)}:{entry.pairs}:{size}"
        connection.call("HSET", state.keys.manifest, entry.name, value)
    state.reload()


def _counted(head, rows):
    """Return the segment with the pairs of its rows, which are counted one by one."""
    n_words = len(head.ids)
    total = np.zeros((n_words, n_words), np.int64)
    for k, weight in enumerate(rows.weights):
        part = slice(rows.indptr[k], rows.indptr[k + 1])
        words, h = rows.words[part], rows.counts[part]
        total[np.ix_(words, words)] += weight * (np.outer(h, h) - np.diag(h))
    row, column = np.nonzero(np.triu(total))
    indptr = np.searchsorted(row, np.arange(n_words + 1))
    columns = column.astype(np.int32)
    values = total[row, column]
    counts = Cooccurrence(
        n_words=n_words,
        indptr=indptr,
        columns=columns,
        values=values,
        frequency=head.frequency,
        tokens=head.tokens,
        heavy=head.heavy,
        documents=head.documents,
    )
    return Segment(head.ids, counts, head.added, head.removed)


def older_passages(rows):
    """Return the bytes of passages as such a program wrote them."""
    sizes = np.diff(rows.indptr)
    gaps = [np.zeros(0, np.int64)]
    for k in range(rows.passages):
        words = rows.words[rows.indptr[k] : rows.indptr[k + 1]]
        gaps.append(np.diff(words, prepend=-1))
    number = np.array([rows.passages])
    columns = [number, sizes, np.concatenate(gaps), rows.counts, rows.weights]
    return segments._seal(b"STP1", [pack_integers(column) for column in columns], 0)
