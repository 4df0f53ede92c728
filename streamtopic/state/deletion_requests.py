"""Requests for deletions, from their record in the requests topic until their receipt is in the ledger.

RequestState      the state of a request
DeletionRequest   one request: a value, with a method for each move that a person may make
DeletionRequests  all requests of a model in Redis

    waiting ──► sending ──► sent ──► counted ──► completed
       │  ▲ approved
       ▼  │
     paused            waiting and paused requests may be cancelled

A move is a compare-and-set: of two processes that move a request at once, one is Stale. `sending` is written before the
first tombstone, so that nobody cancels a request whose tombstones are on their way. A process that is killed while it
sends leaves the state `sending`, and the next leader sends what is missing.

Redis does not hold whom a request names: that is in its record alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from streamtopic.errors import UsageError
from streamtopic.state.connection import Check, Codec, Command, Connection, ModelKeys, Outcome
from streamtopic.state.model_state import Lease

__all__ = [
    "MOST_OPEN",
    "MOST_OPEN_DOCUMENTS",
    "WAVE_MS",
    "DeletionRequest",
    "DeletionRequests",
    "RequestState",
    "received_near",
]

MOST_OPEN = 10_000
"""Requests that are open at the same time. Further ones wait in the requests topic."""
MOST_OPEN_DOCUMENTS = 1_000_000
"""Documents of all open requests: their ids are in the memory of the leader, which counts them."""
MOST_ENDED = 10_000
"""Ended requests that are kept, without the ids of their documents."""

WAVE_MS = 3_600_000
"""Milliseconds within which the brake sums requests: a program that deletes in error shows within an hour."""
_MINUTE_MS = 60_000


class RequestState(StrEnum):
    """The state of a request."""

    WAITING = "waiting"
    PAUSED = "paused"
    SENDING = "sending"
    SENT = "sent"
    COUNTED = "counted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to the request."""
        return self in {RequestState.COMPLETED, RequestState.CANCELLED}


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """One request, without what it names. Times are milliseconds since 1970; 0 is not yet.

    id: its request id, under which its receipts are found.
    digest: of its id under the requester's salt, as its receipts have it.
    state: how far it is.
    documents: number of documents that it names.
    received_ms: when it was taken in.
    due_ms: when its hold ends.
    changed_ms: when it came to its present state.
    sent_ms: when its tombstones had been written.
    approved: whether somebody let it through the brake.
    subjects: number of subjects that it names, in the place of documents.
    found: documents that it was for when the brake looked at it, those of subjects as far as they were live.
    ends: partition to the end of its log after the last tombstone was written.
    rounds: how often tombstones were written: documents of a subject may come meanwhile.
    misplaced: whether it is of deletions in wrong partitions, which have their own receipts: the request has none.
    """

    id: str
    digest: str
    state: RequestState
    documents: int
    received_ms: int
    due_ms: int
    changed_ms: int
    sent_ms: int = 0
    approved: bool = False
    subjects: int = 0
    found: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    rounds: int = 0
    misplaced: bool = False

    @property
    def known(self) -> int:
        """Number of documents that it is about, as far as is known: at least one for each subject."""
        return self.documents or max(self.found, self.subjects)

    @property
    def recallable(self) -> bool:
        """Whether a person may still approve or cancel it: no tombstone was written."""
        return self.state in {RequestState.WAITING, RequestState.PAUSED}

    @property
    def is_under_way(self) -> bool:
        """Whether some of its tombstones may be counted, and others are still to come."""
        return self.state in {RequestState.SENDING, RequestState.SENT}

    def parted_by(self, cut: Mapping[int, float]) -> bool:
        """Return whether a version may reflect a part of its deletions.

        cut: partition to the first offset that the version does not reflect.
        """
        # If Redis was set back, nobody knows where the first of its tombstones is.
        return self.is_under_way or any(end > cut.get(partition, 0) for partition, end in self.ends.items())

    @property
    def minute(self) -> int:
        """The minute in which it was taken in, since 1970."""
        return _minute(self.received_ms)

    def moved(self, state: RequestState, now_ms: int) -> "DeletionRequest":
        """Return the request in another state."""
        return replace(self, state=state, changed_ms=now_ms)

    def approve(self, now_ms: int) -> "DeletionRequest":
        """Return the request as the brake lets it through. Raises UsageError if it is on its way already."""
        self._must_be_recallable("approved")
        return replace(self.moved(RequestState.WAITING, now_ms), approved=True)

    def cancel(self, now_ms: int) -> "DeletionRequest":
        """Return the request as cancelled. Raises UsageError if its deletes may be in the log already."""
        self._must_be_recallable("cancelled")
        return self.moved(RequestState.CANCELLED, now_ms)

    def _must_be_recallable(self, act: str) -> None:
        if not self.recallable:
            raise UsageError(
                f"request {self.id} is {self.state.value} and cannot be {act}: only requests that are waiting or "
                "paused can"
            )


_REQUESTS = Codec(DeletionRequest, "a request for deletions cannot be read: send it again under another id")


class DeletionRequests:
    """The requests of a model in Redis. All keys lie in one slot, and each is bounded.

    connection: to Redis.
    model: name of the model.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._keys = ModelKeys(model)
        self._open, self._ended = (self._keys.named(f"deletions:{name}") for name in ("open", "ended"))

    def receive(self, request: DeletionRequest) -> Outcome:
        """Take a request in, once. Stale if one with its id has ended."""
        steps: list[Command] = [("HSET", self._open, request.id, _REQUESTS.pack(request))]
        ended: Check = (("HGET", self._ended, request.id), "", "ended")
        return self._connection.change(steps, guards=[ended], done=(("HEXISTS", self._open, request.id), "1"))

    def get(self, name: str) -> DeletionRequest | None:
        """Return a request by its id, None without one. Raises StateCorrupt."""
        # Open ones last: a request that ends between the two reads is found in one of them.
        for key in (self._open, self._ended):
            if (data := self._connection.call("HGET", key, name)) is not None:
                return _REQUESTS.unpack(data)
        return None

    def open(self) -> list[DeletionRequest]:
        """Return the requests that have not ended, oldest first. Raises StateCorrupt."""
        return self._all(self._open)

    def ended(self) -> list[DeletionRequest]:
        """Return the requests that have ended, oldest first. Raises StateCorrupt."""
        return self._all(self._ended)

    def move(self, before: DeletionRequest, after: DeletionRequest, lease: Lease | None = None) -> Outcome:
        """Move a request, all or nothing.

        before: the request as the caller has seen it.
        after: the request in its next state.
        lease: of the scheduler that moves it; None for a person's move.

        Stale if the request has moved on, or another scheduler leads.
        """
        name, packed = before.id, _REQUESTS.pack(after)
        steps: list[Command] = [("HSET", self._open, name, packed)]
        if after.state.ended:
            steps = [
                ("HDEL", self._open, name),
                ("HSET", self._ended, name, packed),
            ]
        seen: Check = (("HGET", self._open, name), _REQUESTS.pack(before), "the request has moved on")
        # Not for a person's move: who moves requests need not have a right to the lease.
        guards = [seen, *(lease.guards(self._keys) if lease is not None else ())]
        done = ("HGET", self._ended if after.state.ended else self._open, name), packed
        return self._connection.change(steps, guards=guards, done=done)

    def is_led(self, lease: Lease) -> bool:
        """Return whether the scheduler with this lease leads still."""
        keys = [self._keys.named("fence"), self._keys.named("lease")]
        fence, holder = self._connection.batch([("GET", key) for key in keys])
        return (fence, holder) == (b"%d" % lease.token, lease.holder.encode())

    def unseen(self) -> list[DeletionRequest]:
        """Return the requests that no person has approved or cancelled, ended ones too. Raises StateCorrupt."""
        cancelled = RequestState.CANCELLED
        return [one for one in (*self.ended(), *self.open()) if not one.approved and one.state is not cancelled]

    def trim(self, now_ms: int) -> None:
        """Forget the oldest of many ended requests, but for those that the brake still counts. May be repeated."""
        if int(self._connection.call("HLEN", self._ended)) <= MOST_ENDED:
            return
        many = sorted(self.ended(), key=lambda request: request.changed_ms)
        old = [request.id for request in many[:-MOST_ENDED] if request.received_ms < now_ms - 2 * WAVE_MS]
        for start in range(0, len(old), 1000):
            self._connection.call("HDEL", self._ended, *old[start : start + 1000])

    def _all(self, key: str) -> list[DeletionRequest]:
        stored = self._connection.call("HGETALL", key)
        found = [_REQUESTS.unpack(data) for data in stored.values()]
        return sorted(found, key=lambda request: (request.received_ms, request.id))


def received_near(request: DeletionRequest, tally: Mapping[int, int]) -> int:
    """Return the number of documents of requests that came within WAVE_MS of this one, before or after it.

    tally: number of documents that were asked for in each minute.
    """
    first, last = _minute(request.received_ms - WAVE_MS), _minute(request.received_ms + WAVE_MS)
    return sum(documents for minute, documents in tally.items() if first <= minute <= last)


def _minute(time_ms: int) -> int:
    return time_ms // _MINUTE_MS
