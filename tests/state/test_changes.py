"""What readers follow: changes come back as they were, in one history, and go as whole generations when it is due."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_reference import Run, as_words, difference, words_by_id

from streamtopic.errors import StateCorrupt
from streamtopic.state import (
    Applied,
    CutGone,
    DocumentChanges,
    Forget,
    ForgetKind,
    Reader,
)
from streamtopic.state.meta import Place, WordStatistics, read_changes

RARE = "xylograph"


def follow(run, after, through=None):
    """Return the changes of a partition between two moments."""
    return list(read_changes(run.connection, run.state.keys, after, through or run.state.meta.place))


def remove(run, number, kind=ForgetKind.DELETED):
    """Commit the removal of a document with its entry, as ingest does."""
    document = f"d{number}".encode()
    ((_, stored),) = run.state.documents([document])[0].items()
    forget = Forget(run.offset, document, kind, "r", b"salt", stored.offset, 1, 1)
    run.offset += 1
    run.live.documents.pop(document)
    changes = DocumentChanges(run.offset, removed={document: stored}, forgets=[forget])
    assert run.state.commit(run.state.plan(changes)) == Applied()
    return forget


@settings(max_examples=100)
@given(totals=st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 3), max_size=5), version=st.integers(0, 2**53))
def test_statistics_come_back_as_they_were(totals, version):
    """Each word with its id and its numbers, and the moment that they are of."""
    columns = np.array(totals, np.int64).reshape(-1, 3).T
    words, ids = [b"\xff%d" % k for k in range(len(totals))], np.arange(len(totals)) * 300
    again = WordStatistics.unpack(WordStatistics(Place(version, "c"), words, ids, columns).pack())
    assert (again.place, again.words) == (Place(version, "c"), words)
    assert np.array_equal(again.ids, ids)
    assert np.array_equal(again.totals, columns)


def damaged(data, entry):
    """Return bytes that are cut off, or have another byte, or one more."""
    at = data.draw(st.integers(0, len(entry) - 1))
    other = bytes([entry[at] ^ data.draw(st.integers(1, 255))])
    return data.draw(st.sampled_from([entry[:at], entry[:at] + other + entry[at + 1 :], entry + b"\0"]))


@settings(max_examples=200)
@given(data=st.data(), totals=st.lists(st.tuples(*[st.integers(0, 300)] * 3), max_size=3))
def test_damage_to_statistics_ends_in_the_package_s_own_error(data, totals):
    """What can be read has an id and three numbers of each word, whatever byte is another one, lost or added."""
    columns = np.array(totals, np.int64).reshape(-1, 3).T
    words, ids = [b"w"] * len(totals), np.arange(len(totals))
    packed = WordStatistics(Place(1 << 40, "c" * 24), words, ids, columns).pack()
    try:
        found = WordStatistics.unpack(damaged(data, packed))
    except StateCorrupt:
        return
    assert found.totals.shape == (3, len(found.words))
    assert (len(found.ids), type(found.place.version), type(found.place.commit)) == (len(found.words), int, str)


@settings(max_examples=60)
@given(data=st.data())
def test_damage_to_an_entry_ends_in_the_package_s_own_error(connection, new_model, data):
    """Whatever byte is another one, lost or added: a reader that follows says so, counts again, or reads a document."""
    run = Run(connection, new_model())
    run.add(0, ((3, {"x": 2, "é": 1}),))
    run.flush()
    key, version = run.state.keys.changes[0], run.state.meta.version
    entry = connection.call("HGET", key, version)
    connection.call("HSET", key, version, damaged(data, entry))
    try:
        for place, change in follow(run, Place(1, "")):
            assert place == run.state.meta.place
            assert all(isinstance(record, bytes) for record in [*change.came, *change.went, *change.ids])
            assert all(isinstance(word, bytes) for word in change.born)
            assert all(isinstance(number, int) for number in change.born.values())
    except (StateCorrupt, CutGone):
        return


def test_a_history_that_forked_is_noticed(connection, run):
    """Redis was set back and went on to the same version otherwise: neither its changes nor its moment are followed."""
    reader = Reader(connection, run.model, 1)
    run.save()
    run.add(5, ((2, {"lost": 2}),))
    run.flush()
    old, lost = reader.counts(), run.state.meta.place
    run.set_back()
    run.add(5, ((2, {"other": 2}),))
    run.flush()
    here = run.state.meta.place
    assert here.version == lost.version
    assert here != lost
    for after, through in ((lost, here), (here, lost), (Place(lost.version - 1, "other"), here)):
        with pytest.raises(CutGone, match="another history"):
            follow(run, after, through)
    with pytest.raises(CutGone, match="set back"):
        as_words(old)
    counts = reader.counts()
    assert as_words(counts) == run.live.recount()
    with pytest.raises(CutGone, match="another history"):
        counts.since(old)
    run.add(6, ((2, {"later": 2}),))
    run.flush()
    with pytest.raises(CutGone, match="another history"):
        follow(run, lost)
    assert as_words(reader.counts()) == run.live.recount()
    assert "lost" not in reader.counts().words


def traces(run, *texts):
    """Return the keys of a partition whose bytes hold one of these texts, as Redis dumps them uncompressed."""
    return [key.decode() for key, data in run.dump().items() if any(text in data for text in texts)]


@pytest.mark.parametrize("kind", [ForgetKind.DELETED, ForgetKind.REPLACED])
def test_nothing_of_a_removed_document_is_left_in_any_key(connection, run, kind):
    """Two sums and its receipt after it left, no key of the partition has its id or a word that it alone held."""
    compressed = connection.call("CONFIG", "GET", "rdbcompression")
    connection.call("CONFIG", "SET", "rdbcompression", "no")
    try:
        texts = (b"d777", RARE.encode())
        run.add(777, ((5, {"x": 2, RARE: 3}),))
        run.flush()
        run.sum()
        assert len(traces(run, *texts)) >= 3
        if kind is ForgetKind.REPLACED:
            # The same document comes again without the word: its id may stay, the word may not.
            run.add(777, ((2, {"x": 2}),))
            run.flush()
            texts = texts[1:]
            forgets = []
        else:
            forgets = [remove(run, 777)]
        held = run.state.keys.changes[1]
        before = connection.call("MEMORY", "USAGE", held)
        run.state.forgets.drop(forgets)
        assert run.state.sum_changes() == Applied()
        # A change names a document that went, and the statistics name its words.
        assert traces(run, *texts) == [*([held] if forgets else []), run.state.keys.statistics]
        assert run.state.sum_changes() == Applied()
        assert traces(run, *texts) == []
        assert (connection.call("MEMORY", "USAGE", held) or 0) < before
        assert not run.state.meta.holds_removed
    finally:
        connection.call("CONFIG", "SET", *compressed)


def aged(run, seconds):
    """Let the last sum be so long ago."""
    now = run.state.meta.summed_ms / 1000 + seconds
    run.state._clock = lambda: now


def test_statistics_are_due_once_a_removed_document_is_old(run):
    """A quarter of the allowed age after the last sum; without a removed document never."""
    day = 86_400
    run.sum()
    aged(run, 365 * day)
    assert not run.state.keep_summed(4.0 * day)
    remove(run, 1)
    aged(run, day - 600)
    assert not run.state.keep_summed(4.0 * day)
    # One step ends the generation that holds the document, the next one removes it.
    for _ in range(2):
        assert run.state.meta.holds_removed
        aged(run, day + 600)
        assert run.state.keep_summed(4.0 * day)
        assert not run.state.keep_summed(4.0 * day)
    assert not run.state.meta.holds_removed
    aged(run, 365 * day)
    assert not run.state.keep_summed(4.0 * day)


def test_a_word_that_died_comes_back_under_a_new_id(connection, model):
    """Its old id goes with the second word statistics, and is never given again: changes name it until then."""
    run = Run(connection, model)
    run.add(0, ((2, {"x": 1, "y": 1}),))
    run.flush()
    before = max(words_by_id(run.state.vocabulary))
    run.delete(0)
    run.sum()
    run.sum()
    assert len(run.state.vocabulary) == 0
    run.add(1, ((2, {"x": 2}),))
    run.flush()
    assert {number > before: word for number, word in words_by_id(run.state.vocabulary).items()} == {True: b"x"}


def test_a_difference_costs_what_changed(connection, model, monkeypatch):
    """Who follows reads neither documents nor words, and needs nothing but the changes, which lead forwards."""
    run = Run(connection, model)
    for number in range(50):
        run.add(number, ((6, {"x": 1, "m": 2, "a": 3}),))
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
    with pytest.raises(CutGone):
        old.since(reader.counts())
