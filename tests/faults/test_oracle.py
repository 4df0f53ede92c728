"""The oracle against the code that it is to judge, where nothing goes wrong, and the stream that both read."""

import random
from collections import Counter

import numpy as np
import pytest

from streamtopic.counts import Weighting
from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Delete, Heartbeat, decode
from streamtopic.faults.oracle import Live, Oracle, count
from streamtopic.faults.reading import home, understand
from streamtopic.faults.stream import EventStream
from streamtopic.service.recount import recount
from streamtopic.streams import partition_of

PARTITIONS = 4


def _appended(messages):
    """Messages at the places that a log would give them."""
    ends = Counter()
    for message in messages:
        partition = partition_of(message.key, PARTITIONS) if message.partition is None else message.partition
        yield partition, ends[partition], message
        ends[partition] += 1


def _stream(seed, size=3000):
    return EventStream(random.Random(seed), PARTITIONS, live=200).batch(size)


@pytest.mark.parametrize("seed", range(3))
def test_oracle_and_service_understand_the_same_records(seed):
    """Two readings of one specification agree on what every record of the stream asks for."""
    for message in _stream(seed):
        asked = understand(message.key, message.value, message.headers)
        try:
            event = decode(message.key, message.value, message.headers)
        except InvalidEvent:
            assert asked.kind == "refused"
            continue
        match event:
            case Add():
                passages = tuple((length, dict(words)) for length, words in event.passages)
                assert (asked.kind, asked.passages, asked.labels) == ("add", passages, dict(event.labels))
            case Delete(moved=False):
                assert (asked.kind, asked.request) == ("delete", event.request or "")
            case Delete() | Heartbeat():
                assert asked.kind == "nothing"


def test_oracle_counts_like_the_kernel():
    """Plain dictionaries and the compiled kernel give the same integers, pair by pair."""
    oracle = Oracle(PARTITIONS)
    for partition, offset, message in _appended(_stream(1)):
        oracle.take(partition, offset, message.key, message.value, message.headers)
    live = [document for book in oracle.books for document in book.live.values()]
    counted = oracle.counts()
    expected = recount([document.passages for document in live], Weighting(256))
    upper = expected.cooccurrence.upper.tocoo()
    words = expected.words
    rows = zip(upper.row.tolist(), upper.col.tolist(), upper.data.tolist(), strict=True)
    assert counted.pairs == {(words[i], words[j]): value for i, j, value in rows}
    assert [counted.frequency[word] for word in words] == expected.cooccurrence.frequency.tolist()
    assert [counted.tokens[word] for word in words] == expected.cooccurrence.tokens.tolist()
    assert counted.documents == expected.cooccurrence.documents == len(live) > 150


@pytest.mark.parametrize("length", [0, 1, 2, 3, 255, 256, 257, 8191, 8192])
def test_weights_are_those_of_the_service(length):
    """Both round the same fraction in the same way, at every corner of f(L)."""
    pairs = count([Live(0, ((length, {"one": 1, "two": 1}),), {})]).pairs
    weight = int(np.asarray(Weighting(256).weights([length]))[0])
    assert pairs.get(("one", "two"), 0) == weight


def test_partitions_are_those_of_the_service():
    """The hash written down twice is the same hash."""
    rng = random.Random(3)
    for _ in range(500):
        key = rng.randbytes(rng.randrange(1, 40))
        assert home(key, 7) == partition_of(key, 7)


def test_a_stream_is_made_again_from_its_seed():
    """The same seed makes the same records, another seed others."""
    assert _stream(5, 300) == _stream(5, 300) != _stream(6, 300)


def test_a_stream_holds_every_kind_of_event_and_settles():
    """All that can become of a record happens often, and the number of live documents stays bounded."""
    oracle = Oracle(PARTITIONS)
    for partition, offset, message in _appended(_stream(2)):
        oracle.take(partition, offset, message.key, message.value, message.headers)
    totals = sum((book.totals for book in oracle.books), Counter())
    assert {"added", "replaced", "unchanged", "deleted", "not_found", "rejected", "moved"} == set(totals)
    assert min(totals.values()) > 50
    assert 150 < oracle.counts().documents < 350


def test_a_moved_record_counts_once_and_only_at_home():
    """A record in a foreign partition is nothing there; what was sent home twice is taken once."""
    oracle = Oracle(PARTITIONS)
    key, value = b"doc", b'{"op": "add", "text": "one two"}'
    at = home(key, PARTITIONS)
    oracle.take((at + 1) % PARTITIONS, 5, key, value, ())
    assert oracle.counts().documents == 0
    origin = (("st-origin", b"%d/5" % ((at + 1) % PARTITIONS)),)
    oracle.take(at, 0, key, value, origin)
    oracle.take(at, 1, key, None, ())
    oracle.take(at, 2, key, value, origin)
    assert oracle.counts().documents == 0
    assert [span.holds(cut) for span in oracle.books[at].spans for cut in (0, 1, 2)] == [False, True, False]
