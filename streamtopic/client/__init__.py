"""What other services import: no numba, no Redis, no part of the service.

DocumentProducer   add and delete documents
Deletion           what a delete returns: its request id, with the salt of its receipt
ModelSubscriber    published versions, verified and in order (Freshness: how sure it is that it has the newest)
Release            one of them
Receipts           what happened to a deletion
"""

from streamtopic.client.producer import Deletion, DocumentProducer
from streamtopic.client.receipt_lookup import Receipts
from streamtopic.client.subscriber import Freshness, ModelSubscriber
from streamtopic.signed import Release

__all__ = ["Deletion", "DocumentProducer", "Freshness", "ModelSubscriber", "Receipts", "Release"]
