import dataclasses
import itertools
import math
from datetime import UTC, datetime

import msgpack
import numpy as np
import pytest

from streamtopic.client import Receipts
from streamtopic.errors import ComponentUnreachable
from streamtopic.service.publish.publisher import Publisher
from streamtopic.service.schedule.version import outgoing
from streamtopic.signed import (
    ChainHead,
    Envelope,
    Payload,
    ReceiptReader,
    SigningKey,
    document_digest,
    plain_request_digest,
    request_digest,
    seal_receipt,
    seal_release,
    service_document_salt,
    service_salt,
    to_message,
    to_messages,
)
from streamtopic.state import Forget, ForgetKind, Forgets, ModelState
from streamtopic.state.deletions import LinkKeys
from streamtopic.state.model_state import ModelSettings
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import FileLog, TopicNames

KEY = SigningKey.from_bytes(bytes(32))
SECRET = b"s" * 32
_numbers = itertools.count()


@pytest.fixture
def state(connection):
    """State of a model that no other test uses."""
    return ModelState.open(connection, f"pub{next(_numbers)}", ModelSettings(2, 256))


@pytest.fixture
def log(tmp_path, state):
    """A log with the topics of releases and receipts."""
    log = FileLog(tmp_path)
    names = TopicNames(state.model)
    log.create(names.releases, 1)
    log.create(names.receipts, 1)
    return log


@pytest.fixture
def publisher(state, log):
    """The publisher under test."""
    return Publisher(state, log, key=KEY, secret=SECRET)


def stream(connection, state, partition, *forgets):
    """The partition's stream of deletions, with these in it."""
    keys = ModelKeys(state.model).partition(partition)
    for forget in forgets:
        connection.call("XADD", keys.forgets, forget.entry, "forget", forget.pack())
    return Forgets(connection, keys)


def forget(offset, kind=ForgetKind.DELETED, salt=b""):
    """A deletion at an offset."""
    return Forget(offset, b"doc-%d" % offset, kind, f"r-{offset}", salt, 1, 0, 1000 + offset, 2000 + offset)


def envelope(state, version, cut, **changes):
    """A version that reflects the log up to `cut`."""
    base = Envelope(
        model=state.model, version=version, kind="unlearn", parent=version - 1, base=1, cut=cut, m=9, n=5, r=2,
        guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8e-7, tolerance=1e-7, certificate=5e-11, anchors=(),
        margin=math.inf, forgotten=version, capacity=5, capacity_rule="fixed", cumulative_epsilon=1.5, withdrawn=(),
        created=0,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def put(state, messages):
    """Put a version's messages into the outbox."""
    records = [outgoing(state.model, message) for message in messages]
    state.stage(state.acquire("leader", 60_000), 1, release={}, ledger={}, records=records)


def published(log, topic):
    """Records of a topic."""
    return log.read(topic, 0, 0)


def test_the_outbox_reaches_the_log_in_order(publisher, state, log):
    """Staged records, tombstones too, arrive as they were staged and leave the outbox."""
    topic = TopicNames(state.model).releases
    messages = [*to_messages(1, b"x" * (2 << 20)), dataclasses.replace(to_messages(2, b"y")[0], value=None)]
    put(state, messages)
    assert publisher.drain() == len(messages)
    assert [(r.key, r.value, r.headers) for r in published(log, topic)] == [
        (m.key, m.value, m.headers) for m in messages
    ]
    assert state.outbox() == []
    assert publisher.drain() == 0


def test_an_outbox_whose_log_fails_is_kept(publisher, state, log, monkeypatch):
    """What the log does not confirm stays staged and is published by the next try, with the same bytes."""
    topic = TopicNames(state.model).releases
    put(state, to_messages(1, b"content"))

    def fail(*_):
        raise ComponentUnreachable("down")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append_many", fail)
        with pytest.raises(ComponentUnreachable):
            publisher.drain()
    assert publisher.drain() == 1
    assert [r.value for r in published(log, topic)] == [b"content"]


def test_receipts_name_the_first_version_without_the_document(publisher, state, log, connection):
    """Each deletion gets one receipt, once a version's cut lies past it, with that version's numbers."""
    forgets = {
        0: stream(connection, state, 0, forget(3), forget(5, ForgetKind.REPLACED), forget(8), forget(30)),
        1: stream(connection, state, 1, forget(4, ForgetKind.NOT_FOUND)),
    }
    versions = [envelope(state, version, {0: cut, 1: cut}) for version, cut in ((3, 20), (1, 4), (2, 9))]
    assert publisher.issue_receipts(forgets, versions) == 3
    receipts = {receipt.id: receipt for receipt in Receipts(log, model=state.model, public_key=KEY.public)}
    assert {name.split("/", 1)[1]: (r.version, r.found) for name, r in receipts.items()} == {
        "0/3": (1, True), "0/8": (2, True), "1/4": (1, False),
    }  # fmt: skip
    first = receipts[f"{state.model}/0/3"]
    assert (first.received, first.applied) == (1003, 2003)
    assert (first.capacity_used, first.capacity_left, first.cumulative_epsilon) == (1, 4, 1.5)
    assert [entry.offset for entry in forgets[0].read()] == [30]
    assert forgets[1].read() == []
    assert publisher.issue_receipts(forgets, versions) == 0


def test_deletions_of_unknown_documents_get_their_receipt_at_once(publisher, state, log, connection):
    """No version can hold what was not there, so nothing has to be waited for."""
    stream_0 = stream(connection, state, 0, forget(21, ForgetKind.NOT_FOUND))
    assert publisher.issue_receipts({0: stream_0}, [envelope(state, 1, {0: 20})]) == 1
    (receipt,) = Receipts(log, model=state.model, public_key=KEY.public)
    assert (receipt.offset, receipt.version, receipt.found) == (21, 1, False)


def test_a_document_that_came_after_the_last_version_waits_for_one_that_was_made_after_its_deletion(
    publisher, state, log, connection
):
    """A version that is being made while it is deleted may hold it, though none that is published does."""
    came_late = dataclasses.replace(forget(30), document_offset=25)
    again = dataclasses.replace(forget(31, ForgetKind.NOT_FOUND), document=b"doc-30")
    waiting = {0: stream(connection, state, 0, came_late, again)}
    versions = [envelope(state, 1, {0: 20}), envelope(state, 2, {0: 28})]
    assert publisher.issue_receipts(waiting, versions) == 0
    assert publisher.issue_receipts(waiting, [*versions, envelope(state, 3, {0: 40})]) == 2
    assert {r.version for r in Receipts(log, model=state.model, public_key=KEY.public)} == {3}


def ids(log, state):
    """Offsets of all receipts, in the order of their chain."""
    return [receipt.offset for receipt in Receipts(log, model=state.model, public_key=KEY.public)]


def chain_key(state):
    """Where Redis keeps the end of the chain."""
    return ModelKeys(state.model).named("chain")


def set_back(connection, state, *forgets, chain=()):
    """Restore Redis to a moment when these deletions had no receipt; chain: its end at that moment."""
    connection.call("DEL", chain_key(state), ModelKeys(state.model).partition(0).forgets)
    if chain:
        connection.call("HSET", chain_key(state), "sequence", chain[0], "digest", chain[1])
    return stream(connection, state, 0, *forgets)


def test_a_crash_before_the_deletion_is_dropped_issues_nothing_twice(publisher, state, log, connection, monkeypatch):
    """A deletion stays until its receipt is in the log; then it is dropped without another one."""
    forgets = {0: stream(connection, state, 0, forget(3))}
    versions = [envelope(state, 1, {0: 4})]
    with monkeypatch.context() as patch:
        patch.setattr(Forgets, "drop", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            publisher.issue_receipts(forgets, versions)
    assert len(forgets[0]) == 1
    assert publisher.issue_receipts(forgets, [*versions, envelope(state, 2, {0: 9})]) == 0
    assert len(forgets[0]) == 0
    assert len(published(log, TopicNames(state.model).receipts)) == 1


def test_a_crash_before_a_staged_receipt_is_published_loses_nothing(publisher, state, log, connection, monkeypatch):
    """What was staged is published by the next publisher, with the same bytes, and nothing else for that deletion."""
    forgets = {0: stream(connection, state, 0, forget(3))}
    with monkeypatch.context() as patch:
        patch.setattr(log, "append_many", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            publisher.issue_receipts(forgets, [envelope(state, 1, {0: 4})])
    (staged,) = state.outbox()
    again = Publisher(state, log, key=KEY, secret=SECRET)
    assert again.issue_receipts(forgets, [envelope(state, 1, {0: 4}), envelope(state, 2, {0: 9})]) == 0
    assert [record.value for record in published(log, TopicNames(state.model).receipts)] == [staged.record.value]
    assert len(forgets[0]) == 0


def test_each_deletion_has_one_receipt_after_redis_was_set_back(publisher, state, log, connection):
    """An older Redis asks for receipts again that are published; only those that are not get one, behind the chain."""
    versions = [envelope(state, 1, {0: 50})]
    publisher.issue_receipts({0: stream(connection, state, 0, forget(3))}, versions)
    older = tuple(value.decode() for value in connection.call("HMGET", chain_key(state), "sequence", "digest"))
    publisher.issue_receipts({0: stream(connection, state, 0, forget(5), forget(8))}, versions)
    for another in (publisher, Publisher(state, log, key=KEY, secret=SECRET)):
        waiting = set_back(connection, state, forget(5), forget(8), chain=older)
        assert another.issue_receipts({0: waiting}, versions) == 0
        assert len(waiting) == 0
    emptied = set_back(connection, state, forget(3), forget(5), forget(8), forget(9))
    assert publisher.issue_receipts({0: emptied}, versions) == 1
    assert ids(log, state) == [3, 5, 8, 9]


@pytest.mark.parametrize("salt", [b"", b"0123456789abcdef"], ids=["the service's salt", "the requester's"])
def test_what_ties_a_receipt_to_its_request_dies_on_schedule(publisher, state, log, connection, salt):
    """The month's key finds the receipt until it is destroyed; the requester's salt tells what it is about for ever."""
    clock = [datetime(2026, 11, 22, tzinfo=UTC).timestamp()]
    made = Publisher(state, log, key=KEY, secret=SECRET, link_months=2, clock=lambda: clock[0])
    versions, keys = [envelope(state, 1, {0: 50})], LinkKeys(connection, state.model)
    assert made.issue_receipts({0: stream(connection, state, 0, forget(3, salt=salt))}, versions) == 1
    receipts = Receipts(log, model=state.model, public_key=KEY.public)
    (receipt,) = receipts
    assert receipts.linked("r-3", keys.all()) == [receipt]
    assert receipts.linked("r-4", keys.all()) == []
    assert receipts.find("r-3") == []
    assert receipts.find("r-3", salt=salt) == ([receipt] if salt else [])
    own = service_document_salt(SECRET, service_salt(keys.of("2026-11"), receipt.id))
    assert receipt.is_about("doc-3", salt or own)
    assert not receipt.is_about("doc-4", salt or own)
    restored = connection.call("DUMP", ModelKeys(state.model).named("links"))
    for days, left in ((69, ["2026-11"]), (71, [])):
        clock[0] = datetime(2026, 11, 22, tzinfo=UTC).timestamp() + days * 86_400
        made.issue_receipts({0: stream(connection, state, 0)}, versions)
        assert list(keys.all()) == left
    assert receipts.linked("r-3", keys.all()) == []
    assert receipts.find("r-3", salt=salt) == ([receipt] if salt else [])
    connection.call("RESTORE", ModelKeys(state.model).named("links"), 0, restored)
    clock[0] += 3_600
    made.issue_receipts({0: stream(connection, state, 0)}, versions)
    assert keys.all() == {}


def test_nobody_can_try_what_a_receipt_is_about(publisher, state, log, connection):
    """No digest in the topic follows from the ids alone, and none tells the length of a document."""
    publisher.issue_receipts({0: stream(connection, state, 0, forget(3))}, [envelope(state, 1, {0: 50})])
    (record,) = published(log, TopicNames(state.model).receipts)
    (receipt,) = Receipts(log, model=state.model, public_key=KEY.public)
    guesses = {
        plain_request_digest("r-3"),
        request_digest("r-3", SECRET),
        document_digest(SECRET, state.model, b"doc-3"),
    }
    assert not guesses & {receipt.request, receipt.link, receipt.document}
    assert b"length" not in record.value


def test_two_publishers_make_one_chain(publisher, state, log, connection):
    """Whoever comes late reads again: no number twice, no deletion twice, whoever wrote which receipt."""
    other = Publisher(state, log, key=KEY, secret=SECRET)
    versions = [envelope(state, 1, {0: 50})]
    for offset, one in enumerate([publisher, other, other, publisher, other], start=1):
        assert one.issue_receipts({0: stream(connection, state, 0, forget(offset))}, versions) == 1
    reader = ReceiptReader(log, state.model, KEY.public)
    assert [receipt.sequence for receipt in reader.read()] == [1, 2, 3, 4, 5]
    assert (reader.chain.strays, reader.chain.lost) == (0, [])


@pytest.mark.parametrize("same", [True, False], ids=["the same deletion", "another deletion"])
def test_what_a_publisher_of_a_lost_history_appends_does_no_harm(publisher, state, log, connection, same):
    """Redis is set back while a publisher sleeps with receipts in its hands; each deletion still has exactly one."""
    versions = [envelope(state, 1, {0: 50})]
    waiting = stream(connection, state, 0, forget(3))
    late = Publisher(state, log, key=SigningKey.from_bytes(bytes(32)), secret=SECRET)
    receipt = late._receipt(0, dataclasses.replace(forget(3 if same else 4), applied_ms=9), versions[0], ChainHead())
    held = to_message(receipt, seal_receipt(receipt, KEY))
    assert publisher.issue_receipts({0: waiting}, versions) == 1
    log.append_many(TopicNames(state.model).receipts, [held])
    assert publisher.issue_receipts({0: stream(connection, state, 0, forget(4), forget(5))}, versions) == 2
    assert ids(log, state) == [3, 4, 5]
    assert next(iter(Receipts(log, model=state.model, public_key=KEY.public))).applied == 2003


def test_a_log_that_lost_receipts_is_gone_on_with(publisher, state, log, connection, tmp_path):
    """The chain continues from what Redis knows, and a reader is told which receipts are missing."""
    versions = [envelope(state, 1, {0: 50})]
    publisher.issue_receipts({0: stream(connection, state, 0, forget(3), forget(4))}, versions)
    other = FileLog(tmp_path / "other")
    for topic in (TopicNames(state.model).releases, TopicNames(state.model).receipts):
        other.create(topic, 1)
    after = Publisher(state, other, key=KEY, secret=SECRET)
    assert after.issue_receipts({0: stream(connection, state, 0, forget(9))}, versions) == 1
    reader = ReceiptReader(other, state.model, KEY.public)
    assert [receipt.sequence for receipt in reader.read()] == [3]
    assert reader.chain.lost == [range(1, 3)]


def test_a_forged_record_stops_nobody(publisher, state, log, connection):
    """What somebody else wrote into the topic is no receipt and no reason to stop."""
    log.append(TopicNames(state.model).receipts, b"x/0/3", b"not a receipt")
    forgets = {0: stream(connection, state, 0, forget(3))}
    assert publisher.issue_receipts(forgets, [envelope(state, 1, {0: 4})]) == 1


def test_envelopes_are_those_of_the_releases_topic(publisher, state, log, connection):
    """Without envelopes given, the publisher reads what was published; nothing is issued before the first version."""
    forgets = {0: stream(connection, state, 0, forget(3))}
    assert publisher.issue_receipts(forgets) == 0
    payload = Payload(words=("a", "b"), A=np.full((2, 2), 0.5, np.float32), R=np.eye(2, dtype=np.float32),
                      shares=np.full(2, 0.5), top_words=(("a",), ("b",)))  # fmt: skip
    sealed = seal_release(payload, envelope(state, 1, {0: 4}, n=2, anchors=("a", "b")), KEY)
    log.append_many(TopicNames(state.model).releases, to_messages(1, sealed))
    assert publisher.issue_receipts(forgets) == 1


def test_a_partition_that_came_later_may_hold_what_a_version_holds(publisher, state, log, connection):
    """After the number of partitions grew, a version that does not know one is not named as without its documents."""
    moved = {2: stream(connection, state, 2, forget(3), forget(5, ForgetKind.NOT_FOUND))}
    first = envelope(state, 1, {0: 20, 1: 20})
    assert publisher.issue_receipts(moved, [first]) == 1
    assert publisher.issue_receipts(moved, [first, envelope(state, 2, {0: 20, 1: 20, 2: 9})]) == 1
    assert [(r.offset, r.version) for r in Receipts(log, model=state.model, public_key=KEY.public)] == [(5, 1), (3, 2)]


def test_a_faster_publisher_is_no_fault(publisher, state, log, connection, monkeypatch):
    """What another publisher confirms while this one reads the outbox is left to it."""
    put(state, to_messages(1, b"content"))
    entries, batch = state.outbox(), connection.batch

    def overtaken(commands, **more):
        monkeypatch.undo()
        state.confirm(entries)
        return batch(commands, **more)

    monkeypatch.setattr(connection, "batch", overtaken)
    assert publisher.drain() == 0
    assert state.outbox() == []


def test_what_waits_is_looked_at_once(publisher, state, log, connection, monkeypatch):
    """While nothing changes a backlog costs nothing; a new deletion or version is noticed at once."""
    waiting = {0: stream(connection, state, 0, *(forget(offset) for offset in range(5, 9)))}
    versions, pages = [envelope(state, 1, {0: 4})], []
    read = Forgets.read
    monkeypatch.setattr(Forgets, "read", lambda *arguments: pages.append(1) or read(*arguments))
    for _ in range(5):
        assert publisher.issue_receipts(waiting, versions) == 0
    assert 0 < len(pages) < 3
    stream(connection, state, 0, forget(9, ForgetKind.NOT_FOUND))
    assert publisher.issue_receipts(waiting, versions) == 1
    assert publisher.issue_receipts(waiting, [*versions, envelope(state, 2, {0: 20})]) == 4


def test_deletions_that_an_older_version_left_waiting_get_their_receipts(publisher, state, log, connection):
    """Before 0.2 an entry held the document's length where the salt is now."""
    keys = ModelKeys(state.model).partition(0)
    entry = [b"doc-3", "deleted", "r-3", 40, 1, 0, 1003, 2003]
    connection.call("XADD", keys.forgets, "4-0", "forget", msgpack.packb(entry))
    assert publisher.issue_receipts({0: Forgets(connection, keys)}, [envelope(state, 1, {0: 50})]) == 1
    (receipt,) = Receipts(log, model=state.model, public_key=KEY.public)
    assert receipt.is_linked("r-3", LinkKeys(connection, state.model).all())
