"""A process that is killed beside an append to the log, a position that skips records, and a Redis that is set back."""

import itertools
from contextlib import contextmanager
from dataclasses import replace

import pytest

from streamtopic.state.meta import POSITIONS, read_position


class Crash(BaseException):
    """The process was killed here. No `except Exception` may go on after it."""


@contextmanager
def killed_beside(log, topic, at, *, written):
    """Kill the process at an append to a topic, and expect that it is killed.

    at: which append, from 0.
    written: whether the log has the records by then.
    """
    appends = itertools.count()
    append = log.append_many

    def killed(to, messages, *hashed):
        crashes = to == topic and next(appends) == at
        places = None if crashes and not written else append(to, messages, *hashed)
        if crashes:
            raise Crash
        return places

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "append_many", killed)
        with pytest.raises(Crash):
            yield


def copied(connection, *patterns):
    """Return all keys of Redis that fit one of these patterns, each with its content; all keys without a pattern."""
    names = sorted({name for pattern in patterns or "*" for name in connection.names(pattern)})
    return dict(zip(names, connection.batch([("DUMP", name) for name in names]), strict=True))


def put_back(connection, copy, *patterns):
    """Set these keys back to a copy, as a replica that was behind or a restored file does."""
    gone = [("DEL", name) for pattern in patterns or "*" for name in connection.names(pattern)]
    connection.batch([*gone, *(("RESTORE", name, 0, content) for name, content in copy.items())])


def skip_records(connection, keys, records):
    """Move the position of a partition on, as if so many records had been counted."""
    meta = read_position(connection, keys)
    connection.call("HSET", keys.meta, "facts", POSITIONS.pack(replace(meta, next_offset=meta.next_offset + records)))
