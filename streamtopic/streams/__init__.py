"""The logs of documents, releases, receipts and rejected records.

EventLog       what the service asks of a log
FileLog        the same in files, for one machine
KafkaLog       the same in a Kafka cluster, with KafkaOptions: servers and credentials
Message        what is appended
Record         what is read
TopicNames     a model's topics, with their settings
open_log       a log from where it is
partition_of   which partition a key belongs to
"""

from streamtopic.streams.base import EventLog, Headers, Message, Record
from streamtopic.streams.files import FileLog
from streamtopic.streams.kafka import KafkaLog, KafkaOptions
from streamtopic.streams.names import TopicNames
from streamtopic.streams.opening import open_log
from streamtopic.streams.partitioner import partition_of

__all__ = [
    "EventLog",
    "FileLog",
    "Headers",
    "KafkaLog",
    "KafkaOptions",
    "Message",
    "Record",
    "TopicNames",
    "open_log",
    "partition_of",
]
