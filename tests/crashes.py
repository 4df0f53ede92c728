"""A process that is killed beside an append to the log, and a position that skips records."""

import itertools
from contextlib import contextmanager
from dataclasses import replace

import pytest

from streamtopic.state.meta import METAS, read_meta


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


def skip_records(connection, keys, records):
    """Move the position of a partition on, as if so many records had been counted."""
    meta = read_meta(connection, keys)
    connection.call("HSET", keys.meta, "facts", METAS.pack(replace(meta, next_offset=meta.next_offset + records)))
