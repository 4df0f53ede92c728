"""What came and went between two cuts: an update takes it."""

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


@settings(max_examples=20)
@given(
    histories=st.lists(st.lists(st.lists(step, max_size=8), min_size=3, max_size=3), min_size=1, max_size=2),
    cap=st.sampled_from([1, 256]),
)
def test_a_difference_is_that_of_both_counts(connection, new_model, histories, cap):
    """After any adds, deletions and replacements in any partition. Changes lead forwards only."""
    model = new_model()
    runs = [Run(connection, model, p, len(histories), Weighting(cap)) for p in range(len(histories))]
    reader = Reader(connection, model, len(histories))
    cuts = [reader.counts()]
    told = [as_words(cuts[0])]
    for number in range(3):
        for run, history in zip(runs, histories, strict=True):
            for name, *arguments in history[number]:
                getattr(run, name)(*arguments)
            run.flush()
        cuts.append(reader.counts())
        told.append(as_words(cuts[-1]))
    for before, after in [(0, 1), (1, 2), (2, 3), (0, 3)]:
        change = cuts[after].since(cuts[before])
        assert as_words(change) == difference(told[after], told[before])
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
    assert list(change.words) == ["a", "late", "m", "x"]
