"""The whole examination: a part that cannot be looked at is a finding, and the others are looked at all the same."""

from __future__ import annotations

import importlib.util
import platform
from typing import TYPE_CHECKING

from streamtopic import __version__
from streamtopic.errors import StreamtopicError
from streamtopic.service.doctor.finding import Finding, fail, ok, warn
from streamtopic.service.doctor.keys import examine_keys
from streamtopic.service.doctor.log import examine_log
from streamtopic.service.doctor.room import examine_room
from streamtopic.service.doctor.server import examine_redis
from streamtopic.service.doctor.state import examine_state

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from streamtopic.service.parts import Parts

__all__ = ["examine"]


def examine(parts: Parts) -> Iterator[Finding]:
    """Yield findings as they are made. Nothing is changed."""
    yield from _program(parts)
    yield from _guarded("keys", examine_keys, parts)
    redis = yield from _guarded("redis", examine_redis, parts)
    log = yield from _guarded("log", examine_log, parts)
    if redis and log:
        yield from _guarded("state", examine_state, parts)
        yield from _guarded("room", examine_room, parts)
    else:
        yield warn("state", "not looked at", "make Redis and the log answer first")


def _guarded(name: str, look: Callable[[Parts], Iterator[Finding]], parts: Parts) -> Generator[Finding, None, bool]:
    """Yield what is found; whether it could be looked at."""
    try:
        yield from look(parts)
    except StreamtopicError as error:
        detail, _, remedy = str(error).rpartition(": ")
        yield fail(name, detail or str(error), remedy if detail else "see the message")
        return False
    return True


def _program(parts: Parts) -> Iterator[Finding]:
    yield ok("program", f"streamtopic {__version__}, Python {platform.python_version()}, model {parts.settings.model}")
    if parts.settings.kafka is None:
        return
    if importlib.util.find_spec("crc32c") is None:
        yield warn("crc32c", "not installed: records are decoded 10 to 40 times slower", "pip install crc32c")
    else:
        yield ok("crc32c", "installed: checksums of records cost little")
