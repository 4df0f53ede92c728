"""Opens the event log that a user names, in a folder or in Kafka."""

from pathlib import Path

from streamtopic.streams.event_log import EventLog
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_options import SERVERS, KafkaOptions

__all__ = ["open_log"]


def open_log(where: str | Path | KafkaOptions | EventLog) -> tuple[EventLog, bool]:
    """Return the event log at a place, and whether it was opened here: then the caller must close it.

    where: Kafka's servers as `host:port[,host:port]`, KafkaOptions with credentials, a folder with a log in files, or
        an open log.
    """
    # A folder that is called like a server can be given as a Path.
    if isinstance(where, str) and SERVERS.match(where):
        where = KafkaOptions(where)
    if isinstance(where, KafkaOptions):
        from streamtopic.streams.kafka_log import KafkaLog

        return KafkaLog(where), True
    if isinstance(where, str | Path):
        return FileLog(where), True
    return where, False
