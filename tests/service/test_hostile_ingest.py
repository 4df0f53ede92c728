"""Ten thousand records from anyone through ingest: nothing stops it, and everything that can be applied is."""

import resource

import msgpack
import pytest
from test_ingest import World, recount

from hostile_records import hostile
from streamtopic.documents.events import Add, Delete, decode_record, document_of
from streamtopic.errors import InvalidEvent
from streamtopic.streams import Message

COUNT = 10_000


@pytest.fixture(scope="module")
def story(redis_server, tmp_path_factory):
    """Hostile records with a few sound documents among them, all counted; what the codec says of each; memory taken."""
    from streamtopic.state import Connection

    with Connection(redis_server.url) as connection:
        world = World(connection, tmp_path_factory.mktemp("hostile"), model="hostile")
        sent = [Message(*record, partition=0) for record in hostile(seed=11, count=COUNT)]
        for start in range(0, COUNT, 500):
            world.send(*sent[start : start + 500])
        records, offset = [], 0
        while page := world.log.read(world.topics.documents, 0, offset):
            records += page
            offset = page[-1].next_offset
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcomes = world.drain()
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        yield world, records, outcomes, taken


def said(record):
    """Return the event that the codec sees, or the reason why there is none."""
    try:
        return decode_record(record)
    except InvalidEvent as error:
        return error.reason


def test_every_refused_record_is_in_rejected_with_its_reason(story):
    """As many as the codec refuses, in their order, each with its offset and the codec's reason."""
    world, records, outcomes, _ = story
    pointers, offset = [], 0
    while page := world.log.read(world.topics.rejected, 0, offset):
        pointers += [msgpack.unpackb(record.value) for record in page]
        offset = page[-1].next_offset
    refused = [(record.offset, reason) for record in records if isinstance(reason := said(record), str)]
    assert [(pointer["offset"], pointer["reason"]) for pointer in pointers] == refused
    assert outcomes["rejected"] == len(refused) > COUNT // 10


def test_what_is_sound_is_applied_in_order(story):
    """Adds, deletes and refused changes leave the counts of the documents that they leave alive, bit for bit."""
    world, records, outcomes, _ = story
    live, deleted, refused = {}, 0, 0
    for record in records:
        event = said(record)
        if isinstance(event, Add):
            live[event.document] = [(length, dict(words)) for length, words in event.passages]
        elif isinstance(event, Delete):
            deleted += live.pop(event.document, None) is not None
        elif isinstance(event, str) and (document := document_of(record.key)) is not None:
            refused += live.pop(document, None) is not None
    assert outcomes["deleted"] == deleted > 0
    assert outcomes["deleted_by_refusal"] == refused > 0
    assert world.digest() == recount(list(live.values()))
    assert world.counts().documents == len(live)


def test_memory_stays_bounded(story):
    """What is held at a time are the records of a read or two, whatever is in them."""
    assert story[3] < 600_000
