"""An event log from what a user says of where it is."""

from pathlib import Path

from streamtopic.streams.event_log import EventLog
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_log import KafkaLog
from streamtopic.streams.kafka_options import SERVERS, KafkaOptions

__all__ = ["open_log"]


def open_log(where: str | Path | KafkaOptions | EventLog) -> tuple[EventLog, bool]:
    """The log in Kafka (`host:port[,host:port]`, or options with credentials), in a folder, or the log given; and
    whether it was opened here, so that the caller must close it.

    A folder that is called like a server is meant by a Path.
    """
    if isinstance(where, str) and SERVERS.match(where):
        where = KafkaOptions(where)
    if isinstance(where, KafkaOptions):
        return KafkaLog(where), True
    if isinstance(where, str | Path):
        return FileLog(where), True
    return where, False
