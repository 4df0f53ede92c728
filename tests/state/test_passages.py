"""Passages of what came and went: an update takes them, and they make the pairs of the difference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_reference import as_words, difference
from test_exactness import Run, passages

from streamtopic.counts import Weighting
from streamtopic.state import CutGone, Reader

TEXT = ((6, {"x": 1, "m": 2, "a": 3}),)
step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), passages),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("flush")),
)


def pairs_of(change, found):
    """Return the sum of w (h h^T - diag(h)) by words, zeros left out."""
    total = np.zeros((len(change.words),) * 2, np.int64)
    for k, weight in enumerate(found.weights):
        part = slice(found.indptr[k], found.indptr[k + 1])
        words, h = found.words[part], found.counts[part]
        assert (np.diff(words) > 0).all()
        total[np.ix_(words, words)] += weight * (np.outer(h, h) - np.diag(h))
    assert np.array_equal(total, total.T)
    rows, columns = np.nonzero(np.triu(total))
    return {(change.words[a], change.words[b]): int(total[a, b]) for a, b in zip(rows, columns, strict=True)}


@settings(max_examples=20)
@given(
    histories=st.lists(st.lists(st.lists(step, max_size=8), min_size=3, max_size=3), min_size=1, max_size=2),
    cap=st.sampled_from([1, 256]),
)
def test_passages_of_a_difference_make_its_pairs(connection, new_model, histories, cap):
    """After any adds, deletions and replacements in any partition: the sum of w (h h^T - diag(h)) is the pair counts.

    Changes lead forwards only.
    """
    model = new_model()
    runs = [Run(connection, model, p, len(histories), Weighting(cap)) for p in range(len(histories))]
    reader = Reader(connection, model, len(histories))
    cuts = [reader.counts()]
    for number in range(3):
        for run, history in zip(runs, histories, strict=True):
            for name, *arguments in history[number]:
                getattr(run, name)(*arguments)
            run.flush()
        cuts.append(reader.counts())
    for before, after in [(0, 1), (1, 2), (2, 3), (0, 3)]:
        change = cuts[after].since(cuts[before])
        assert pairs_of(change, change.passages()) == as_words(change)[-1]
    with pytest.raises(CutGone):
        cuts[1].since(cuts[3])


def test_a_difference_costs_what_changed(connection, model, monkeypatch):
    """Who follows reads neither documents nor words, whatever is stored, and needs nothing but the changes."""
    run = Run(connection, model)
    for number in range(50):
        run.add(number, TEXT)
    run.flush()
    reader = Reader(connection, model, 1)
    old, before = reader.counts(), run.live.recount()
    run.add(60, ((2, {"late": 2}),))
    run.delete(7)
    run.flush()
    monkeypatch.setattr(connection, "script", None)
    change = reader.counts().since(old)
    assert as_words(change) == difference(run.live.recount(), before)
    assert change.passages().passages == 2
    assert list(change.words) == ["a", "late", "m", "x"]
