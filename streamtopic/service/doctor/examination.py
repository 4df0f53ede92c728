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
from streamtopic.service.doctor.server import examine_redis
from streamtopic.service.doctor.state import examine_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.service.parts import Parts

__all__ = ["examine"]


def examine(parts: Parts) -> Iterator[Finding]:
    """Yield findings as they are made. Nothing is changed."""
    yield from _program(parts)
    for name, look in (
        ("keys", examine_keys),
        ("redis", examine_redis),
        ("log", examine_log),
        ("state", examine_state),
    ):
        yield from _guarded(name, look, parts)


def _guarded(name: str, look: Callable[[Parts], Iterator[Finding]], parts: Parts) -> Iterator[Finding]:
    try:
        yield from look(parts)
    except StreamtopicError as error:
        detail, _, remedy = str(error).rpartition(": ")
        yield fail(name, detail or str(error), remedy if detail else "see the message")


def _program(parts: Parts) -> Iterator[Finding]:
    yield ok("program", f"streamtopic {__version__}, Python {platform.python_version()}, model {parts.settings.model}")
    if parts.settings.kafka is None:
        return
    if importlib.util.find_spec("crc32c") is None:
        yield warn("crc32c", "not installed: records are decoded 10 to 40 times slower", "pip install crc32c")
    else:
        yield ok("crc32c", "installed: checksums of records cost little")
