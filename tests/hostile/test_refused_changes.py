"""A refused change ends what its id held: counts follow from what compaction leaves of the log, whatever was before."""

import itertools
import logging

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ingest import add, opened

from embedded_service import silent
from plain_counts import counts_in_log, plain_counts
from streamtopic.counts import DocumentBatch, Passage, Weighting, count
from streamtopic.documents.events import LIMITS, encode_delete
from streamtopic.errors import StateMismatch
from streamtopic.service.ingest.missed_deletes import delete_missed
from streamtopic.service.ingest.rejections import RefusedRecords
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ForgetKind, ModelSettings, ModelState, PartitionWriter
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import Message

REFUSED = [
    b'{"op": "burn"}',
    b"\xc1",
    msgpack.packb({"op": "add", "text": 7}),
    msgpack.packb({"op": "add", "counts": {"x": 0}}),
    msgpack.packb({"op": "add", "text": "x" * 1_000_001}),
    b'{"op": "add", "counts": {"a": 1' + b"0" * 400 + b"}}",
    b'{"op": "add", "text": "a b", "meta": ' + b"[" * 300 + b"]" * 300 + b"}",
]


def refused(document, value=REFUSED[0], headers=()):
    """Return a change that no ingest takes."""
    return Message(document.encode(), value, headers)


def recount(documents):
    """Digest of the counts of these documents (lists of (L, counts)), by the counting kernel alone."""
    words = sorted({word for passages in documents for _, counts in passages for word in counts})
    parts = []
    for passages in documents:
        rows = []
        for length, counts in passages:
            ids, amounts = zip(*sorted((words.index(word), n) for word, n in counts.items()), strict=True)
            rows.append(Passage(length, np.array(ids, np.int32), np.array(amounts, np.int32)))
        parts.append(rows)
    return plain_counts(count(DocumentBatch.build(parts), len(words), Weighting()), words)


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(value[:30]))
def test_a_refused_change_removes_what_the_id_held(connection, tmp_path, value, caplog):
    """It is counted, pointed at and told to the operator; without a request it has no receipt, but its own kind."""
    world = opened(connection, tmp_path)
    world.send(add("a", {"x": 2, "y": 1}), add("b", {"x": 1, "z": 1}))
    world.drain()
    world.send(refused("a", value), refused("unknown", value))
    with caplog.at_level(logging.WARNING, "streamtopic.service.ingest.partition_ingest"):
        assert world.drain() == {"rejected": 2, "deleted_by_refusal": 1}
    assert (world.live(), world.counted()) == ({"b"}, world.recounted())
    pointers = RefusedRecords.read(world.log, world.topics, 10).newest
    assert [(pointer.document, pointer.offset) for pointer in pointers] == [(b"a", 2), (b"unknown", 3)]
    (forget,) = world.ingests[0].state.forgets.read()
    assert (forget.document, forget.kind, forget.found) == (b"a", ForgetKind.REFUSED, True)
    assert not forget.wants_receipt
    assert ["1 refused changes removed" in record.getMessage() for record in caplog.records] == [True]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.one_of(
            st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 3), max_size=4),
            st.sampled_from(REFUSED[:5]),
            st.none(),
            st.just(b""),
        ),
    ),
    max_size=16,
)


def told(events):
    """Return records, and the documents that they leave."""
    records, live = [], {}
    for document, what in events:
        live.pop(document, None)
        if isinstance(what, dict):
            records.append(add(document, what))
            live[document] = [(sum(what.values()), what)] if what else []
        else:
            records.append(encode_delete(document, "r") if what is None else refused(document, what))
    return records, list(live.values())


@settings(max_examples=40)
@given(events=EVENTS, cuts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_counts_follow_from_what_compaction_leaves(connection, tmp_path, events, cuts):
    """However the log is cut into flushes; and a recount of the whole log and of its rest agree, none is missed."""
    records, live = told(events)
    world = opened(connection, tmp_path)
    world.send(*records)
    for size in itertools.cycle(cuts):
        if not world.ingests[0].step(size).records:
            break
    expected = recount(live)
    assert world.counted() == expected
    whole = documents_in_log(world.log, world.topics.documents, {0: len(records)}, silent)
    world.log.compact(world.topics.documents)
    left = documents_in_log(world.log, world.topics.documents, {0: len(records)}, silent)
    for found in (whole, left):
        assert counts_in_log(found) == expected
    assert delete_missed(world.ingests[0], world.log) == 0
    remove_partition(connection, world.topics.model, 0)
    world.open()
    world.drain()
    assert world.counted() == expected


def test_limits_are_fixed_when_a_model_is_made(connection, tmp_path, monkeypatch):
    """A program with other limits is refused, by name of the limit and with the remedy."""
    world = opened(connection, tmp_path)
    model = world.topics.model
    ModelState.open(connection, model, ModelSettings(1, 256))
    other = LIMITS.replace("text=1000000", "text=2000000")
    assert other != LIMITS
    for use in (
        lambda: ModelState.open(connection, model, ModelSettings(1, 256, limits=other)),
        lambda: PartitionWriter.open(connection, model, 0, ModelSettings(1, 256, limits=other)),
    ):
        with pytest.raises(StateMismatch, match=r"text 1000000 and not 2000000.*`streamtopic rebuild`"):
            use()
