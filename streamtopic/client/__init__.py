"""What other services import: no numba, no Redis, no part of the service.

DocumentProducer   add and delete documents
ModelSubscriber    published versions, verified and in order
Release            one of them
Receipts           what happened to a deletion
"""

from streamtopic.client.producer import DocumentProducer
from streamtopic.client.receipts import Receipts
from streamtopic.client.subscriber import ModelSubscriber
from streamtopic.release import Release

__all__ = ["DocumentProducer", "ModelSubscriber", "Receipts", "Release"]
