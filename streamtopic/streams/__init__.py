"""The logs of documents, releases, receipts and rejected records.

EventLog       what the service asks of a log
FileLog        the same in files, for one machine
KafkaLog       the same in a Kafka cluster, with KafkaOptions: servers and credentials
Message        what is appended
PARTITIONERS   names of the hashes that a topic's partitions can go by
Record         what is read
TopicNames     a model's topics, with their settings
addressed      messages with the partitions that their keys belong to
open_log       a log from where it is
pages          a partition's records, a read at a time
partition_of   which partition a key belongs to
"""

from streamtopic.streams.event_log import EventLog, Headers, Message, Record, pages
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_log import KafkaLog, KafkaOptions
from streamtopic.streams.opening import open_log
from streamtopic.streams.partitioner import MURMUR2, PARTITIONERS, addressed, partition_of
from streamtopic.streams.topic_names import TopicNames

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
]
