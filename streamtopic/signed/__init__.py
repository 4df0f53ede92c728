"""Bytes that prove where they come from: keys, the ledger, and releases that are in it.

Keys
SigningKey         signs (Ed25519), in the form of signed notes; PublicKey verifies
load_secret        a secret in a file (new_secret)
sign_note          a text with signatures below it (open_note; cosigned: by a witness, whose key is of kind COSIGNATURE)
KeyList            a ledger's keys over time, signed by its root key (seal_keys, open_keys; Revoked: one entry)
KeyRing            the keys that a reader trusts, which change as lists arrive
check_origin       whether a key is of the ledger of a model

The ledger: an append-only tree of entries
Ledger             every rule of trust, pure (Draft: entries that wait for their checkpoint; page_record)
LedgerReader       follows its topic, page by page (Page)
IndexedLedger      finds and proves its entries, with a LedgerIndex (names_of: by which names)
Entry              one of Envelope (a version; Kind), Receipt, RequestReceipt, Erased, Alive, Keys, End
line_of            the line of an entry (parse_line: back)
Runs               a set of versions, such as the withdrawn ones
Logged             an entry in its place
Checkpoint         the signed tree; LedgerProof: an entry, and the path from it to a checkpoint, in one file
Frontier           the tree of RFC 6962, as far as appending needs it (leaf_hash)
receipt_id         names a receipt (request_receipt_id: that of a request)
request_digest     how a receipt names a request, under a Salt (document_digest: a document; salt_bytes)
link_digest        how the service finds a receipt (service_salt, service_document_salt: its own salts)

Releases: one published version of a model
Payload            words, A, R, shares, top words, quality, heads: what the guarantee covers (Head; pack_payload)
Release            a verified version, as readers use it (open_release; Topic: a part of it)
to_messages        records of a release in its topic (proof_message; tombstones: records that erase it)
version_of         the version to which a record belongs, by its key
RELEASE_BYTES      the longest release
ReleaseReader      follows the releases topic (Refused)
sent_releases      which versions its topic holds (SentRelease)
"""

from streamtopic.signed.canonical import Runs
from streamtopic.signed.checkpoints import Checkpoint, Frontier, LedgerProof, Logged, leaf_hash
from streamtopic.signed.entries import (
    Alive,
    End,
    Entry,
    Envelope,
    Erased,
    Keys,
    Kind,
    Receipt,
    RequestReceipt,
    Salt,
    document_digest,
    line_of,
    link_digest,
    names_of,
    parse_line,
    receipt_id,
    request_digest,
    request_receipt_id,
    salt_bytes,
    service_document_salt,
    service_salt,
)
from streamtopic.signed.ledger import Draft, Ledger, page_record
from streamtopic.signed.ledger_reader import IndexedLedger, LedgerIndex, LedgerReader, Page
from streamtopic.signed.release import (
    Head,
    Payload,
    Release,
    Topic,
    open_release,
    pack_payload,
)
from streamtopic.signed.releases_topic import (
    RELEASE_BYTES,
    Refused,
    ReleaseReader,
    SentRelease,
    proof_message,
    sent_releases,
    to_messages,
    tombstones,
    version_of,
)
from streamtopic.signed.signing_keys import (
    COSIGNATURE,
    KeyList,
    KeyRing,
    PublicKey,
    Revoked,
    SigningKey,
    check_origin,
    cosigned,
    load_secret,
    new_secret,
    open_keys,
    open_note,
    seal_keys,
    sign_note,
)

__all__ = [
    "COSIGNATURE",
    "RELEASE_BYTES",
    "Alive",
    "Checkpoint",
    "Draft",
    "End",
    "Entry",
    "Envelope",
    "Erased",
    "Frontier",
    "Head",
    "IndexedLedger",
    "KeyList",
    "KeyRing",
    "Keys",
    "Kind",
    "Ledger",
    "LedgerIndex",
    "LedgerProof",
    "LedgerReader",
    "Logged",
    "Page",
    "Payload",
    "PublicKey",
    "Receipt",
    "Refused",
    "Release",
    "ReleaseReader",
    "RequestReceipt",
    "Revoked",
    "Runs",
    "Salt",
    "SentRelease",
    "SigningKey",
    "Topic",
    "check_origin",
    "cosigned",
    "document_digest",
    "leaf_hash",
    "line_of",
    "link_digest",
    "load_secret",
    "names_of",
    "new_secret",
    "open_keys",
    "open_note",
    "open_release",
    "pack_payload",
    "page_record",
    "parse_line",
    "proof_message",
    "receipt_id",
    "request_digest",
    "request_receipt_id",
    "salt_bytes",
    "seal_keys",
    "sent_releases",
    "service_document_salt",
    "service_salt",
    "sign_note",
    "to_messages",
    "tombstones",
    "version_of",
]
