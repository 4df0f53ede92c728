"""A TCP proxy in front of one Redis or several that loses replies and holds commands back.

The command of a lost reply was done, but its sender does not hear of it. A command that is held back arrives late: its
sender may be dead by then, and another may have taken its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field

_BLOCK = 1 << 16
# What a replica sends to its master: no fault for a sender of commands may be spent on it.
_REPLICA = (b"REPLCONF", b"PSYNC")
# A command that is let go gets this long to be answered, before its late arrival counts as over.
_ANSWER_SECONDS = 5.0


@dataclass(slots=True)
class Trap:
    """What happens to the next command with all of some parts.

    parts: bytes by which it is told from others.
    seconds: how long it is held back; None: its reply is lost.
    begun: set when it is held.
    over: set when it was let go and answered, or never will be.
    """

    parts: tuple[bytes, ...]
    seconds: float | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Forwards connections from ports of this machine to others, in a thread of its own.

    lost: number of replies that it has lost so far.
    """

    def __init__(self):
        self.lost = 0
        self._doors = []
        self._traps = []
        self._links = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, at):
        self.sever()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, port, target):
        """Forward a port to another one from now on, and return it. Raises OSError where it is taken."""

        async def connected(reader, writer):
            await self._connected(target, reader, writer)

        listening = asyncio.start_server(connected, "127.0.0.1", port)
        self._doors.append(asyncio.run_coroutine_threadsafe(listening, self._loop).result(_ANSWER_SECONDS))
        return port

    # Traps and links belong to the loop's thread, so every change is made there.

    def lose_reply(self, *parts):
        """Cut the connection of the next command with all these parts, after Redis has done it and before its reply."""
        self._loop.call_soon_threadsafe(self._traps.append, Trap(parts))

    def hold(self, *parts, seconds):
        """Hold the next command with all these parts back for some seconds; return the trap."""
        trap = Trap(parts, seconds)
        self._loop.call_soon_threadsafe(self._traps.append, trap)
        return trap

    def disarm(self):
        """Stop losing replies and holding commands."""
        self._loop.call_soon_threadsafe(self._traps.clear)

    def sever(self):
        """Cut all connections at once."""
        self._loop.call_soon_threadsafe(self._cut_all)

    def sprung(self, request, *, held):
        """Return the trap for a request, None if there is none. The trap is used up.

        held: whether to look for one that holds it back, and not for one that loses its reply.
        """
        for trap in self._traps:
            if (trap.seconds is not None) == held and all(part in request for part in trap.parts):
                self._traps.remove(trap)
                return trap
        return None

    def _cut_all(self):
        for link in self._links:
            link.cut()

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for door in self._doors:
            door.close()
        # Every link is cut, so the remaining tasks are about to end.
        if tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=10))

    async def _connected(self, target, reader, writer):
        try:
            there = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            # A Redis that is down refuses connections; the client must see the same.
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), there)
        self._links.add(link)
        try:
            await link.run()
        finally:
            link.cut()
            self._links.discard(link)


class _Link:
    """One client's connection and the one to Redis that belongs to it."""

    def __init__(self, proxy, here, there):
        self._proxy = proxy
        self._here = here
        self._there = there
        self._request = b""
        self._replica = False
        self._answered = asyncio.Event()

    def cut(self):
        """End both sides at once."""
        # Abort and not close: a connection that breaks does not send its buffers first.
        for _, writer in (self._here, self._there):
            writer.transport.abort()

    async def run(self):
        """Forward until one side ends."""
        ways = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self):
        while data := await self._here[0].read(_BLOCK):
            # A command has its name at its start, but the end of one block may belong to the next command.
            self._request = (self._request + data)[: 4 * _BLOCK]
            self._replica = self._replica or any(word in data for word in _REPLICA)
            held = None if self._replica else self._proxy.sprung(data, held=True)
            if held is None:
                await _send(self._there, data)
                continue
            held.begun.set()
            try:
                await asyncio.sleep(held.seconds)
                self._answered.clear()
                await _send(self._there, data)
                # Its sender may have gone, and then nothing else would wait for the answer.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._answered.wait(), _ANSWER_SECONDS)
            finally:
                held.over.set()

    async def _replies(self):
        while data := await self._there[0].read(_BLOCK):
            request, self._request = self._request, b""
            self._answered.set()
            # Only now, when the reply shows that Redis has done the command.
            if not self._replica and self._proxy.sprung(request, held=False):
                self._proxy.lost += 1
                return
            await _send(self._here, data)


async def _send(side, data):
    side[1].write(data)
    await side[1].drain()
