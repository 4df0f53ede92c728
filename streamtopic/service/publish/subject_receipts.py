"""Publish the covering receipt of each request to forget a subject, once all its documents have theirs.

It is made of the receipts in the topic alone. So it can be repeated after any error; readers pass over a second one of
the same request.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from streamtopic.signed import (
    Receipt,
    SubjectReceipt,
    covered_digest,
    digest_of,
    request_digest,
    runs,
    seal_subject_receipt,
    service_salt,
    subject_receipt_id,
    to_message,
)
from streamtopic.state.deletions import month_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.signed import ReceiptReader, SigningKey
    from streamtopic.state import Forgets, SubjectRequest, SubjectRequests
    from streamtopic.state.deletions import LinkKeys
    from streamtopic.streams import EventLog

__all__ = ["SubjectReceipts"]

# Clocks of two brokers may be so far apart: receipts that look older than their request by less are looked at.
_CLOCKS_MS = 60_000
# A record of the receipts topic has at most 1 MiB. Each number takes 9 bytes at most.
_MOST_RUNS = 80_000
# A request that some partition never got is done nowhere else: its producer was killed, and has to ask again.
_ABANDONED_MS = 7 * 86_400_000
# Each receipt is compared with each request.
_AT_ONCE = 100

logger = logging.getLogger("streamtopic.service")


@dataclass(slots=True)
class _Covered:
    """The receipts of one request.

    digests: number in the chain to the digest of the sealed bytes.
    version: the first version without any of their documents.
    """

    digests: dict[int, str] = field(default_factory=dict)
    version: int = 0


class SubjectReceipts:
    """Makes covering receipts.

    model: name of the model.
    requests: the requests in Redis; one leaves once its receipt is in the log.
    log, topic: where receipts are.
    dated: a topic that gets records all the time. Their times, by the log's clock, say how old a request is.
    key: signs them.
    links: keys of the months, which tie receipts to request ids for the service.
    """

    def __init__(
        self,
        model: str,
        requests: SubjectRequests,
        log: EventLog,
        topic: str,
        dated: str,
        *,
        key: SigningKey,
        links: LinkKeys,
    ) -> None:
        self._model = model
        self._requests = requests
        self._log = log
        self._topic = topic
        self._dated = dated
        self._key = key
        self._links = links

    def publish(self, forgets: Mapping[int, Forgets], issued: ReceiptReader) -> int:
        """Publish the receipts that can be made now; return their number.

        forgets: partition to its stream of deletions, of all partitions.
        issued: the receipts topic, which is read on.

        Raises ComponentUnreachable, StateCorrupt.
        """
        requests = self._requests.read()
        if not any(requests.values()):
            return 0
        self._drop_left(requests, issued)
        finished = _ready(requests, forgets)
        ready = dict(islice(finished.items(), _AT_ONCE))
        if not ready:
            return 0
        for partition, stream in forgets.items():
            stream.require(partition)
        # Every deletion of these has left its stream, so its receipt was read back from the topic.
        covered = self._covered(ready, issued)
        made = 0
        for name, same in ready.items():
            first = min(same.values(), key=lambda request: request.received_ms)
            if first.request and len(runs(sorted(covered[name].digests))) <= _MOST_RUNS:
                receipt = self._receipt(first, covered[name])
                data = seal_subject_receipt(receipt, self._key)
                message = to_message(receipt, data)
                self._log.append_many(self._topic, [message])
                made += 1
            # Only now: a request that went first would never get its receipt.
            for partition, request in same.items():
                self._requests.drop(partition, [request])
        extra = {"event": "subjects_covered", "requests": len(ready), "receipts": made}
        logger.info("requests to forget a subject with a receipt: %d of %d", made, len(ready), extra=extra)
        return made

    def _drop_left(self, requests: Mapping[int, Mapping[bytes, SubjectRequest]], issued: ReceiptReader) -> None:
        """Remove requests that are done where they are, and that will never be in every partition.

        Some partition never got it, or it has its receipt: then a publisher was killed while it removed the request, or
        a part of Redis was set back and has counted it again. Until it is removed, versions wait for the other
        partitions.
        """
        everywhere = set.intersection(*map(set, requests.values()))
        left = {}
        for partition, of_partition in requests.items():
            done = (one for one in of_partition.values() if one.done)
            left[partition] = [one for one in done if one.name not in everywhere]
        if not any(left.values()):
            return
        # Requests have the times of the log. A clock of this machine that is wrong would drop requests that run.
        last = self._log.end(self._dated, 0) - 1
        newest = self._log.appended_ms(self._dated, 0, last) or 0
        old = newest - _ABANDONED_MS
        issued.catch_up()
        for partition, some in left.items():
            gone = [one for one in some if one.received_ms < old or self._has_receipt(one, issued)]
            self._requests.drop(partition, gone)

    def _has_receipt(self, request: SubjectRequest, issued: ReceiptReader) -> bool:
        """Return whether the covering receipt of a request was published after the request came, as far as was read."""
        name = subject_receipt_id(self._model, request.name)
        covered_ms = issued.covered_ms(name)
        # The same request may have been sent again since. It is a new one, and goes through all partitions.
        return covered_ms is not None and covered_ms >= request.received_ms

    def _covered(
        self, ready: Mapping[bytes, Mapping[int, SubjectRequest]], issued: ReceiptReader
    ) -> dict[bytes, _Covered]:
        """Return the receipts of each request."""
        received = [request.received_ms for same in ready.values() for request in same.values()]
        oldest = min(received) - _CLOCKS_MS
        start = self._log.offset_at(self._topic, 0, oldest)
        issued.catch_up()
        found = {name: _Covered() for name in ready}
        keys = self._links.all()
        for link, record in issued.records(start=start):
            if not isinstance(link, Receipt):
                continue
            for name, same in ready.items():
                request = same.get(link.partition)
                if request is not None and _is_covered(link, request, keys):
                    covered = found[name]
                    covered.digests[link.sequence] = digest_of(record.value or b"")
                    covered.version = max(covered.version, link.version)
        return found

    def _receipt(self, request: SubjectRequest, covered: _Covered) -> SubjectReceipt:
        """Return the receipt of a request."""
        name = subject_receipt_id(self._model, request.name)
        month = month_of(request.received_ms / 1000)
        own = service_salt(self._links.of(month), name)
        asked = request_digest(request.request, request.salt or own)
        link = request_digest(request.request, own)
        numbers = sorted(covered.digests)
        digests = (covered.digests[number] for number in numbers)
        return SubjectReceipt(
            id=name,
            model=self._model,
            request=asked,
            link=link,
            month=month,
            received=request.received_ms,
            documents=len(numbers),
            version=covered.version,
            receipts=runs(numbers),
            digest=covered_digest(digests),
        )


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


def _is_covered(receipt: Receipt, request: SubjectRequest, keys: Mapping[str, bytes]) -> bool:
    """Return whether a receipt is of a document that a request deleted in the receipt's partition."""
    # A tombstone that was written twice has a receipt that found nothing, and is no document.
    if not receipt.found or not request.offset < receipt.offset <= request.closed:
        return False
    if request.salt:
        return receipt.is_of(request.request, request.salt)
    return receipt.is_linked(request.request, keys)
