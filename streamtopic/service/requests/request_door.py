"""Takes in requests for deletions, and lets people approve or cancel them.

`hold_seconds` and `brake_share` act on requests. A record of the documents topic always applies: a producer that
deletes a document must not be kept from it by a setting that it does not know.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.documents.events import encode_delete, encode_delete_subject
from streamtopic.documents.suppression import is_suppression_key
from streamtopic.errors import InvalidEvent, UsageError
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests, RequestState, Wanted
from streamtopic.state.scripts import Stale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.settings import Settings
    from streamtopic.state import Connection

__all__ = ["Received", "RequestDoor", "guarded_by"]

_ENOUGH = 20
_SHARE = 0.99
_ATTEMPTS = 10
_LOOK_SECONDS = 10.0


def guarded_by(settings: Settings) -> bool:
    """Return whether `streamtopic delete` asks first: a hold or a brake is set."""
    return settings.hold_seconds > 0 or settings.brake_share > 0


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was taken in. salt: the requester's, to check the receipts with; nobody is told it again."""

    request: DeletionRequest
    salt: str


class RequestDoor:
    """Takes requests in, and lets people approve or cancel them.

    settings: hold and brake, the longest wait of a deletion, and the name of the model.
    connection: to Redis.
    clock: seconds since 1970.
    """

    def __init__(self, settings: Settings, connection: Connection, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._usual: tuple[float, int] | None = None
        self.requests = DeletionRequests(connection, settings.model)

    def receive(
        self,
        documents: Sequence[str],
        *,
        subjects: Sequence[str] = (),
        name: str | None = None,
    ) -> Received:
        """Take a request in. The same request under the same name again changes nothing, and is answered as before.

        documents: ids, 1 to 10,000; an id that is named twice counts once.
        subjects: in the place of documents, 1 to 100 of them: all their documents go.
        name: request id; by default one is drawn.

        Raises InvalidEvent for an id or a subject that no document can have, and as DeletionRequests.receive.
        """
        ids = tuple(dict.fromkeys(documents))
        name = name or secrets.token_hex(12)
        salt = secrets.token_hex(16)
        for document in ids:
            # Refused now: the log would refuse it when nobody is there to be told.
            record = encode_delete(document, name, salt.encode())
            # The door does not know whether the model has suppressions. Where it has, nothing would answer the delete.
            if is_suppression_key(record.key):
                raise InvalidEvent("key-reserved", "ids that begin with st:suppress: are reserved: delete it directly")
        people = tuple(dict.fromkeys(subjects))
        for subject in people:
            encode_delete_subject(subject, name, salt.encode(), 1)
        now_ms = self._now_ms()
        due_ms = now_ms + int(self._settings.hold_seconds * 1000)
        request = DeletionRequest(
            id=name,
            state=RequestState.WAITING,
            documents=len(ids),
            subjects=len(people),
            received_ms=now_ms,
            due_ms=due_ms,
            changed_ms=now_ms,
            expected_ms=due_ms + self.usual_ms(),
        )
        stored = self.requests.receive(request, Wanted(ids, salt, people))
        # Where the request was known already, the salt that counts is that of the first time.
        wanted = self.requests.wanted(name)
        return Received(stored, salt if wanted is None else wanted.salt)

    def approve(self, name: str) -> DeletionRequest:
        """Let a request through the brake. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.approve(self._now_ms()))

    def cancel(self, name: str) -> DeletionRequest:
        """Cancel a request. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.cancel(self._now_ms()))

    def paused(self) -> list[DeletionRequest]:
        """Return the requests that the brake has paused, oldest first."""
        return [request for request in self.requests.open() if request.state is RequestState.PAUSED]

    def usual_ms(self) -> int:
        """Return the time within which 99 of 100 requests got their receipts, milliseconds.

        It is `max_forget_lag` until 20 requests are completed.
        """
        now = self._clock()
        # All ended requests are read for it, and requests may come by the thousand.
        if self._usual is None or abs(now - self._usual[0]) >= _LOOK_SECONDS:
            self._usual = now, self._measured_ms()
        return self._usual[1]

    def _measured_ms(self) -> int:
        completed = [request for request in self.requests.ended() if request.state is RequestState.COMPLETED]
        if len(completed) < _ENOUGH:
            return int(self._settings.max_forget_lag * 1000)
        took = sorted(max(request.changed_ms - request.sent_ms, 0) for request in completed)
        return took[min(int(_SHARE * len(took)), len(took) - 1)]

    def _change(self, name: str, change: Callable[[DeletionRequest], DeletionRequest]) -> DeletionRequest:
        """Move a request as a person asks, again where it has moved meanwhile."""
        for _ in range(_ATTEMPTS):
            before = self.requests.get(name)
            if before is None:
                raise UsageError(f"there is no request {name[:100]}: `streamtopic deletions list` shows all")
            after = change(before)
            if not isinstance(self.requests.move(before, after), Stale):
                return after
        raise UsageError(f"request {name} is being moved by others all the time: try again")

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
