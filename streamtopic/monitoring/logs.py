"""What a service logs: one line of JSON for each event. docs/logs.md lists the names of all events.

JsonLines  a formatter of the standard logging, for processes that nobody watches at a terminal
bound      an event of a role with what its process is known by

A line holds numbers, names that are written in this program, and the text of a message. Of an event whose text may
quote others, the text is left out: never an id, a word or a secret is in a line.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UNNAMED", "JsonLines", "bound"]

UNNAMED = "unnamed"
"""The event of a line of another package, which names none. Its text is left out, since it may quote anything."""

_PLAIN = frozenset(vars(logging.makeLogRecord({})))


_QUOTES = frozenset({"version_remark", "release_refused", "record_passed_over", "witness_failed"})
"""Events whose text may quote others, so that JSON leaves it out."""


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON. process: the fields of every line, such as model and role."""

    def __init__(self, process: Mapping[str, str]) -> None:
        super().__init__()
        self._process = dict(process)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        # Other packages may use the same word for something of their own.
        own = record.name.partition(".")[0] == "streamtopic"
        name = getattr(record, "event", UNNAMED) if own else UNNAMED
        fields: dict[str, Any] = {"event": name, "level": record.levelname.lower()}
        fields |= bound(self._process, record.created)
        if name == UNNAMED:
            fields["logger"] = record.name
        else:
            fields |= {key: value for key, value in vars(record).items() if key not in _PLAIN and _number(value)}
            if name not in _QUOTES:
                fields["message"] = conceal(record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            # The kind alone: a traceback quotes whatever was in hand.
            fields["error"] = record.exc_info[0].__name__
        return json.dumps(fields).replace("\x7f", "\\u007f")


def bound(process: Mapping[str, str], time: float) -> dict[str, str]:
    """Return what every line has besides its event: the time, seconds since 1970, and what names the process."""
    return {"time": datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds"), **process}


def _number(value: object) -> bool:
    return isinstance(value, int | float)
