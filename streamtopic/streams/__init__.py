"""The logs of documents, releases, receipts and rejected records.

EventLog       the interface of a log
FileLog        a log in files, for one machine
KafkaOptions   servers and credentials of a log in a Kafka cluster (`kafka_log.KafkaLog`)
LogTopic       a topic of a log: its id and its number of partitions
Message        a record to append
Record         a record at its place in the log
TopicNames     a model's topics, with their settings
open_log       the log at a place
pages          the records of a partition, one list for each read
partition_of   the partition of a key
"""

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

__all__ = [
    "EventLog",
    "FileLog",
    "Headers",
    "KafkaOptions",
    "LogTopic",
    "Message",
    "Record",
    "TopicNames",
    "open_log",
    "pages",
    "partition_of",
]
