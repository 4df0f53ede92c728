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


class Proxy:
    """Forwards connections from ports of this machine to others, in a thread of its own.

    lost: number of replies that it has lost so far.
    """

    def __init__(self):
        self.lost = 0
        self._doors = []
        self._armed = []
        self._holding = []
        self._links = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind, error, at):
        self.sever()
        self._do(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, port, target):
        """Forward a port to another one from now on, and return it. Raises OSError where it is taken."""

        async def connected(reader, writer):
            await self._connected(target, reader, writer)

        async def listen():
            self._doors.append(await asyncio.start_server(connected, "127.0.0.1", port))

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(_ANSWER_SECONDS)
        return port

    def lose_reply(self, *parts):
        """Cut the connection of the next command with all these parts, after Redis has done it and before its reply."""
        self._do(lambda: self._armed.append(parts))

    def hold(self, *parts, seconds):
        """Hold the next command with all these parts back for some seconds."""
        hold = Held(parts, seconds)
        self._do(lambda: self._holding.append(hold))
        return hold

    def disarm(self):
        """Stop losing replies and holding commands."""
        self._do(self._armed.clear)
        self._do(self._holding.clear)

    def sever(self):
        """Cut all connections at once."""
        self._do(self._cut_all)

    def loses(self, request):
        """Whether the reply to this request must be lost. The request that it answers is used up."""
        for parts in self._armed:
            if all(part in request for part in parts):
                self._armed.remove(parts)
                self.lost += 1
                return True
        return False

    def holds(self, request):
        """Return the hold for this request, None if there is none. The hold that it answers is used up."""
        for hold in self._holding:
            if all(part in request for part in hold.parts):
                self._holding.remove(hold)
                hold.begun.set()
                return hold
        return None

    def _cut_all(self):
        for link in self._links:
            link.cut()

    def _do(self, what):
        # Lists and links belong to the loop's thread, so every change is made there.
        done = threading.Event()

        def act():
            what()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait(10)

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._ready.set)
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


@dataclass(slots=True)
class Held:
    """A command that is held back.

    parts: bytes by which it is told from others.
    seconds: how long it is held.
    begun: set when it is held.
    over: set when it was let go and answered, or never will be.
    reply: answer of Redis, which may have reached nobody.
    """

    parts: tuple[bytes, ...]
    seconds: float
    begun: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    reply: bytes = b""


class _Link:
    """One client's connection and the one to Redis that belongs to it."""

    def __init__(self, proxy, here, there):
        self._proxy = proxy
        self._here = here
        self._there = there
        self._request = b""
        self._held = None
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
            held = None if self._replica else self._proxy.holds(data)
            if held is None:
                await self._ask(data)
                continue
            try:
                await asyncio.sleep(held.seconds)
                self._held = held
                await self._ask(data)
                # Its sender may have gone, and then nothing else would wait for the answer.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._answered.wait(), _ANSWER_SECONDS)
            finally:
                held.over.set()
                self._held = None

    async def _ask(self, data):
        self._there[1].write(data)
        await self._there[1].drain()

    async def _replies(self):
        while data := await self._there[0].read(_BLOCK):
            request, self._request = self._request, b""
            if self._held is not None:
                self._held.reply = data
                self._answered.set()
            # Only now, when the reply shows that Redis has done the command.
            if not self._replica and self._proxy.loses(request):
                return
            self._here[1].write(data)
            await self._here[1].drain()
