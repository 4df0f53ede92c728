"""An event log from what a user says of where it is."""

import re
from pathlib import Path

from streamtopic.errors import UsageError
from streamtopic.streams.base import EventLog
from streamtopic.streams.files import FileLog

__all__ = ["open_log"]

SERVERS = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}(,[A-Za-z0-9._-]+:[0-9]{1,5})*\Z")


def open_log(where: str | Path | EventLog) -> tuple[EventLog, bool]:
    """The log at a folder, or the log given; and whether it was opened here, so that the caller must close it.

    Raises UsageError for servers (`host:port`): this version keeps its log in files.
    """
    if isinstance(where, str) and SERVERS.match(where):
        raise UsageError(f"{where}: Kafka is not supported yet; give the folder of an event log in files")
    if isinstance(where, str | Path):
        return FileLog(where), True
    return where, False
