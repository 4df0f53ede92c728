"""Bytes that prove where they come from: keys, the canonical form, releases, receipts and their topics.

Keys and containers
pack, unpack     canonical msgpack: the same value gives the same bytes
SigningKey       an Ed25519 key that signs (PublicKey: that verifies)
KeyList          a model's keys over time, signed by its root key (seal_keys, open_keys; Revoked: one of its entries)
KeyRing          the keys that a reader believes, as lists arrive
Verifier         what PublicKey and KeyRing have in common
seal, unseal     parts signed together, as one container (open_sealed: with who signed them, Sealed)
kind_of          what a container says it is of, unverified
fitting          a dataclass of signed fields, each of its type
signed_by        a part of one, shown without the rest, with its signature (signature_of)
statement_digest names what is signed
new_signing_key  a key pair in two files; new_secret, load_secret: a secret in one

Releases: one published version of a model
Payload     what the guarantee covers: words, A, R, shares, top words, quality, heads
Head        a task's classifier
Envelope    facts about the service: versions, guarantee, capacity, what was forgotten
REVISION    of the proof that certificates rest on, said by each envelope
Release     both, verified
Kind        of a release: base, unlearn or retrain; Topic, Guarantee: parts of a Release as readers use them
seal_release, open_release    to signed bytes and back (pack_envelope, unpack_envelope: of an envelope alone)
release_digest                names a release; the next one and receipts repeat it
RELEASE_BYTES                 how many a release may have
match_topics                  which topic of one version is which of another
to_messages, tombstones       to records of the releases topic; version_of: the version of a record's key
STATEMENT_KEY, KEYS_KEY       the keys under which statements and key lists stand
Assembler                     records back to signed bytes, Assembled
Statement                     which version is the newest, signed (seal_statement, open_statement, statement_message)
ReleaseReader                 follows the releases topic: Opened, Refused, Removed
follow_keys                   takes in the key lists that are in it (keys_message: a record of one)
newest_statement              what it says last of the newest version and of withdrawn ones

Receipts: what was done about each deletion, chained so that none can be left out unseen
Receipt        one deletion
Completion     the end of many deletions: nothing is left; in the same chain, a Link of it as a receipt is
seal_receipt   its signed bytes; open_receipt: back, verified; to_message: as a record of the receipts topic
seal_completion   as seal_receipt (open_completion, completion_message); open_link: back from either
receipt_id     names a receipt; request_digest, document_digest: what it says of request and document, under a Salt
               (salt_bytes, service_salt, service_document_salt; plain_request_digest: without one)
Chain          takes receipts as they come and says which of them are the one chain
ChainHead      the newest receipt of a chain, which the next one names
ReceiptReader  follows the receipts topic
digest_of      names a record of the chain
audit          checks receipts in a file, offline, with an Audit as its result; export_line: a line of it
"""

from streamtopic.signed.canonical import fitting, pack, unpack
from streamtopic.signed.completion import (
    Completion,
    Link,
    completion_message,
    open_completion,
    open_link,
    seal_completion,
)
from streamtopic.signed.deletion_receipt import (
    Receipt,
    Salt,
    document_digest,
    open_receipt,
    plain_request_digest,
    receipt_id,
    request_digest,
    salt_bytes,
    seal_receipt,
    service_document_salt,
    service_salt,
    to_message,
)
from streamtopic.signed.exported_receipts import Audit, audit, export_line
from streamtopic.signed.key_ring import KeyList, KeyRing, Revoked, open_keys, seal_keys
from streamtopic.signed.matching import match_topics
from streamtopic.signed.receipt_chain import Chain, ChainHead, ReceiptReader, digest_of
from streamtopic.signed.release import Guarantee, Release, Topic
from streamtopic.signed.release_chunks import (
    RELEASE_BYTES,
    Assembled,
    Assembler,
    Removed,
    to_messages,
    tombstones,
    version_of,
)
from streamtopic.signed.release_codec import (
    open_release,
    pack_envelope,
    release_digest,
    seal_release,
    unpack_envelope,
)
from streamtopic.signed.release_fields import REVISION, Envelope, Head, Kind, Payload
from streamtopic.signed.releases_topic import Opened, Refused, ReleaseReader, follow_keys, newest_statement
from streamtopic.signed.sealed import (
    Sealed,
    kind_of,
    open_sealed,
    seal,
    signature_of,
    signed_by,
    statement_digest,
    unseal,
)
from streamtopic.signed.signing_keys import (
    PublicKey,
    SigningKey,
    Verifier,
    load_secret,
    new_secret,
    new_signing_key,
)
from streamtopic.signed.statement import (
    KEYS_KEY,
    STATEMENT_KEY,
    Statement,
    keys_message,
    open_statement,
    seal_statement,
    statement_message,
)

__all__ = [
    "KEYS_KEY",
    "RELEASE_BYTES",
    "REVISION",
    "STATEMENT_KEY",
    "Assembled",
    "Assembler",
    "Audit",
    "Chain",
    "ChainHead",
    "Completion",
    "Envelope",
    "Guarantee",
    "Head",
    "KeyList",
    "KeyRing",
    "Kind",
    "Link",
    "Opened",
    "Payload",
    "PublicKey",
    "Receipt",
    "ReceiptReader",
    "Refused",
    "Release",
    "ReleaseReader",
    "Removed",
    "Revoked",
    "Salt",
    "Sealed",
    "SigningKey",
    "Statement",
    "Topic",
    "Verifier",
    "audit",
    "completion_message",
    "digest_of",
    "document_digest",
    "export_line",
    "fitting",
    "follow_keys",
    "keys_message",
    "kind_of",
    "load_secret",
    "match_topics",
    "new_secret",
    "new_signing_key",
    "newest_statement",
    "open_completion",
    "open_keys",
    "open_link",
    "open_receipt",
    "open_release",
    "open_sealed",
    "open_statement",
    "pack",
    "pack_envelope",
    "plain_request_digest",
    "receipt_id",
    "release_digest",
    "request_digest",
    "salt_bytes",
    "seal",
    "seal_completion",
    "seal_keys",
    "seal_receipt",
    "seal_release",
    "seal_statement",
    "service_document_salt",
    "service_salt",
    "signature_of",
    "signed_by",
    "statement_digest",
    "statement_message",
    "to_message",
    "to_messages",
    "tombstones",
    "unpack",
    "unpack_envelope",
    "unseal",
    "version_of",
]
