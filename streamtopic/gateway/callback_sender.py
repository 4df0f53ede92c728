"""Sends callbacks from their outbox in Redis: each at least once, in the order of a request's states."""

from __future__ import annotations

import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamtopic.errors import StreamtopicError, UsageError
from streamtopic.gateway.callback_addresses import NO_ANSWER, CallbackAddress, CallbackFailed, post
from streamtopic.gateway.opendsr_messages import callback_body

if TYPE_CHECKING:
    import ssl
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from streamtopic.gateway.response_signing import ResponseSigner
    from streamtopic.state.deletion_requests import Callback, DeletionRequests

__all__ = ["CallbackSender", "SenderOptions"]

logger = logging.getLogger(__name__)

GIVE_UP_MS = 3 * 86_400_000
"""A callback is given up after three days: the requester can still ask for the status."""
_FIRST_MS = 10_000
_LONGEST_MS = 3_600_000
_AT_ONCE = 8
_MOST_DUE = 1_000
# A call of so many seconds holds others up: its server is not asked again in the same step.
_SLOW = 1.0
# Not a failure: the callback is left as it is, for the next step.
_LATER = "later"


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How callbacks are sent.

    controller: `controller_id` in their bodies.
    private: whether private addresses are allowed.
    context: trusts the authorities of requesters.
    """

    controller: str
    private: bool
    context: ssl.SSLContext


class CallbackSender:
    """Sends what waits. Several gateways may do so at once: a callback may then come twice.

    requests: whose outbox it is.
    signer: signs each body.
    clock: seconds since 1970.
    """

    def __init__(
        self, requests: DeletionRequests, signer: ResponseSigner, options: SenderOptions, clock: Callable[[], float]
    ) -> None:
        self._requests = requests
        self._signer = signer
        self._options = options
        self._clock = clock

    def step(self) -> int:
        """Send each callback that is due, once; return how many were taken. Raises StreamtopicError, as Redis does."""
        now_ms = int(self._clock() * 1000)
        due = list(islice(_due(self._waiting(), now_ms), _MOST_DUE))
        # One server that hangs or is slow must not hold the callbacks of all others: the next step asks it again.
        slow = set[str]()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            failures = list(pool.map(lambda callback: self._send(callback, slow), due))
        failed = given_up = taken = 0
        for callback, failure in zip(due, failures, strict=True):
            if failure == _LATER:
                continue
            if failure is None:
                self._requests.drop(callback)
                taken += 1
                continue
            failed += 1
            if now_ms - callback.since_ms > GIVE_UP_MS:
                self._requests.drop(callback)
                given_up += 1
            else:
                self._requests.postpone(callback, now_ms + _pause_ms(callback.attempts))
        _tell(failed, given_up)
        return taken

    def run(self, stop: threading.Event, every: float = 1.0) -> None:
        """Send until `stop` is set. every: seconds between looks at the outbox."""
        said = ""
        while not stop.is_set():
            try:
                self.step()
                said = ""
            except StreamtopicError as error:
                # A server that is away for an hour is told once, not 3,600 times.
                if str(error) != said:
                    extra = {"event": "callbacks_wait"}
                    logger.warning("callbacks wait: %s", error, extra=extra)
                said = str(error)
            stop.wait(every)

    def _waiting(self) -> Iterator[Callback]:
        """Yield all callbacks that wait, oldest first: many that are tried later must not hide those behind them."""
        behind = ""
        while page := self._requests.callbacks(behind=behind):
            yield from page
            behind = page[-1].entry

    def _send(self, callback: Callback, slow: set[str]) -> str | None:
        """Send one callback; return why it was not taken, _LATER where its server has kept another one waiting.

        slow: hosts that did not answer in this step, or took long.
        """
        host = urlsplit(callback.url).netloc
        if host in slow:
            return _LATER
        body = callback_body(callback, self._options.controller)
        private = self._options.private
        begin = time.perf_counter()
        try:
            # Looked at again: the setting may have changed since the request came.
            address = CallbackAddress.parse(callback.url, private=private)
            post(address, body, self._signer.headers(body), private=private, context=self._options.context)
        except UsageError:
            return "address"
        except CallbackFailed as failure:
            if str(failure) == NO_ANSWER:
                slow.add(host)
            return str(failure)
        finally:
            if time.perf_counter() - begin > _SLOW:
                slow.add(host)
        return None


def _due(callbacks: Iterable[Callback], now_ms: int) -> Iterator[Callback]:
    """Yield the callbacks to send now; one waits as long as an earlier one of its request and address does."""
    before = set()
    for callback in callbacks:
        name = callback.request, callback.url
        if name not in before and callback.next_ms <= now_ms:
            yield callback
        before.add(name)


def _pause_ms(attempts: int) -> int:
    """Return the time until the next attempt, milliseconds, drawn so that many do not come back at the same moment."""
    pause = min(_FIRST_MS * 2 ** min(attempts, 20), _LONGEST_MS)
    return int(pause * random.uniform(0.8, 1.2))


def _tell(failed: int, given_up: int) -> None:
    if failed:
        extra = {"event": "callbacks_failed", "callbacks": failed, "given_up": given_up}
        logger.warning("%d callbacks were not taken; %d of them are given up", failed, given_up, extra=extra)
