"""Bytes that prove where they come from: keys, the canonical form, releases, receipts and their topics.

Keys and containers
pack, unpack       canonical msgpack: equal values have equal bytes
SigningKey         signs (Ed25519); PublicKey verifies
new_signing_key    makes a key pair in two files (new_secret, load_secret: a secret in one file)
KeyList            a model's keys over time, signed by its root key (seal_keys, open_keys; Revoked: one entry)
KeyRing            the keys that a reader trusts, which change as lists arrive
Verifier           the protocol of PublicKey and KeyRing
seal               signs named parts together, in one container
unseal             verifies a container and returns its parts (open_sealed: with the signer, as Sealed)
signed_by          verifies one part of a container without the others, by its signature (signature_of)
statement_digest   names the signed bytes
fitting            makes a dataclass of unpacked fields and checks their types

Releases: one published version of a model
Payload            words, A, R, shares, top words, quality, heads: the part that the guarantee covers
Head               a task's classifier
Envelope           facts about the version: guarantee, capacity, forgotten documents
Kind               how a version was made: retrain or unlearn
REVISION           of the proof that certificates rest on; each envelope names one
Release            a verified version, as readers use it (Topic, Guarantee: parts of it)
seal_release       signed bytes of payload and envelope (open_release: back, verified)
pack_envelope      canonical bytes of an envelope, unsigned (unpack_envelope: back)
release_digest     names a release; the next release and receipts repeat it
match_topics       pairs the topics of two versions
to_messages        records of a release in the releases topic (tombstones: records that erase it)
version_of         the version to which a record belongs, by its key
RELEASE_BYTES      the longest release
Assembler          puts records together to signed bytes (Assembled)
Statement          which version is the newest, signed (seal_statement, open_statement, statement_message)
STATEMENT_KEY      key of statements in the topic (KEYS_KEY: of key lists; keys_message: record of one)
ReleaseReader      follows the releases topic (Opened, Refused, Removed)
follow_keys        takes in the key lists of the topic
foreign_key_lists  how many lists of another root key are there
newest_statement   the statement with the highest number

Receipts: the record of each deletion, chained so that none can be left out unseen
Receipt            one deletion (receipt_id: its name)
Completion         the end of many deletions
Link               a receipt or a completion: one record of the chain
seal_receipt       signed bytes (open_receipt: back, verified)
seal_completion    the same of a completion (open_completion)
SubjectReceipt     covers the receipts of all documents of a subject (seal_subject_receipt, open_subject_receipt;
                   subject_receipt_id, covered_digest, runs: what it is made of)
open_any           opens any of the three (to_message: its record of the receipts topic)
request_digest     how a receipt names a request, under a Salt (document_digest: a document; salt_bytes)
service_salt       the service's own salt of a receipt (service_document_salt: of the document in it)
plain_request_digest   how receipts of format 2 name a request
Chain              decides which links belong to the chain
ChainHead          the newest link of a chain
digest_of          names a link; the next one repeats it
ReceiptReader      follows the receipts topic
audit              checks receipts in a file, without the service (Audit; export_line: a line of the file)
ModelDeletion      the last statement of a model that was deleted (seal_deletion; open_deletion: back, verified;
                   deletion_message: record of the receipts topic; deletion_line, open_deletion_line: in a file)
"""

from streamtopic.signed.deletion_receipt import (
    Completion,
    Link,
    Receipt,
    Salt,
    SubjectReceipt,
    covered_digest,
    document_digest,
    open_any,
    open_completion,
    open_receipt,
    open_subject_receipt,
    plain_request_digest,
    receipt_id,
    request_digest,
    runs,
    salt_bytes,
    seal_completion,
    seal_receipt,
    seal_subject_receipt,
    service_document_salt,
    service_salt,
    subject_receipt_id,
    to_message,
)
from streamtopic.signed.key_ring import KeyList, KeyRing, Revoked, open_keys, seal_keys
from streamtopic.signed.model_deletion import (
    ModelDeletion,
    deletion_line,
    deletion_message,
    open_deletion,
    open_deletion_line,
    seal_deletion,
)
from streamtopic.signed.receipt_chain import Audit, Chain, ChainHead, ReceiptReader, audit, digest_of, export_line
from streamtopic.signed.release import Guarantee, Release, Topic, match_topics, open_release
from streamtopic.signed.release_codec import (
    REVISION,
    Envelope,
    Head,
    Kind,
    Payload,
    pack_envelope,
    release_digest,
    seal_release,
    unpack_envelope,
)
from streamtopic.signed.releases_topic import (
    KEYS_KEY,
    RELEASE_BYTES,
    STATEMENT_KEY,
    Assembled,
    Assembler,
    Opened,
    Refused,
    ReleaseReader,
    Removed,
    Statement,
    follow_keys,
    foreign_key_lists,
    keys_message,
    newest_statement,
    open_statement,
    seal_statement,
    statement_message,
    to_messages,
    tombstones,
    version_of,
)
from streamtopic.signed.sealed import (
    Sealed,
    fitting,
    open_sealed,
    pack,
    seal,
    signature_of,
    signed_by,
    statement_digest,
    unpack,
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
    "ModelDeletion",
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
    "SubjectReceipt",
    "Topic",
    "Verifier",
    "audit",
    "covered_digest",
    "deletion_line",
    "deletion_message",
    "digest_of",
    "document_digest",
    "export_line",
    "fitting",
    "follow_keys",
    "foreign_key_lists",
    "keys_message",
    "load_secret",
    "match_topics",
    "new_secret",
    "new_signing_key",
    "newest_statement",
    "open_any",
    "open_completion",
    "open_deletion",
    "open_deletion_line",
    "open_keys",
    "open_receipt",
    "open_release",
    "open_sealed",
    "open_statement",
    "open_subject_receipt",
    "pack",
    "pack_envelope",
    "plain_request_digest",
    "receipt_id",
    "release_digest",
    "request_digest",
    "runs",
    "salt_bytes",
    "seal",
    "seal_completion",
    "seal_deletion",
    "seal_keys",
    "seal_receipt",
    "seal_release",
    "seal_statement",
    "seal_subject_receipt",
    "service_document_salt",
    "service_salt",
    "signature_of",
    "signed_by",
    "statement_digest",
    "statement_message",
    "subject_receipt_id",
    "to_message",
    "to_messages",
    "tombstones",
    "unpack",
    "unpack_envelope",
    "unseal",
    "version_of",
]
