"""The oracle against the code that it is to judge, where nothing goes wrong, and the stream that both read."""

import random
from collections import Counter

import pytest

from campaign.checks import check_forwards
from campaign.oracle import Oracle
from campaign.reading import demanded, home, understand
from campaign.stream import EventStream
from streamtopic.documents.deletion_record import decode_request
from streamtopic.documents.events import Delete, Document, Heartbeat, decode
from streamtopic.errors import InvalidEvent
from streamtopic.streams import Record, partition_of

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
    """Two readings of one specification agree on what every record asks for, of the stream and of who means harm."""
    for message in _stream(seed):
        asked = understand(message.key, message.value, message.headers)
        try:
            event = decode(message.key, message.value, message.headers)
        except InvalidEvent:
            assert asked.kind == "refused"
            continue
        match event:
            case Document():
                passages = tuple((length, dict(words)) for length, words in event.passages)
                assert (asked.kind, asked.passages, asked.labels) == ("add", passages, dict(event.labels))
                assert asked.subjects == set(event.subjects)
            case Delete():
                assert (asked.kind, asked.request, asked.salt) == ("delete", event.request or "", event.salt)
            case Heartbeat():
                assert asked.kind == "nothing"


def test_oracle_and_service_understand_the_same_requests():
    """Some are sent twice, some records are no requests, and some are tombstones of others."""
    oracle, stream = Oracle(PARTITIONS), EventStream(random.Random(5), PARTITIONS, live=100)
    stream.batch(3000)
    sent = stream.requests()
    for message in sent:
        oracle.take_request(message.key, message.value, 0)
        if message.value is not None:
            asked = demanded(message.key, message.value, 0)
            try:
                wanted = decode_request(Record("requests", 0, 0, message.key, message.value, (), 0))
            except InvalidEvent:
                assert asked is None
            else:
                assert (asked.request, asked.salt.decode(), asked.subjects) == (
                    wanted.id,
                    wanted.salt,
                    {*wanted.subjects},
                )
    assert 20 < len(oracle.demands) < len({message.key for message in sent}) < len(sent)
    assert {demand.erased for demand in oracle.demands.values()} == {False, True}


def test_a_stream_holds_every_kind_of_event_and_settles():
    """All that can become of a record happens often, and the number of live documents stays bounded."""
    oracle = Oracle(PARTITIONS)
    for partition, offset, message in _appended(_stream(2)):
        oracle.take(partition, offset, message.key, message.value, message.headers)
    totals = sum((book.totals for book in oracle.books), Counter())
    found = {"added", "replaced", "unchanged", "deleted", "not_found", "rejected", "deleted_by_refusal", "forwarded"}
    assert found == set(totals)
    assert min(totals.values()) > 40
    assert 150 < oracle.counts().documents < 350


def test_what_came_elsewhere_must_take_effect_at_home():
    """A delete needs a record at home that is no older; a refused change needs nothing."""
    oracle, key, value = Oracle(PARTITIONS), b"doc", b'{"op": "add", "text": "one two"}'
    at = home(key, PARTITIONS)
    elsewhere = (at + 1) % PARTITIONS
    oracle.take(at, 0, key, value, (), 10)
    oracle.take(elsewhere, 0, key, b"{", (), 20)
    assert check_forwards(oracle) == []
    oracle.take(elsewhere, 2, key, None, (), 22)
    assert check_forwards(oracle) == [
        f"it never took effect in the partition of its key: b'doc' at {elsewhere}/2",
    ]
    oracle.take(at, 2, key, value, (), 22)
    assert check_forwards(oracle) == []
