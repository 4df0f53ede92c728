"""Producer, subscriber and receipts for other services. They load no compiler, no Redis and no part of the service.

DocumentProducer   add and delete documents
Deletion           the result of a delete: its request id, with the salt of its receipt
ModelSubscriber    published versions, verified and in order
Release            a published version
TopicBook          numbers and names of topics that stay from version to version (NamedTopic)
Receipts           the receipts of deletions (verify_receipt: one in a file, without a log)
"""

from streamtopic.client.producer import Deletion, DocumentProducer
from streamtopic.client.receipt_reader import Receipts, verify_receipt
from streamtopic.client.subscriber import ModelSubscriber
from streamtopic.client.topic_book import NamedTopic, TopicBook
from streamtopic.signed import Release

__all__ = [
    "Deletion",
    "DocumentProducer",
    "ModelSubscriber",
    "NamedTopic",
    "Receipts",
    "Release",
    "TopicBook",
    "verify_receipt",
]
