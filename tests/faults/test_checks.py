"""The checks of the campaign: silent about a sound service, loud about every kind of damage."""

import random
from dataclasses import replace

import pytest
from ingest_world import IngestWorld

from campaign.checks import (
    check_counts,
    check_documents,
    check_ledger,
    check_receipts,
    check_rejected,
    check_subscribers,
    check_versions,
)
from campaign.oracle import Oracle
from campaign.stream import EventStream
from campaign.witness import Subscriber, Witness
from ledger_maker import LedgerMaker, receipt_of
from streamtopic.state import Reader
from streamtopic.streams import FileLog

SALT = b"0123456789abcdef"

PARTITIONS = 2


@pytest.fixture
def counted(connection, tmp_path):
    """A stream that ingest has counted, and an oracle that has read it: (oracle, reader)."""
    with FileLog(tmp_path / "log") as log:
        world, oracle = IngestWorld(connection, log, PARTITIONS), Oracle(PARTITIONS)
        log.append_many(world.topics.documents, EventStream(random.Random(1), PARTITIONS, live=100).batch(600))
        world.drain()
        for r in world.records():
            oracle.take(r.partition, r.offset, r.key, r.value, r.headers)
    return oracle, Reader(connection, world.topics.model, PARTITIONS)


def test_one_document_too_many_is_found(counted):
    """What ingest stored is what the oracle expects; one document less differs in pairs, words and counters."""
    oracle, reader = counted
    assert check_counts(oracle, reader) == []
    assert oracle.counts().documents > 50
    book = oracle.books[0]
    del book.live[max(book.live, key=lambda key: book.live[key].length)]
    found = "\n".join(check_counts(oracle, reader))
    for part in ("pair", "documents with", "tokens of", "documents are counted", "live documents"):
        assert part in found


class _World:
    """A document that was added, deleted and reported properly, in the oracle and in what the world saw."""

    def __init__(self, folder):
        self.oracle = Oracle(1)
        self.oracle.take(0, 0, b"other", b'{"op": "add", "text": "one two"}', ())
        self.oracle.take(0, 1, b"doc", b'{"op": "add", "text": "one two"}', ())
        self.oracle.take(0, 2, b"doc", None, (("request", b"why"), ("salt", SALT)))
        self.oracle.take(0, 3, b"bad", b"{", ())
        self.log = FileLog(folder / "log")
        self.maker = LedgerMaker(self.log, "m")
        self.public = self.maker.key.public
        self.witness = Witness(self.public, "m")
        self.reached = 0
        self.publish(1, 2, 2, kind="retrain")
        self.publish(2, 4, 1)
        self.witness.receipts[0, 2] = receipt()
        self.witness.rejected.add((0, 3))
        self.stored = {0: {b"other"}}
        self.subscriber = Subscriber(self.log, model="m", public_key=self.public)
        self.subscriber.poll()

    def publish(self, version, cut, m, **changes):
        """Let a version be published, and the witness see it."""
        spent = {"cumulative_epsilon": float(version), "cut": {0: cut}, "m": m, "kind": "unlearn"}
        self.maker.publish(version, **spent | changes)
        self.look()

    def look(self):
        """Let the witness see what is in the topics."""
        for record in self.log.read(self.maker.names.ledger, 0, self.reached):
            self.witness.take_page(record.value)
            self.reached = record.next_offset
        for record in self.log.read(self.maker.names.releases, 0, 0):
            self.witness.releases.take(record.key, record.value, record.headers)

    def change(self, version, **changes):
        """Let the entry of a version say something else."""
        self.witness.entries[version] = replace(self.witness.entries[version], **changes)

    def findings(self):
        """Return the findings of all checks but that of counts."""
        return [
            *check_documents(self.oracle, self.stored),
            *check_rejected(self.oracle, self.witness),
            *check_receipts(self.oracle, self.witness),
            *check_ledger(self.witness),
            *check_versions(self.oracle, self.witness),
            *check_subscribers(self.witness, [self.subscriber]),
        ]


def receipt(version=2, offset=2, **changes):
    """A receipt of the deletion."""
    return replace(receipt_of(offset, "why", SALT.decode(), "m", version=version, link="e" * 64), **changes)


def _told(**changes):
    """Return a damage: the receipt of the deletion is another one."""
    return lambda world: world.witness.receipts.update({(0, 2): receipt(**changes)})


def _signed_otherwise(world):
    """Let the key sign two pages after the same tree, and only the first count."""
    first, second = (world.maker.records([receipt(offset=offset)], world.maker.key) for offset in (7, 8))
    world.maker.send(*first, *second)
    world.look()


def _two_receipts(world):
    world.maker.append(receipt())
    world.maker.append(receipt())
    world.look()


def _sent_otherwise(world):
    data, _ = world.maker.made(2, seed=1)
    world.log.append_many(world.maker.names.releases, world.maker.made_of(2, data, 1).chunks)
    world.look()


DAMAGES = [
    (lambda w: w.stored[0].add(b"doc"), "keeps a document that is gone: b'doc'"),
    (lambda w: w.stored[0].clear(), "lost a document: b'other'"),
    (lambda w: w.witness.rejected.clear(), "was not reported: (0, 3)"),
    (lambda w: w.witness.rejected.add((0, 0)), "must not be refused: (0, 0)"),
    (lambda w: w.witness.receipts.clear(), "no receipt: (0, 2)"),
    (lambda w: w.witness.receipts.update({(0, 1): receipt(offset=1)}), "for no deletion: (0, 1)"),
    (_told(version=1), "version 1 holds the document"),
    (_told(version=7), "version 7, which nobody published"),
    (_told(found=False), "says False"),
    (_told(link=""), "says True"),
    (_told(request=""), "is not that of"),
    (_told(request="ab"), "is not that of"),
    (lambda w: w.publish(3, 2, 2), "version 3 holds the document"),
    (lambda w: w.publish(2, 4, 1), "version 2 has a second entry"),
    (_two_receipts, "(0, 2) has a second receipt"),
    (_signed_otherwise, "a checkpoint was signed for 3 entries that is not that of the ledger"),
    (lambda w: w.witness.book.take(b"{}"), "1 strays by the docs"),
    (lambda w: w.witness.entries.pop(1), "without a gap"),
    (lambda w: w.change(2, parent=2), "names 2 as the one before"),
    (lambda w: w.change(2, cumulative_epsilon=1.0), "epsilon did not grow"),
    (lambda w: w.change(2, m=2), "holds 2 documents, 1 lived"),
    (lambda w: w.witness.releases.sent.pop(2), "the newest, were never sent"),
    (_sent_otherwise, "version 2 was sent with other bytes"),
    (lambda w: w.witness.releases.sent.update({3: {"ab"}}), "version 3 was sent without an entry"),
    (lambda w: w.change(2, sigma=2.0), "subscriber 0 holds a version 2 that differs"),
    (lambda w: w.subscriber.seen.pop(2), "subscriber 0 is at version 1, not at 2"),
    (lambda w: w.subscriber.seen.update({2: (w.witness.entries[2], "ab")}), "a version 2 that differs"),
    (lambda w: setattr(w.subscriber, "refused", 1), "subscriber 0 refused 1 releases"),
    (lambda w: w.subscriber.restart() or w.subscriber.poll(), "got version 1 after 2"),
]


@pytest.mark.parametrize(("damage", "finding"), [(lambda _: None, None), *DAMAGES])
def test_each_damage_is_found(tmp_path, damage, finding):
    """A sound service has no finding; each damage to documents, receipts, ledger, versions, subscribers has its own."""
    world = _World(tmp_path)
    damage(world)
    found = world.findings()
    assert any(finding in one for one in found) if finding else found == [], found
