"""What readers follow: changes come back as they were, in one history, and go as whole generations when it is due."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_reference import as_words
from test_exactness import Run, restore

from streamtopic.errors import StateCorrupt
from streamtopic.state import (
    CutGone,
    Reader,
)
from streamtopic.state.change_log import ChangeEntry, Place, WordStatistics, read_changes

# Any text, half a surrogate pair as well: JSON allows it.
odd = st.text(st.characters(exclude_categories=()), max_size=5)
ids_of_words = st.dictionaries(odd, st.integers(0, 2**31 - 1), max_size=4)
several = st.lists(st.binary(max_size=8), max_size=4)


def follow(run, after, through=None):
    """Return the changes of a partition between two moments."""
    return list(read_changes(run.connection, run.state.keys, after, through or run.state.meta.place))


@settings(max_examples=100)
@given(came=several, gone=st.lists(st.tuples(st.binary(), st.binary())), born=ids_of_words, dead=ids_of_words, base=odd)
def test_a_change_comes_back_as_it_was(came, gone, born, dead, base):
    """Records and ids byte for byte, words letter for letter, also those that are no text."""
    ids, went, commit = [name for name, _ in gone], [record for _, record in gone], "c"
    *named, again = ChangeEntry.unpack(ChangeEntry(came, went, ids, born, dead).pack(base, commit))
    assert named == [base, commit]
    assert (list(again.came), list(again.went), list(again.ids)) == (came, went, ids)
    assert (dict(again.born), dict(again.dead)) == (born, dead)


@settings(max_examples=100)
@given(totals=st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 3), max_size=5), version=st.integers(0, 2**53))
def test_statistics_come_back_as_they_were(totals, version):
    """Each number of each word id, and the moment that they are of."""
    columns = np.array(totals, np.int64).reshape(-1, 3).T
    again = WordStatistics.unpack(WordStatistics(Place(version, "c"), columns).pack())
    assert again.place == Place(version, "c")
    assert np.array_equal(again.totals, columns)


def damaged(data, entry):
    """Return bytes that are cut off, or have another byte, or one more."""
    at = data.draw(st.integers(0, len(entry) - 1))
    other = bytes([entry[at] ^ data.draw(st.integers(1, 255))])
    return data.draw(st.sampled_from([entry[:at], entry[:at] + other + entry[at + 1 :], entry + b"\0"]))


@settings(max_examples=200)
@given(data=st.data(), totals=st.lists(st.tuples(*[st.integers(0, 300)] * 3), max_size=3))
def test_damage_to_statistics_ends_in_the_package_s_own_error(data, totals):
    """What can be read has three numbers of each word id, whatever byte is another one, lost or added."""
    columns = np.array(totals, np.int64).reshape(-1, 3).T
    packed = WordStatistics(Place(1 << 40, "c" * 24), columns).pack()
    try:
        found = WordStatistics.unpack(damaged(data, packed))
    except StateCorrupt:
        return
    assert (found.totals.shape[0], type(found.place.version), type(found.place.commit)) == (3, int, str)


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
            assert all(isinstance(word, str) for word in [*change.born, *change.dead])
            assert all(isinstance(number, int) for number in [*change.born.values(), *change.dead.values()])
            assert len(change.went) == len(change.ids)
    except (StateCorrupt, CutGone):
        return


def test_a_history_that_forked_is_noticed(connection, run):
    """Redis was set back and went on to the same version otherwise: neither its changes nor its moment are followed."""
    reader = Reader(connection, run.model, 1)
    run.save()
    run.add(5, ((2, {"lost": 2}),))
    run.flush()
    old, lost = reader.counts(), run.state.meta.place
    restore(connection, run.state.keys, run.saved[0])
    run.live.documents, run.offset = dict(run.saved[1]), run.saved[2]
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
