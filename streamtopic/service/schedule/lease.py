"""Leadership of the scheduler: a lease, renewed in the background while a model is learned."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streamtopic.errors import StreamtopicError
from streamtopic.state import Lease, ModelState

__all__ = ["LeaseKeeper"]


class LeaseKeeper:
    """Takes the lease of a model and keeps it. Only its holder can stage a version.

    state: over a connection of its own, since renewals go on beside all other calls.
    holder: the name of this process.
    ttl_ms: milliseconds without a renewal after which another scheduler may take over.
    """

    def __init__(self, state: ModelState, holder: str, ttl_ms: int) -> None:
        self._state = state
        self._holder = holder
        self._ttl_ms = ttl_ms

    def acquire(self) -> Lease | None:
        """Become or stay leader; return None while another scheduler leads."""
        return self._state.acquire(self._holder, self._ttl_ms)

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[None]:
        """Renew the lease as long as the block runs."""
        done = threading.Event()

        def renew() -> None:
            # Three renewals in a lease's time: one that is lost or late costs no leadership.
            while not done.wait(self._ttl_ms / 3000):
                try:
                    now = self._state.acquire(self._holder, self._ttl_ms)
                except StreamtopicError:
                    continue  # staging checks the lease again, and reports the error
                # Another scheduler led meanwhile, so the token is void, and renewing it would only keep others out.
                if now is None or now.token != lease.token:
                    return

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Give leadership up, so that another scheduler need not wait until the lease ends."""
        self._state.release(Lease(self._holder, 0))
