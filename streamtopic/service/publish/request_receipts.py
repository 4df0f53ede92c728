"""The receipt of each request, once all its deletions have theirs. It is made of the receipts in the ledger alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from streamtopic.signed import Receipt, RequestReceipt, link_digest, request_receipt_id
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import month_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.state import Forgets, Reader
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.deletions import LinkKeys

__all__ = ["RequestReceipts"]

# Each of them looks its receipts up.
_AT_ONCE = 100


class RequestReceipts:
    """Makes the receipts of requests.

    reader: tells how far partitions are counted.
    model: name of the model.
    writer: of the ledger.
    links: keys of the months, which tie receipts to request ids for the service.
    """

    def __init__(self, reader: Reader, model: str, writer: LedgerWriter, links: LinkKeys) -> None:
        self._model = model
        self._reader = reader
        self._requests = DeletionRequests(reader.connection, model)
        self._writer = writer
        self._links = links

    def due(self, forgets: Mapping[int, Forgets]) -> list[RequestReceipt]:
        """Return the receipts that can be made now and are not in the ledger yet.

        forgets: partition to its stream of deletions, of all partitions.

        Raises ComponentUnreachable, StateCorrupt.
        """
        counted = [one for one in self._requests.open() if one.state is RequestState.COUNTED]
        if not counted:
            return []
        # First: what is counted by now waits in the streams that are read afterwards.
        positions = self._reader.positions()
        done = {}
        for partition, stream in forgets.items():
            # Deletions that are lost have no receipt, and are not seen to wait for one.
            stream.require(partition)
            done[partition] = min(_first_waiting(stream), positions[partition].next_offset)
        # A version of all that is done would part none of these.
        ready = [one for one in counted if not one.parted_by(done)]
        names = {request_receipt_id(self._model, one.digest): one for one in ready}
        there = self._writer.find(list(names))
        new = [(name, request) for name, request in names.items() if name not in there]
        return [self._receipt(name, request) for name, request in new[:_AT_ONCE]]

    def _receipt(self, name: str, request: DeletionRequest) -> RequestReceipt:
        month = month_of(request.received_ms / 1000)
        found = self._writer.find([request.digest]).get(request.digest, [])
        # A tombstone that was written twice has a receipt that found nothing, and is no document.
        own = [one.entry for one in found if isinstance(one.entry, Receipt) and one.entry.found]
        return RequestReceipt(
            id=name,
            model=self._model,
            request=request.digest,
            link=link_digest(self._links.of(month), request.id),
            month=month,
            received=request.received_ms,
            documents=len(own),
            version=max((receipt.version for receipt in own), default=0),
        )


def _first_waiting(stream: Forgets) -> float:
    """Return the offset of the oldest deletion that waits for its receipt, infinity for none."""
    # While a rebuild counts again, the entries that it put aside wait as well.
    if stream.incomplete:
        return -1
    waiting = stream.oldest()
    return waiting.offset if waiting else math.inf
