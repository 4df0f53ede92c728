"""Passages of flushes: they make the pairs of a difference, and go with the first merge."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_reference import as_words
from test_exactness import Run, passages

from streamtopic.counts import Weighting
from streamtopic.errors import StateCorrupt
from streamtopic.state import Applied, Reader, SnapshotExpired, compact
from streamtopic.state.reader import MOST_JOINED

TEXT = ((6, {"x": 1, "m": 2, "a": 3}),)
step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), passages),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("flush")),
)


def pairs_of(delta, found):
    """Return the sum of w (h h^T - diag(h)) by words, zeros left out."""
    total = np.zeros((len(delta.words),) * 2, np.int64)
    for k, weight in enumerate(found.weights):
        part = slice(found.indptr[k], found.indptr[k + 1])
        words, h = found.words[part], found.counts[part]
        assert (np.diff(words) > 0).all()
        total[np.ix_(words, words)] += weight * (np.outer(h, h) - np.diag(h))
    assert np.array_equal(total, total.T)
    rows, columns = np.nonzero(np.triu(total))
    return {(delta.words[a], delta.words[b]): int(total[a, b]) for a, b in zip(rows, columns, strict=True)}


def strings(connection, run):
    """Return the names of the strings that hold passages, whether they still count or not."""
    names = connection.call("KEYS", run.state.keys.tag + ":seg:*")
    return [name for name in names if (connection.call("GET", name) or b"")[:4] == b"STR1"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    histories=st.lists(st.lists(st.lists(step, max_size=8), min_size=3, max_size=3), min_size=1, max_size=2),
    cap=st.sampled_from([1, 256]),
)
def test_passages_of_a_difference_make_its_pairs(connection, new_model, histories, cap):
    """After any adds, deletions and replacements in any partition: the sum of w (h h^T - diag(h)) is the pair counts.

    They are known unless a word came and went between the snapshots.
    """
    model = new_model()
    runs = [Run(connection, model, p, len(histories), Weighting(cap)) for p in range(len(histories))]
    reader = Reader(connection, model, len(histories))
    snapshots = [reader.snapshot()]
    for number in range(3):
        for run, history in zip(runs, histories, strict=True):
            for name, *arguments in history[number]:
                getattr(run, name)(*arguments)
            run.flush()
        snapshots.append(reader.snapshot())
    for before, after in [(0, 1), (1, 2), (2, 3), (0, 3), (3, 1)]:
        delta = snapshots[after].since(snapshots[before])
        found = delta.passages()
        if found is None:
            assert any((segment.positions < 0).any() for segment in delta.segments)
        else:
            assert pairs_of(delta, found) == as_words(delta)[-1]


def test_a_passage_that_came_and_went_cancels(connection, model):
    """Both flushes are read, and together they change nothing."""
    run = Run(connection, model)
    run.add(0, TEXT)
    run.flush()
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    run.add(1, TEXT)
    run.flush()
    run.delete(1)
    run.flush()
    delta = reader.snapshot().since(before)
    found = delta.passages()
    assert sorted(np.sign(found.weights)) == [-1, 1]
    assert pairs_of(delta, found) == {}


def test_passages_with_a_word_that_has_no_name_any_more_are_not_given(connection, model):
    """The word's id stands in the passage, but neither snapshot says which word it was."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    run.add(0, TEXT)
    run.flush()
    run.delete(0)
    run.add(1, ((2, {"x": 1, "m": 1}),))
    run.flush()
    assert reader.snapshot().since(before).passages() is None


def test_documents_too_short_for_a_pair_leave_no_passage(connection, model):
    """Their weight is zero, so nothing of them is kept that no one needs."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    run.add(0, ())
    run.add(1, ((1, {"alone": 1}),))
    run.flush()
    assert reader.snapshot().since(before).passages().passages == 0
    assert strings(connection, run) == []
    assert [(entry.keys, entry.pairs, entry.rows) for entry in run.state.manifest] == [(1, 0, 0)]


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ([TEXT] * MOST_JOINED, True),
        ([TEXT] * (MOST_JOINED + 1), False),
        ([TEXT * MOST_JOINED], True),
        ([TEXT * (MOST_JOINED + 1)], False),
        ([TEXT] + [()] * MOST_JOINED, True),
    ],
)
def test_a_large_flush_is_given_by_its_pairs(connection, model, texts, known):
    """Neither many documents nor many passages at once are given as such; a document without one does not count."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    for number, text in enumerate(texts):
        run.add(number, text)
    run.flush()
    delta = reader.snapshot().since(before)
    assert (delta.passages() is not None) == known
    assert as_words(delta) == run.live.recount()


@pytest.mark.parametrize("flushes", [[[TEXT]] * 4, [[TEXT * 4]], [[TEXT, TEXT], [TEXT, (), TEXT]]])
def test_a_difference_of_many_passages_is_not_given_as_such(connection, model, flushes, monkeypatch):
    """A reader holds a bounded number of them, however many small flushes there were."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    for texts in flushes:
        for text in texts:
            run.add(run.offset, text)
        run.flush()
    delta = reader.snapshot().since(before)
    monkeypatch.setattr("streamtopic.state.reader.MOST_JOINED", 4)
    assert delta.passages() is not None
    monkeypatch.setattr("streamtopic.state.reader.MOST_JOINED", 3)
    assert delta.passages() is None


def test_a_merge_leaves_no_passage(connection, model):
    """What a deleted document was made of goes with the first merge of its segments, and the pairs stay right."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    for number in range(3):
        run.add(number, TEXT)
        run.flush()
    run.delete(1)
    run.flush()
    assert len(strings(connection, run)) == 4
    assert compact(run.state, everything=True, grace=0.001) == Applied()
    while strings(connection, run):
        pass
    assert as_words(reader.snapshot()) == run.live.recount()


def test_a_merged_segment_has_no_passages(connection, model):
    """While the segments that it replaced can still be read, the difference is known by its pairs only."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    for number in range(3):
        run.add(number, TEXT)
        run.flush()
    assert compact(run.state, everything=True) == Applied()
    delta = reader.snapshot().since(before)
    assert delta.passages() is None
    assert as_words(delta) == run.live.recount()


def test_lost_and_damaged_passages_are_told_apart(connection, model):
    """What was merged away asks for a new snapshot, what is damaged or lost for a rebuild."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    run.add(0, TEXT)
    run.flush()
    delta = reader.snapshot().since(before)
    (name,) = strings(connection, run)
    data = connection.call("GET", name)
    connection.call("SET", name, data[:-1])
    with pytest.raises(StateCorrupt, match="rebuild"):
        delta.passages()
    with pytest.raises(StateCorrupt, match="rebuild"):
        as_words(delta)
    connection.call("DEL", name)
    with pytest.raises(StateCorrupt, match="has lost a part of segment"):
        delta.passages()
    connection.call("SET", name, data)
    run.add(1, TEXT)
    run.flush()
    assert compact(run.state, everything=True, grace=0.001) == Applied()
    connection.call("DEL", name)
    with pytest.raises(SnapshotExpired):
        delta.passages()


def test_a_merge_that_leaves_no_pair_stands_in_no_ones_way(connection, model):
    """A segment without pairs needs no passages: the difference is that of the others."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    run.add(0, TEXT)
    run.flush()
    before = reader.snapshot()
    run.delete(0)
    run.flush()
    assert compact(run.state, everything=True) == Applied()
    assert [entry.keys for entry in run.state.manifest] == [1]
    delta = reader.snapshot().since(before)
    found = delta.passages()
    assert (found.passages, pairs_of(delta, found)) == (1, as_words(delta)[-1])


def test_a_large_segment_is_not_read_to_learn_that_it_has_too_many_passages(connection, model, monkeypatch):
    """The manifest tells; its last string may be 16 MiB."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    for number in range(MOST_JOINED + 1):
        run.add(number, TEXT)
    run.flush()
    delta = reader.snapshot().since(before)
    monkeypatch.setattr(reader, "string", None)
    assert delta.passages() is None
