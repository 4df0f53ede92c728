"""Carry out requests to forget a subject: a tombstone for every document of the subject in one partition.

1. A record under a reserved key asks. The commit that counts it keeps the request, with a digest of the subject.
2. Tombstones are appended for the subject's documents, some at a time, until the index of subjects has none. They are
   deletes like any other, so recounts, receipts and traces know nothing of subjects.
3. A tombstone is appended for the record that asked, so that the log forgets the subject as well.
4. Once that tombstone is counted, all that was added before it is counted, too. The request is done when no document
   of those is left; until then step 2 is repeated. What was added behind the tombstone stays.

A process may be killed between any two of these, since each step begins with what Redis and the log hold. Records that
are not counted yet are read first. A document that one of them names is left for later: that record may be the
tombstone itself, or an add that came after all the partition has counted.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from streamtopic.documents.events import encode_subject_forgotten
from streamtopic.errors import TakenOver
from streamtopic.service.ingest.resolve import receipt_headers
from streamtopic.streams import Message, pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.state import PartitionWriter, SubjectRequest
    from streamtopic.streams import EventLog

__all__ = ["SubjectForgetter"]

# Tombstones and requests of one step: counting goes on between two steps.
_AT_ONCE = 1_000
_REQUESTS = 100
_ALL = 1 << 40
# Uncounted records that a step reads first. A partition that is further behind counts before it deletes.
_MOST_BEHIND = 3_000

logger = logging.getLogger(__name__)


class SubjectForgetter:
    """Carries out the requests to forget a subject in one partition.

    state: the writer of the partition.
    topic: the documents topic.
    """

    def __init__(self, state: PartitionWriter, log: EventLog, topic: str) -> None:
        self._state = state
        self._log = log
        self._topic = topic
        self._known: dict[bytes, SubjectRequest] | None = None

    @property
    def waiting(self) -> int:
        """Number of requests that are not done."""
        return sum(not request.done for request in self._requests().values())

    def read_again(self) -> None:
        """Read the requests from Redis before they are used next."""
        self._known = None

    def resumed(self, asked: Sequence[SubjectRequest]) -> list[SubjectRequest]:
        """Return requests that came, where one that is known came again as it began first.

        asked: requests of records that are about to be counted.

        A client sends its request again where the first time was not confirmed. What was deleted by then belongs to it
        as well, so that its receipt covers all. Its time is the last one: a partition of which Redis was set back may
        still know it from before its receipt, and the others would wait for a request that this one takes for old.
        """
        known = self._requests()
        return [replace(one, offset=min(one.offset, known.get(one.name, one).offset)) for one in asked]

    def closing(self, closed: Mapping[bytes, int]) -> list[SubjectRequest]:
        """Return the requests whose own record went, as they are afterwards.

        closed: key of the record to the offset of its tombstone. A key that names no request is left out.
        """
        known = self._requests().values()
        return [replace(request, closed=closed[request.key]) for request in known if request.key in closed]

    def step(self) -> int:
        """Append tombstones that are due now; return how many.

        May be repeated after any error. Raises ComponentUnreachable, StateError, and StateCorrupt
        where Redis has lost keys.
        """
        open_requests = [request for request in self._requests().values() if not request.done]
        if not open_requests:
            return 0
        if not self._may_write():
            return 0
        offset = self._state.meta.next_offset
        end = self._log.end(self._topic, self._state.partition)
        if end - offset > _MOST_BEHIND:
            return 0
        uncounted = self._uncounted(offset, end)
        # None until the end: after an error the requests are read from Redis again.
        self._known = None
        written = 0
        for request in open_requests[:_REQUESTS]:
            if written < _AT_ONCE:
                written += self._carry_out(request, uncounted)
        return written

    def _may_write(self) -> bool:
        """Return whether this process owns the partition and knows its state, which may be read again."""
        # A process that lost the partition without noticing must not write to it.
        if self._state.is_owner():
            return True
        # Where Redis was set back, whoever steps the partition goes back first, and says so.
        if self._state.is_set_back():
            return False
        try:
            # A scheduler has begun an epoch. Without new records, nothing else would have the state read again.
            self._state.reload()
        except TakenOver:
            return False
        return True

    def _requests(self) -> dict[bytes, SubjectRequest]:
        """Return the requests of the partition by name, the oldest first."""
        if self._known is None:
            self._known = self._state.subject_requests()
        return self._known

    def _uncounted(self, offset: int, end: int) -> set[bytes]:
        """Return the ids of the records that are in the log and not counted yet. Raises ComponentUnreachable."""
        ids = set[bytes]()
        for page in pages(self._log, self._topic, self._state.partition, offset, end):
            ids.update(record.key for record in page if record.key is not None)
        return ids

    def _carry_out(self, request: SubjectRequest, uncounted: set[bytes]) -> int:
        """Do the next step of one request; return how many tombstones were appended."""
        # As many more as may be left for later: others must not have to wait for these.
        most = _AT_ONCE + len(uncounted) if request.closed < 0 else _ALL
        documents = self._state.subject_documents(request.digest, most)
        if request.closed >= 0:
            documents = self._of_before(documents, request.closed)
        if documents:
            due = [document for document in documents if document not in uncounted][:_AT_ONCE]
            self._append(
                [
                    Message(
                        document,
                        None,
                        receipt_headers(request.request, request.salt, request.trace),
                        self._state.partition,
                    )
                    for document in due
                ]
            )
            # A document of two people who are forgotten at once needs one tombstone.
            uncounted.update(due)
            return len(due)
        if request.closed < 0 and request.key in uncounted:
            return 0
        # Documents that a lost index no longer names would count as forgotten.
        self._state.require_keys()
        if request.closed >= 0:
            last = self._state.meta.next_offset - 1
            self._state.subject_done(replace(request, closed=last, done=True))
            logger.info(
                "partition %d: no document of a subject is left; its request had offset %d",
                self._state.partition,
                request.offset,
                extra={"event": "subject_forgotten", "partition": self._state.partition, "offset": request.offset},
            )
            return 0
        self._append([encode_subject_forgotten(request.key, self._state.partition)])
        return 1

    def _of_before(self, documents: Sequence[bytes], closed: int) -> list[bytes]:
        """Return the documents that no add behind the end of a request names.

        documents: ids of documents of the subject.
        closed: offset of the tombstone that ended the request.

        What came behind it stays: a recount, or a Redis that was set back, reads the request again when such documents
        are already there. Raises ComponentUnreachable.
        """
        before = self._state.added_before(documents, closed)
        doubtful = set(compress(documents, before))
        if not doubtful:
            return []
        # The same content with other subjects keeps the offset of the add before it, so the offset does not tell.
        partition = self._state.partition
        start = max(closed, self._log.begin(self._topic, partition))
        for page in pages(self._log, self._topic, partition, start, self._state.meta.next_offset):
            doubtful.difference_update(record.key for record in page if record.value is not None)
        return [document for document in documents if document in doubtful]

    def _append(self, tombstones: list[Message]) -> None:
        """Append tombstones to the partition."""
        if tombstones:
            self._log.append_many(self._topic, tombstones)
