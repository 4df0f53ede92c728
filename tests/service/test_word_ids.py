"""Words of a partition: no number of them refuses a document, and when ids run out ingest stops and loses nothing."""

from collections import Counter

import numpy as np
import pytest
from ingest_world import IngestWorld

from plain_counts import plain_counts
from streamtopic.counts import DocumentBatch, Passage, Weighting, count
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.errors import StateError
from streamtopic.state import MAX_WORD_IDS
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import FileLog


class World(IngestWorld):
    """A model of one partition that has few word ids."""

    def __init__(self, connection, folder, ids=MAX_WORD_IDS):
        super().__init__(connection, FileLog(folder / "log", clock=lambda: 1.0), 1, word_ids=ids)

    def take(self, *messages, at_once=None):
        """Send, count `at_once` records at a time, and return what became of them."""
        self.send(*messages)
        outcomes = Counter()
        while (progress := self.ingests[0].step(at_once)).records:
            outcomes.update(progress.outcomes)
        return dict(outcomes)


def add(document, words, **more):
    """Return the record of a document with each of these words twice."""
    return encode_add(document, counts=dict.fromkeys(words.split(), 2), **more)


def recount(documents):
    """Digest of the counts of these texts, by the counting kernel alone."""
    words = sorted({word for text in documents for word in text.split()})
    rows = []
    for text in documents:
        ids = np.array(sorted(words.index(word) for word in text.split()), np.int32)
        rows.append([Passage(2 * len(ids), ids, np.full(len(ids), 2, np.int32))])
    return plain_counts(count(DocumentBatch.build(rows), len(words), Weighting(256)), words)


def test_ids_that_run_out_stop_ingest_and_a_rebuild_goes_on(connection, tmp_path):
    """The flush that needs more is not written, the error names the remedy, and nothing is lost by it."""
    world = World(connection, tmp_path, ids=4)
    world.take(add("a", "one two three"))
    world.take(encode_delete("a", "r"))
    world.send(add("b", "four"), add("c", "five six"), encode_delete("b", "r2"))
    assert world.ingests[0].step(1).outcomes == {"added": 1}
    for _ in range(2):
        with pytest.raises(StateError, match=r"4 of 4 word ids.*`streamtopic rebuild`.*from offset 3"):
            world.ingests[0].step(1)
        world.open()
    assert world.ingests[0].state.meta.next_offset == 3
    assert world.counted() == recount(["four"])
    remove_partition(connection, world.topics.model, 0)
    world.log.compact(world.topics.documents)
    world.open()
    world.take()
    assert world.counted() == recount(["five six"])


def test_words_that_are_known_or_come_and_go_need_no_id(connection, tmp_path):
    """With every id given, deletions, documents of known words, and words that end in their own flush are counted."""
    world = World(connection, tmp_path, ids=2)
    world.take(add("a", "one two"))
    assert world.take(add("b", "one"), add("c", "three four"), encode_delete("c", "r")) == {"added": 2, "deleted": 1}
    assert world.ingests[0].state.meta.next_word == 2
    assert world.counted() == recount(["one two", "one"])
