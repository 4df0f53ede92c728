"""Changes and word statistics: what came and what left with a deleted document goes in time, whatever followed it."""

import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from added_documents import added_documents
from streamtopic.counts import Weighting
from streamtopic.state import Applied, DocumentChanges, Forget, ForgetKind, ModelSettings, PartitionWriter
from streamtopic.state.document_records import EVERY_OFFSET, Records, decode_batch
from streamtopic.state.meta import CHANGES, read_statistics

_numbers = itertools.count()


def opened(connection):
    """The writer of a fresh partition."""
    return PartitionWriter.open(connection, f"left{next(_numbers)}", 0, ModelSettings(1, Weighting().cap))


def flush(state, add=(), remove=(), kind=ForgetKind.DELETED):
    """Commit one flush: (id, words) to add, ids to remove."""
    offset = state.meta.next_offset
    stored, _ = state.documents(remove)
    added = [
        (name, offset + k, [(len(words), {word: words.count(word) for word in words})])
        for k, (name, words) in enumerate(add)
    ]
    end = offset + len(added) + len(remove)
    forgets = [
        Forget(place, name, kind, "r", b"", have.offset, 1, 1)
        for place, (name, have) in enumerate(stored.items(), start=end - len(stored))
    ]
    changes = DocumentChanges(end, added_documents(state, *added), stored, forgets)
    assert state.commit(state.plan(changes)).__class__.__name__ == "Applied"


def held(state):
    """Numbers of the words that the statistics or any change name."""
    found = set(read_statistics(state.connection, state.keys).ids.tolist())
    itself = np.arange(state.meta.next_word)
    for key in state.keys.changes:
        for entry in state.connection.call("HGETALL", key).values():
            change = CHANGES.unpack(entry)
            records = Records.of([*change.came, *change.went])
            found.update(decode_batch(records, itself, EVERY_OFFSET).batch.words.tolist())
            found.update(change.born.values())
    return found


def live(state):
    """Numbers of the words that live documents hold."""
    _, numbers, totals = state.vocabulary.words_to_keep()
    return set(numbers[totals[0] > 0].tolist())


def clear(state):
    """Sum changes up as often as two generations take: then no change is left that came before."""
    for _ in range(2):
        assert state.sum_changes() == Applied()


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), flushes=st.integers(1, 12))
def test_any_history_that_was_cleared_names_live_words_alone(connection, seed, flushes):
    """Whatever was added, deleted and summed up: what is left names the live documents' words."""
    rng, state, alive = random.Random(seed), opened(connection), []
    for number in range(flushes):
        add = [(b"%d-%d" % (number, k), rng.choices("abcdefgh", k=3)) for k in range(rng.randrange(4))]
        gone = rng.sample(alive, rng.randrange(len(alive) + 1))
        flush(state, add, gone)
        alive = [name for name in alive if name not in gone] + [name for name, _ in add]
        if rng.random() < 0.5:
            state.sum_changes()
    clear(state)
    assert not state.meta.holds_removed
    assert held(state) == live(state)
