"""Batches of new documents: their columns give the same changes as their records, one after the other."""

from dataclasses import fields
from types import SimpleNamespace

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.service.ingest import resolve as resolving
from streamtopic.service.ingest.decode import decode_all
from streamtopic.service.ingest.resolve import resolve
from streamtopic.state import Lexicon, LiveDocuments, Meta
from streamtopic.streams import Record, partition_of

NUMBERS = {field.name: 0 for field in fields(Meta)}
BASE = Meta(**NUMBERS | {"commit": "c", "totals": {}})
HEADERS = [(), (), (), (("traceparent", b"x"),), (("ce_type", b"io.deletion.v1.delete"),)]
ADDS = [
    {"op": "add", "text": "one two two"},
    {"op": "add", "text": "one"},
    {"op": "add", "text": ""},
    {"op": "add", "text": "größe two"},
    {"op": "add", "counts": {"new": 3, "two": 1}, "labels": {"task": "class"}, "ts": 1_700_000_000_000},
    {"op": "add", "text": "two", "labels": {"": "no task"}},
    {"op": "add", "text": "two", "subjects": ["a person"]},
    {"op": "none"},
]
plain = st.tuples(st.just(ADDS[0]), st.just(()))
unusual = st.tuples(st.sampled_from(ADDS), st.sampled_from(HEADERS))
KEYS = [b"d%d" % k for k in range(12)] + ["é".encode(), b"st:heartbeat", b"st:other", b"", b"\xff", b'{"id": 5}']
batches = st.one_of(st.lists(plain, max_size=6), st.lists(unusual, max_size=6))


def shown(changes):
    """Return changes as comparable values."""
    added = []
    for document in changes.added:
        values = document.document, document.offset, dict(document.labels), document.subjects
        added.append((*values, document.passages.values()))
    rest = {field.name: getattr(changes, field.name) for field in fields(changes) if field.name != "added"}
    return added, {name: list(value) if value == () else value for name, value in rest.items()}


def by_record(decoded, live, partition):
    """Resolve record after record."""
    run = resolving._Run(live, BASE, partition, 50, 0)
    rows = zip(decoded.records, decoded.events, decoded.homes, decoded.batch.keys, strict=True)
    for record, event, home, document in rows:
        run.take(record, event, home, document)
    return run.result(decoded.next_offset)


@settings(max_examples=150)
@given(batch=batches, keys=st.permutations(KEYS), again=st.booleans(), cut=st.integers(1, 5), days=st.booleans())
def test_columns_and_records_have_the_same_net_effect(batch, keys, again, cut, days):
    """Also where ids come twice, keys belong elsewhere, and a batch is split: every change and every refusal."""
    if not batch:
        return
    if again:
        keys[-1] = keys[0]
    values = [msgpack.packb(value) for value, _ in batch]
    named = [*keys[: len(batch) - 1], keys[-1] if again else keys[len(batch) - 1]]
    records = [
        Record("t", 0, k, key, value, headers, 10 * k)
        for k, (key, value, (_, headers)) in enumerate(zip(named, values, batch, strict=True))
    ]
    lexicon = Lexicon("test")
    whole = decode_all(records, lexicon, 1, days=days)
    for decoded in filter(None, whole.split(min(cut, len(records)))):
        live = LiveDocuments({}, None)
        both = resolve(decoded, live, BASE, 0, 50), by_record(decoded, live, 0)
        assert shown(both[0].changes) == shown(both[1].changes)
        assert both[0].reasons == both[1].reasons
        assert [one.offset for one in decoded.events if hasattr(one, "passages")] == [
            record.offset
            for record, one in zip(decoded.records, decoded.events, strict=True)
            if hasattr(one, "passages")
        ]


def test_only_batches_of_new_documents_are_taken_as_columns(monkeypatch):
    """A live document, a delete, a key of another partition and an id that comes twice are looked at one by one."""
    taken = []
    monkeypatch.setattr(resolving._Run, "take", lambda *given: taken.append(given[1].offset))
    value = msgpack.packb(ADDS[0])
    mine = [key for key in KEYS[:12] if partition_of(key, 2) == 0]
    other = next(key for key in KEYS[:12] if partition_of(key, 2) == 1)

    def looked_at(keys, values=None, live=()):
        taken.clear()
        values = values or [value] * len(keys)
        pairs = enumerate(zip(keys, values, strict=True))
        records = [Record("t", 0, k, key, content, (), 0) for k, (key, content) in pairs]
        documents = {key: SimpleNamespace(offset=0) for key in live}
        resolve(decode_all(records, Lexicon("test"), 2), LiveDocuments(documents, None), BASE, 0, 50)
        return len(taken)

    assert looked_at(mine[:3]) == 0
    assert looked_at(mine[:3], live=mine[:1]) == 3
    assert looked_at([*mine[:2], mine[0]]) == 3
    assert looked_at([*mine[:2], other]) == 3
    assert looked_at(mine[:3], [value, value, None]) == 3
