"""Deletion receipts: what was done about each deletion, signed, and chained so that none can be left out unseen.

Receipt        one deletion
seal_receipt   its signed bytes; open_receipt: back, verified
Chain          takes receipts as they come and says which of them are the one chain
ChainHead      the newest receipt of a chain, which the next one names
ReceiptReader  follows the receipts topic
audit          checks receipts in a file, offline; export_line: a line of it
"""

from streamtopic.receipts.chain import Chain, ChainHead, Taken, digest_of
from streamtopic.receipts.exported import Audit, audit, export_line
from streamtopic.receipts.reading import ReceiptReader
from streamtopic.receipts.receipt import (
    Receipt,
    document_digest,
    open_receipt,
    receipt_id,
    request_digest,
    seal_receipt,
    to_message,
)

__all__ = [
    "Audit",
    "Chain",
    "ChainHead",
    "Receipt",
    "ReceiptReader",
    "Taken",
    "audit",
    "digest_of",
    "document_digest",
    "export_line",
    "open_receipt",
    "receipt_id",
    "request_digest",
    "seal_receipt",
    "to_message",
]
