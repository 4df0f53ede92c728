"""Takes in requests for deletions, and lets people approve or cancel them.

A request is a record of the requests topic; the scheduler that leads carries it out (request_mover.py).

`hold_seconds` and `brake_share` act on requests. A record of the documents topic always applies: a producer that
deletes a document must not be kept from it by a setting that it does not know.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamtopic.documents.deletion_record import Wanted, decode_request, encode_request
from streamtopic.errors import InvalidEvent, UsageError
from streamtopic.monitoring.tracing import producing
from streamtopic.service.requests.request_mover import new_request
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.scripts import Stale
from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.settings import Settings
    from streamtopic.state import Connection
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.streams import EventLog

__all__ = ["Received", "RequestDoor", "guarded_by"]

_ATTEMPTS = 10


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

    settings: hold and brake, and the name of the model.
    connection: to Redis.
    log, topic: where requests are written.
    clock: seconds since 1970.
    """

    def __init__(
        self, settings: Settings, connection: Connection, log: EventLog, topic: str, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._log = log
        self._topic = topic
        self._clock = clock
        self.requests = DeletionRequests(connection, settings.model)

    def receive(self, documents: Sequence[str], *, subjects: Sequence[str] = (), name: str | None = None) -> Received:
        """Take a request in. The same request under the same name again changes nothing, and is answered as before.

        documents: ids, 1 to 1,000; an id that is named twice counts once.
        subjects: in the place of documents, 1 to 100 of them: all their documents go.
        name: request id; by default one is drawn.

        Raises InvalidEvent for an id or a subject that no document can have and for too many of them, UsageError for a
        name that another request has, ComponentUnreachable.
        """
        ids, people = tuple(dict.fromkeys(documents)), tuple(dict.fromkeys(subjects))
        drawn = secrets.token_hex(16)
        if name is None:
            return self._write(Wanted(secrets.token_hex(12), drawn, ids, people))
        wanted = Wanted(name, drawn, ids, people)
        # For its checks: a name that no request can have is not looked for.
        encode_request(wanted)
        before = self.pending(name)
        if before is not None:
            if not wanted.is_same(before):
                raise UsageError(f"request {name} is known with other documents or subjects: send it under another id")
            # The salt that counts is that of the first time.
            return Received(self.requests.get(name) or self._new(before), before.salt)
        if self.requests.get(name) is not None:
            raise UsageError(f"request {name} has ended: ask for its status, or send a new request under another id")
        return self._write(wanted)

    def find(self, name: str) -> DeletionRequest | None:
        """Return a request by its id, None without one. Raises StateCorrupt, ComponentUnreachable."""
        known = self.requests.get(name)
        if known is not None:
            return known
        before = self.pending(name)
        return None if before is None else self._new(before)

    def pending(self, name: str) -> Wanted | None:
        """Return what a request asks for, None if there is none with this id, or it has ended."""
        found: Wanted | None = None
        key = name.encode(errors="replace")
        for page in pages(self._log, self._topic, 0, self._log.begin(self._topic, 0)):
            for record in page:
                if record.key != key:
                    continue
                if record.value is None:
                    found = None
                elif found is None:
                    # The first one counts, and one that is refused is none.
                    with suppress(InvalidEvent):
                        found = decode_request(record)
        return found

    def approve(self, name: str) -> DeletionRequest:
        """Let a request through the brake. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.approve(self._now_ms()))

    def cancel(self, name: str) -> DeletionRequest:
        """Cancel a request. Raises UsageError for one that does not exist or is on its way."""
        return self._change(name, lambda request: request.cancel(self._now_ms()))

    def paused(self) -> list[DeletionRequest]:
        """Return the requests that the brake has paused, oldest first."""
        return [request for request in self.requests.open() if request.state is RequestState.PAUSED]

    def _write(self, wanted: Wanted) -> Received:
        with producing("streamtopic request") as trace:
            self._log.append_many(self._topic, [encode_request(replace(wanted, trace=trace))])
        return Received(self._new(wanted), wanted.salt)

    def _new(self, wanted: Wanted) -> DeletionRequest:
        """Return a request that the scheduler has not taken in yet."""
        now_ms = self._now_ms()
        return new_request(wanted, now_ms, int(self._settings.hold_seconds * 1000))

    def _change(self, name: str, change: Callable[[DeletionRequest], DeletionRequest]) -> DeletionRequest:
        """Move a request as a person asks, again where it has moved meanwhile."""
        for _ in range(_ATTEMPTS):
            before = self.find(name)
            if before is None:
                raise UsageError(f"there is no request {name[:100]}: `streamtopic deletions list` shows all")
            # The scheduler may not have taken it in yet.
            self.requests.receive(before)
            after = change(before)
            if not isinstance(self.requests.move(before, after), Stale):
                return after
        raise UsageError(f"request {name} is being moved by others all the time: try again")

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
