"""The publisher: versions and receipts reach the ledger once, whatever dies or is set back meanwhile."""

import dataclasses
import hashlib
from datetime import UTC, datetime

import pytest
from ledger_world import World

from ledger_maker import envelope_of, payload_of
from streamtopic.client import Receipts
from streamtopic.service.publish.publisher import Publisher
from streamtopic.service.requests.request_door import receipts_of_request
from streamtopic.service.schedule.scheduler import erasures, release_record
from streamtopic.signed import (
    Alive,
    Envelope,
    Erased,
    Receipt,
    document_digest,
    pack_payload,
    request_digest,
    sent_releases,
    service_document_salt,
    service_salt,
    to_messages,
)
from streamtopic.state import Forget, ForgetKind, Forgets, ModelState
from streamtopic.state.connection import ModelKeys
from streamtopic.state.deletions import LinkKeys, Marks, Residue, ResidueState, Stage, Traces
from streamtopic.state.model_state import ModelSettings

SECRET = b"s" * 32


class PublishingWorld(World):
    """One model, whose versions and deletions a test writes into Redis; `now` is the time."""

    def __init__(self, connection, folder):
        super().__init__(connection, folder)
        self.state = ModelState.open(connection, self.model, ModelSettings(2, 256))
        self.now = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
        self.publisher = self.another()

    def another(self, **options):
        """A publisher, as a process that starts has it."""
        self.ledger = self.writer()
        given = {"secret": SECRET, "clock": lambda: self.now}
        return Publisher(self.state, self.log, self.ledger, **given, **options)

    def stream(self, partition):
        """The deletions of a partition that wait."""
        return Forgets(self.connection, ModelKeys(self.model).partition(partition))

    def wait(self, *forgets, partition=0):
        """Let deletions wait for their receipts."""
        stream = self.stream(partition)
        self.connection.change([*stream.made(), *stream.added(forgets)])

    def stage(self, version, cut, **changes):
        """Stage a version as the scheduler does; return its entry."""
        envelope = envelope_of(version, self.model, cut=cut, **changes)
        data = pack_payload(payload_of(seed=version), envelope)
        envelope = dataclasses.replace(envelope, release=hashlib.sha256(data).hexdigest())
        chunks = to_messages(version, data)
        records = [*chunks, *erasures(self.state.releases(), envelope.withdrawn)]
        record = release_record(envelope, chunks=len(chunks), reason="asked for")
        lease = self.state.acquire("leader", 60_000)
        self.state.stage(lease, version, before=version - 1, release=record, records=records)
        return envelope

    def publish(self, publisher=None):
        """Publish until nothing more is due; return the number of receipts."""
        receipts = 0
        while (done := (publisher or self.publisher).step()).did_something:
            receipts += done.receipts
        return receipts

    def entries(self, kind=object):
        """The entries of the ledger, of a kind."""
        self.ledger.catch_up()
        found = self.ledger.entries(range(self.ledger.ledger.size)).values()
        return [logged.entry for logged in found if isinstance(logged.entry, kind)]

    def receipts(self):
        """The receipts, as a reader finds them."""
        return Receipts(self.log, model=self.model, public_key=self.key.public)

    def sent(self):
        """Numbers of the versions whose bytes and proof are in the releases topic."""
        return [version for version, sent in sent_releases(self.log, self.model).items() if sent.complete]


@pytest.fixture
def world(connection, tmp_path):
    """A model that no other test uses."""
    return PublishingWorld(connection, tmp_path)


def forget(offset, kind=ForgetKind.DELETED, salt=b""):
    """A deletion at an offset."""
    return Forget(offset, b"doc-%d" % offset, kind, f"r-{offset}", salt, 1, 1000 + offset, 2000 + offset)


def test_receipts_name_the_first_version_without_the_document(world):
    """Each deletion gets one receipt, once a version's cut lies past it, with that version.

    The cut is the first offset that a version does not reflect. A document that was not there any more, since an
    earlier deletion of it waits as well, is still in the version of that time.
    """
    again = dataclasses.replace(forget(6, ForgetKind.NOT_FOUND), document=b"doc-5")
    world.wait(forget(3), forget(5), again, forget(7, ForgetKind.REPLACED), forget(9), forget(30))
    world.wait(forget(4, ForgetKind.NOT_FOUND), partition=1)
    for version, cut in ((1, 4), (2, 9), (3, 20)):
        world.stage(version, {0: cut, 1: cut})
    assert world.publish() == 5
    receipts = {receipt.id: receipt for receipt in world.receipts()}
    assert {name.split("/", 1)[1]: (r.version, r.found) for name, r in receipts.items()} == {
        "0/3": (1, True), "0/5": (2, True), "0/6": (2, False), "0/9": (3, True), "1/4": (1, False),
    }  # fmt: skip
    first = receipts[f"{world.model}/0/3"]
    assert (first.received, first.applied) == (1003, 2003)
    assert [entry.offset for entry in world.stream(0).read()] == [30]
    assert world.stream(1).read() == []
    assert world.publish() == 0
    for version in (4, 5):
        world.stage(version, {0: 20, 1: 20})
    world.publish()
    assert [entry.version for entry in world.entries(Envelope)] == [1, 2, 3, 4, 5]


def test_a_receipt_names_the_first_of_many_versions(world):
    """A deletion that comes back with a restored Redis has waited for more versions than are read at first."""
    for version in range(1, 13):
        world.stage(version, {0: version})
    world.publish()
    world.wait(forget(2))
    assert world.publish() == 1
    assert [receipt.version for receipt in world.receipts()] == [3]


@pytest.mark.parametrize(("forbidden", "words"), [("", ("backups",)), ("no right", ("file", "backups"))])
def test_the_end_of_traces_says_what_only_the_operator_knows(world, forbidden, words):
    """Backups always, and Redis's file if the service may not have it rewritten; never before a receipt that waits."""
    residue = ResidueState(world.connection, world.model)
    marks = {stage: Marks(((9, 5000),)) for stage in Stage}
    residue.write(Residue({0: Traces(stages=marks)}, forbidden=forbidden))
    world.stage(1, {0: 4})
    world.wait(forget(3), forget(6))
    world.publish()
    assert [(dict(one.ends), one.attested) for one in world.entries(Erased)] == [({0: 3}, words), ({0: 6}, words)]
    world.stage(2, {0: 20})
    world.publish()
    assert dict(world.entries(Erased)[-1].ends) == {0: 9}
    assert residue.read().completed == {0: 9}


@pytest.mark.parametrize("salt", [b"", b"0123456789abcdef"], ids=["the service's salt", "the requester's"])
def test_what_ties_a_receipt_to_its_request_dies_on_schedule(world, salt):
    """The month's key finds the receipt until it is destroyed; the requester's salt tells what it is about for ever."""
    world.publisher = world.another(link_months=2)
    keys, begin = LinkKeys(world.connection, world.model), world.now
    world.stage(1, {0: 50})
    world.wait(forget(3, salt=salt))
    assert world.publish() == 1
    receipts = world.receipts()
    (receipt,) = receipts
    assert [one.entry for one in receipts_of_request(world.ledger, keys, "r-3", None)] == [receipt]
    assert receipts_of_request(world.ledger, keys, "r-4", None) == []
    assert receipts.find("r-3", salt=salt) == ([receipt] if salt else [])
    own = service_document_salt(SECRET, service_salt(keys.of("2026-11"), receipt.id))
    assert receipt.is_about("doc-3", salt or own)
    assert not receipt.is_about("doc-4", salt or own)
    restored = world.connection.call("DUMP", ModelKeys(world.model).named("links"))
    for days, left in ((69, ["2026-11"]), (71, [])):
        world.now = begin + days * 86_400
        world.publish()
        assert list(keys.all()) == left
    assert receipts_of_request(world.ledger, keys, "r-3", None) == []
    assert receipts.find("r-3", salt=salt) == ([receipt] if salt else [])
    world.connection.call("RESTORE", ModelKeys(world.model).named("links"), 0, restored)
    world.now += 3_600
    world.publish()
    assert keys.all() == {}


def test_nobody_can_try_what_a_receipt_is_about(world):
    """No digest in the ledger follows from the ids alone, and none tells the length of a document."""
    world.stage(1, {0: 50})
    world.wait(forget(3))
    world.publish()
    (receipt,) = world.entries(Receipt)
    guesses = {
        request_digest("r-3", b""),
        request_digest("r-3", SECRET),
        document_digest(SECRET, world.model, b"doc-3"),
    }
    assert not guesses & {receipt.request, receipt.link, receipt.document}
    assert b"length" not in b"".join(record.value for record in world.log.read(world.names.ledger, 0, 0))


def test_a_service_says_at_intervals_that_it_is_alive(world):
    """Twice in the time that it promises, and at once when versions change."""
    world.publisher = world.another(interval_ms=60_000)
    world.publish()
    for seconds, words in ((29, 1), (1, 2), (10, 2)):
        world.now += seconds
        world.publish()
        assert len(world.entries(Alive)) == words
    world.stage(1, {0: 4})
    world.publish()
    last = world.entries(Alive)[-1]
    assert (last.made, last.interval, last.newest) == (int(world.now * 1000), 60_000, 1)
    world.state.withdraw(world.state.acquire("leader", 60_000), [1], [])
    world.publish()
    assert world.entries(Alive)[-1].withdrawn == {1}
    # One that is withdrawn before it is sent is never called the newest without that.
    world.stage(2, {0: 4})
    world.state.withdraw(world.state.acquire("leader", 60_000), [2], [])
    world.publish()
    assert {tuple(alive.withdrawn) for alive in world.entries(Alive) if alive.newest == 2} == {(1, 2)}
