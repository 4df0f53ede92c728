"""Records from anyone, through a real broker: each is an event, or is refused with a named reason."""

import re
import resource
from collections import Counter

import pytest

from hostile_records import DOCUMENTS, KINDS, hostile
from streamtopic.documents.events import Delete, decode_record
from streamtopic.errors import InvalidEvent
from streamtopic.streams import KafkaLog, KafkaOptions, Message, TopicNames

COUNT = 10_000


def peak_kilobytes():
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture(scope="module")
def found(kafka_server):
    """Ten thousand hostile records, sent in bulk and read back; what each was, and what it turned out to be."""
    before = peak_kilobytes()
    sent = list(hostile(seed=4, count=COUNT))
    # A compacted topic refuses records without a key, which a topic that somebody made by hand does not.
    settings = TopicNames("hostile").settings()["hostile.documents"] | {"cleanup.policy": "delete"}
    events = []
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        log.create("hostile", 1, settings)
        usable = [record for record in sent if record[0] is not None or record[1] is not None]
        for start in range(0, len(usable), 500):
            log.append_many("hostile", [Message(*record, partition=0) for record in usable[start : start + 500]])
        offset = 0
        while records := log.read("hostile", 0, offset):
            offset = records[-1].next_offset
            for record in records:
                try:
                    event = decode_record(record)
                except InvalidEvent as error:
                    event = error.reason
                events.append(((record.key, record.value, record.headers), event))
    assert offset == len(usable)
    return usable, events, peak_kilobytes() - before


def test_records_arrive_as_they_were_sent(found):
    """The broker and the log change nothing, whatever the bytes."""
    sent, events, _ = found
    assert [record for record, _ in events] == sent


def test_each_is_an_event_or_has_a_reason(found):
    """No record stops the reader, and each that is refused says why, by one of a few stable names."""
    reasons = Counter(event for _, event in found[1] if isinstance(event, str))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)?", reason) for reason in reasons)
    assert len(reasons) > 12
    assert COUNT // 2 < sum(reasons.values()) < COUNT


def test_deletes_are_never_refused(found):
    """A tombstone with a usable key is a delete whatever its headers."""
    deletes = [event for (key, value, _), event in found[1] if value is None and key in DOCUMENTS]
    assert len(deletes) > COUNT // len(KINDS) // 2
    assert all(isinstance(event, Delete) for event in deletes)


def test_memory_stays_bounded(found):
    """Neither lying lengths nor deep nesting take memory: nothing near the gigabytes that some records announce."""
    assert found[2] < 500_000


def test_the_same_seed_gives_the_same_records():
    """A failure can be repeated by its seed."""
    assert list(hostile(3, 200)) == list(hostile(3, 200)) != list(hostile(4, 200))
