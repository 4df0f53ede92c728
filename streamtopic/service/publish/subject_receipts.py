"""The receipt of each request to forget a person, once all documents have theirs.

It is made of the receipts in the ledger alone. So it can be decided again after any error.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from streamtopic.signed import Receipt, SubjectReceipt, link_digest, request_digest, subject_receipt_id
from streamtopic.state.deletions import month_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import Entry
    from streamtopic.state import Forgets, SubjectRequest, SubjectRequests
    from streamtopic.state.deletions import LinkKeys
    from streamtopic.streams import EventLog

__all__ = ["SubjectReceipts"]

# A request that some partition never got is done nowhere else: its producer was killed, and has to ask again.
_ABANDONED_MS = 7 * 86_400_000
# Each of them looks its receipts up.
_AT_ONCE = 100


class SubjectReceipts:
    """Makes the receipts of requests.

    model: name of the model.
    requests: the requests in Redis; one leaves once its receipt is in the ledger.
    log, dated: a topic that gets records all the time. Their times, by the log's clock, say how old a request is.
    writer: of the ledger.
    links: keys of the months, which tie receipts to request ids for the service.
    """

    def __init__(
        self,
        model: str,
        requests: SubjectRequests,
        log: EventLog,
        dated: str,
        writer: LedgerWriter,
        links: LinkKeys,
    ) -> None:
        self._model = model
        self._requests = requests
        self._log = log
        self._dated = dated
        self._writer = writer
        self._links = links
        self._made: dict[str, Mapping[int, SubjectRequest]] = {}

    def due(self, forgets: Mapping[int, Forgets]) -> list[SubjectReceipt]:
        """Return the receipts that can be made now and are not in the ledger yet.

        forgets: partition to its stream of deletions, of all partitions.

        Raises ComponentUnreachable, StateCorrupt.
        """
        self._made = {}
        requests = self._requests.read()
        if not any(requests.values()):
            return []
        ready = dict(islice(_ready(requests, forgets).items(), _AT_ONCE))
        for partition, stream in forgets.items() if ready else ():
            stream.require(partition)
        names = {name: subject_receipt_id(self._model, name) for name in self._names_of(requests)}
        there = self._writer.find(list(names.values()))
        self._drop_left(requests, {name for name, named in names.items() if named in there})
        receipts = []
        for name, same in ready.items():
            self._made[names[name]] = same
            first = min(same.values(), key=lambda request: request.received_ms)
            known = [logged.entry for logged in there.get(names[name], ())]
            # The same request may have been sent again since: then it is a new one, with another time.
            if first.request and not any(getattr(entry, "received", 0) >= first.received_ms for entry in known):
                receipts.append(self._receipt(names[name], first, same))
        # Those without a request id, and those that have their receipt, are done now.
        made = {receipt.id for receipt in receipts}
        self._drop({name: same for name, same in self._made.items() if name not in made})
        return receipts

    def settle(self, page: Iterable[Entry]) -> None:
        """Take the requests out of Redis whose receipts are in the ledger now."""
        made = {entry.id for entry in page if isinstance(entry, SubjectReceipt)}
        self._drop({name: same for name, same in self._made.items() if name in made})

    def _drop(self, done: Mapping[str, Mapping[int, SubjectRequest]]) -> None:
        for same in done.values():
            for partition, request in same.items():
                self._requests.drop(partition, [request])

    def _names_of(self, requests: Mapping[int, Mapping[bytes, SubjectRequest]]) -> list[bytes]:
        return list(dict.fromkeys(name for of_partition in requests.values() for name in of_partition))

    def _drop_left(self, requests: Mapping[int, Mapping[bytes, SubjectRequest]], covered: set[bytes]) -> None:
        """Remove requests that are done where they are, and that will never be in every partition.

        Some partition never got it, or it has its receipt: then a publisher was killed while it removed the request, or
        a part of Redis was set back and has counted it again. Until it is removed, versions wait for the other
        partitions.
        """
        everywhere = set.intersection(*map(set, requests.values()))
        left = {}
        for partition, of_partition in requests.items():
            left[partition] = [one for one in of_partition.values() if one.done and one.name not in everywhere]
        if not any(left.values()):
            return
        # Requests have the times of the log. A clock of this machine that is wrong would drop requests that run.
        last = self._log.end(self._dated, 0) - 1
        newest = self._log.appended_ms(self._dated, 0, last) or 0
        for partition, some in left.items():
            gone = [one for one in some if one.name in covered or one.received_ms < newest - _ABANDONED_MS]
            self._requests.drop(partition, gone)

    def _receipt(self, name: str, request: SubjectRequest, same: Mapping[int, SubjectRequest]) -> SubjectReceipt:
        """Return the receipt of a request. same: partition to the request there."""
        month = month_of(request.received_ms / 1000)
        own = self._covered(request, same)
        return SubjectReceipt(
            id=name,
            model=self._model,
            request=request_digest(request.request, request.salt) if request.salt else "",
            link=link_digest(self._links.of(month), request.request),
            month=month,
            received=request.received_ms,
            documents=len(own),
            version=max((receipt.version for receipt in own), default=0),
        )

    def _covered(self, request: SubjectRequest, same: Mapping[int, SubjectRequest]) -> Sequence[Receipt]:
        """Return the receipts of the documents that a request deleted."""
        keys = self._links.all()
        names = [link_digest(key, request.request) for key in keys.values()]
        if request.salt:
            names = [request_digest(request.request, request.salt)]
        found = {}
        for entries in self._writer.find(names).values():
            for logged in entries:
                receipt = logged.entry
                # A tombstone that was written twice has a receipt that found nothing, and is no document.
                if isinstance(receipt, Receipt) and receipt.found and receipt.partition in same:
                    there = same[receipt.partition]
                    if there.offset < receipt.offset <= there.closed:
                        found[logged.index] = receipt
        return list(found.values())


def _ready(
    requests: Mapping[int, Mapping[bytes, SubjectRequest]], forgets: Mapping[int, Forgets]
) -> dict[bytes, dict[int, SubjectRequest]]:
    """Return the requests that are done in every partition, with no deletion that waits for its receipt."""
    waiting = {partition: _first_waiting(stream) for partition, stream in forgets.items()}
    found: dict[bytes, dict[int, SubjectRequest]] = {}
    for partition, of_partition in requests.items():
        for name, request in of_partition.items():
            if request.done and request.closed < waiting[partition]:
                found.setdefault(name, {})[partition] = request
    return {name: same for name, same in found.items() if len(same) == len(requests)}


def _first_waiting(stream: Forgets) -> float:
    """Return the offset of the oldest deletion that waits for its receipt, infinity for none."""
    # While a rebuild counts anew, the entries that it put aside wait as well.
    if stream.incomplete:
        return -1
    return min((forget.offset for forget in stream.read(0, 1)), default=math.inf)
