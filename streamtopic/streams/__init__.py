"""The logs of documents, releases, receipts and rejected records.

EventLog       the interface of a log
FileLog        a log in files, for one machine
KafkaLog       a log in a Kafka cluster, with KafkaOptions: servers and credentials
Message        a record to append
PARTITIONERS   names of the hashes that can choose the partition of a key
Record         a record at its place in the log
TopicNames     a model's topics, with their settings
addressed      messages with the partitions of their keys
open_log       the log at a place
pages          the records of a partition, one list for each read
partition_of   the partition of a key
shortest_lag   how long a delete leaves its document in the log
"""

from streamtopic.streams.event_log import (
    MURMUR2,
    PARTITIONERS,
    EventLog,
    Headers,
    Message,
    Record,
    TopicNames,
    addressed,
    pages,
    partition_of,
    shortest_lag,
)
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_log import KafkaLog, KafkaOptions
from streamtopic.streams.opening import open_log

__all__ = [
    "MURMUR2",
    "PARTITIONERS",
    "EventLog",
    "FileLog",
    "Headers",
    "KafkaLog",
    "KafkaOptions",
    "Message",
    "Record",
    "TopicNames",
    "addressed",
    "open_log",
    "pages",
    "partition_of",
    "shortest_lag",
]
