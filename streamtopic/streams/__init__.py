"""The logs of documents, releases, receipts and rejected records.

EventLog       the interface of a log
FileLog        a log in files, for one machine
KafkaLog       a log in a Kafka cluster, with KafkaOptions: servers and credentials
LogTopic       a topic of a log: its id and its number of partitions
Message        a record to append
Record         a record at its place in the log
TopicNames     a model's topics, with their settings
open_log       the log at a place
pages          the records of a partition, one list for each read
partition_of   the partition of a key
"""

from typing import TYPE_CHECKING

from streamtopic.streams.event_log import (
    EventLog,
    Headers,
    LogTopic,
    Message,
    Record,
    TopicNames,
    pages,
    partition_of,
)
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_options import KafkaOptions
from streamtopic.streams.opening import open_log

if TYPE_CHECKING:
    from streamtopic.streams.kafka_log import KafkaLog

__all__ = [
    "EventLog",
    "FileLog",
    "Headers",
    "KafkaLog",
    "KafkaOptions",
    "LogTopic",
    "Message",
    "Record",
    "TopicNames",
    "open_log",
    "pages",
    "partition_of",
]


def __getattr__(name: str) -> object:
    """Load kafka-python when a log in Kafka is first wanted: a program that reads files starts faster without it."""
    if name != "KafkaLog":
        raise AttributeError(name)
    from streamtopic.streams.kafka_log import KafkaLog

    return KafkaLog
