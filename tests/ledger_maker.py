"""A ledger and a releases topic as a service writes them, for tests without a service.

    maker = LedgerMaker(log)                  # makes the topics of model `news`; maker.key signs
    maker.append(maker.receipt(7), ...)       # one page: its draft and its checkpoint; the entries as `Logged`
    maker.publish(1)                          # a version: its entry, its chunks and their proof; a `Made`
    maker.alive()                             # the service says what is there
    maker.proof(index)                        # the text of a proof of any entry
    maker.records([entry, ...], key)          # the records of a page, signed by any key, to be sent or to be lost
    maker.keys()                              # a fresh KeyRing of a reader
    maker.follow()                            # take in what others have written into the ledger, too

Payload and envelope of a small version are `payload_of()` and `envelope_of(version)`.
"""

import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass

import numpy as np

from streamtopic.signed import (
    Alive,
    Envelope,
    KeyList,
    KeyRing,
    Keys,
    Ledger,
    LedgerProof,
    Payload,
    Receipt,
    Revoked,
    Runs,
    SigningKey,
    document_digest,
    leaf_hash,
    pack_payload,
    page_record,
    proof_message,
    request_digest,
    seal_keys,
    sign_note,
    to_messages,
)
from streamtopic.signed.signing_keys import read_note
from streamtopic.streams import Message, TopicNames, pages
from whole_tree import Tree

SALT = "0123456789abcdef"
CREATED = 1_700_000_000_000


def key_of(model="news", number=0):
    """A key of a model's ledger, always the same for a number."""
    return SigningKey.from_seed(bytes([number]) * 32, f"test/{model}")


def payload_of(n=6, r=2, seed=0):
    """A payload of n words and r topics."""
    rng = np.random.default_rng(seed)
    words = tuple(f"w{i:05d}" for i in range(n))
    A = rng.dirichlet(np.ones(n), r).T.astype(np.float32)
    R = np.eye(r, dtype=np.float32) / r
    top = tuple(tuple(words[i] for i in np.argsort(-A[:, k])[:3]) for k in range(r))
    quality = {"npmi": 0.25, "diversity": 1.0}
    return Payload(words, A, R, np.full(r, 1 / r), top, quality, anchors=words[:r])


def envelope_of(version=1, model="news", **changes):
    """The facts of a version of `payload_of()`; `release` is still empty. changes: fields of Envelope."""
    envelope = Envelope(
        model=model, version=version, kind="retrain", parent=version - 1, base=1, cut={0: 10, 1: 12}, m=20, n=6, r=2,
        guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8.5e-7, tolerance=1e-7, certificate=5e-11, forgotten=0,
        capacity=5, capacity_rule="fixed", cumulative_epsilon=1.0, withdrawn=(), created=CREATED,
    )  # fmt: skip
    return dataclasses.replace(envelope, **changes)


def receipt_of(offset, request=None, salt=SALT, model="news", **changes):
    """A receipt of the delete at an offset of partition 0.

    request: its request id, `r-OFFSET` if none is given; document: `d-OFFSET`. changes: fields of Receipt.
    """
    receipt = Receipt(
        model=model, partition=0, offset=offset, request=request_digest(request or f"r-{offset}", salt),
        document=document_digest(salt.encode(), model, b"d-%d" % offset), link="", month="2026-11",
        received=CREATED, applied=CREATED + 1, found=True, version=1,
    )  # fmt: skip
    return dataclasses.replace(receipt, **changes)


@dataclass(frozen=True)
class Made:
    """A version that was published.

    data: the bytes of the release. proof: its text in the topic. index: of its entry.
    chunks: the records of its bytes; messages: these and the record of the proof.
    """

    version: int
    data: bytes
    proof: str
    index: int
    chunks: tuple
    messages: tuple


class LedgerMaker:
    """Writes the ledger and the releases of one model, and follows only what it wrote itself.

    log: any EventLog; topics that are missing are made.
    key: signs; a test may put another one in its place at any time.
    root: the SigningKey of the root, if keys come from lists; else readers know the first `key` only.
    ledger: as a reader knows it. tree: of all its entries.
    """

    def __init__(self, log, model="news", key=None, *, root=None):
        self.log, self.model, self.root = log, model, root
        self.names = TopicNames(model)
        self.key = self.first_key = key or key_of(model)
        self.tree = Tree()
        self.lines = []
        self.ledger = Ledger(KeyRing.load(self.pinned, model, [self.key.public]))
        for topic in (self.names.ledger, self.names.releases):
            if not log.partitions(topic):
                log.create(topic, 1, self.names.settings()[topic])

    @property
    def pinned(self):
        """The public key that a reader is given."""
        return (self.root or self.first_key).public

    def keys(self):
        """The keys of a reader that has read nothing yet."""
        return KeyRing.load(self.pinned, self.model)

    def receipt(self, offset, *others, **changes):
        """A receipt of this model, as `receipt_of`."""
        return receipt_of(offset, *others, model=self.model, **changes)

    def records(self, entries, key=None):
        """Return the values of the two records of a page after the ledger: draft and checkpoint. Nothing is sent.

        key: signs both, also one that no reader trusts.
        """
        key = key or self.key
        draft = self.ledger.draft(entries, key)
        # A draft holds the text of the checkpoint that is to be signed.
        after = read_note(json.loads(draft)["draft"]).text.split("\n", 2)[2]
        return [draft, page_record(sign_note(after, key))]

    def send(self, *values):
        """Append values to the ledger topic as they are; this maker does not read them."""
        self.log.append_many(self.names.ledger, [Message(None, value, partition=0) for value in values])

    def append(self, *entries, key=None):
        """Append a page; return its entries that count as `Logged`."""
        records = self.records(entries, key)
        self.send(*records)
        return self.take(*records)

    def take(self, *values):
        """Follow records that were sent, or that are to be sent later; return the entries that count."""
        logged = []
        for value in values:
            logged += self.ledger.take(value)
            page = self.ledger.page
            for line in page.lines if page else ():
                self.tree.append(leaf_hash(line.encode()))
                self.lines.append(line)
        return logged

    def follow(self):
        """Read the ledger topic again, with all that others have written."""
        self.ledger, self.tree, self.lines = Ledger(self.ledger.keys), Tree(), []
        for page in pages(self.log, self.names.ledger, 0, 0):
            self.take(*(record.value for record in page))

    def proof(self, index):
        """Return the text of the proof that an entry is in the ledger as it is now."""
        size = self.ledger.size
        return LedgerProof(self.lines[index], index, self.tree.inclusion(index, size), self.ledger.checkpoint).text

    def made(self, version=1, *, payload=None, n=6, r=2, seed=0, **changes):
        """Return bytes and facts of a version; nothing is sent. changes: fields of Envelope."""
        payload = payload or payload_of(n, r, seed)
        facts = envelope_of(version, self.model, **({"n": len(payload.words), "r": r} | changes))
        data = pack_payload(payload, facts)
        return data, dataclasses.replace(facts, release=hashlib.sha256(data).hexdigest())

    def publish(self, version=1, **changes):
        """Publish a version as a service does: entry, chunks, proof. changes: as of `made`."""
        data, facts = self.made(version, **changes)
        index = self.ledger.size
        self.append(facts)
        made = self.made_of(version, data, index)
        self.log.append_many(self.names.releases, list(made.messages))
        return made

    def made_of(self, version, data, index):
        """Return the records of bytes whose entry has this index, with a proof of the ledger as it is now."""
        proof = self.proof(index)
        chunks = to_messages(version, data)
        return Made(version, data, proof, index, tuple(chunks), (*chunks, proof_message(version, proof)))

    def alive(self, newest=None, *, made=None, interval=600_000, withdrawn=None, key=None):
        """Append what a service says every so often: what it knows, or what a test says in its place.

        made: milliseconds since 1970, now for None. withdrawn: numbers of versions.
        """
        entry = Alive(
            made=int(time.time() * 1000) if made is None else made,
            interval=interval,
            newest=self.ledger.newest if newest is None else newest,
            withdrawn=Runs.of(self.ledger.withdrawn if withdrawn is None else withdrawn),
        )
        return self.append(entry, key=key)

    def list_keys(self, keys, root=None, key=None):
        """Append a list of keys, signed by the root or by another `root`; return its note."""
        note = seal_keys(keys, root or self.root)
        self.append(Keys(note), key=key)
        return note

    def begin_list(self):
        """Append the first list of keys."""
        self.listed = KeyList(self.key.name, 1, 0, self.key.public)
        self.list_keys(self.listed)

    def rotate(self, key):
        """Another key signs, and its first page brings the list that says so."""
        self.listed = self.listed.rotated(key.public, self.listed.sequence)
        self.list_keys(self.listed, key=key)
        self.key = key

    def revoke(self, key, first):
        """Revoke a key that signed before: its entries from `first` on are void."""
        self.listed = self.listed.without(Revoked(key.public, first, self.ledger.size, 9))
        self.list_keys(self.listed)

    def fork(self, log=None, key=None):
        """Return another maker that goes on from the same ledger: a second writer, or one of another log.

        key: of a thief, who believes it against all lists.
        """
        other = LedgerMaker(log or self.log, self.model, key or self.first_key, root=None if key else self.root)
        other.key = key or self.key
        ring = KeyRing(key.public, self.model) if key else dataclasses.replace(self.ledger.keys)
        other.ledger = Ledger.restore(self.ledger.dump(), ring)
        for line in self.lines:
            other.tree.append(leaf_hash(line.encode()))
        other.lines = list(self.lines)
        return other
