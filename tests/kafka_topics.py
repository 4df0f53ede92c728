"""What a broker does to topics some time after it was asked: tests wait until it is done."""

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewPartitions

from streamtopic.documents.events import encode_heartbeat
from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_log import KafkaLog
from waiting import until

HASTY = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "200",
}
"""Settings of a topic whose records are compacted as soon as they are in a closed file."""


def until_compacted(log, topic, holds):
    """Wait until something holds that the broker's compaction brings about; return what it answered.

    Only a closed file is compacted, and only a further record closes it, so each partition gets one after each look.
    """

    def compacted():
        found = holds()
        if not found:
            log.append_many(topic, [encode_heartbeat(partition) for partition in range(log.partitions(topic))])
        return found

    return until(compacted, f"compaction of {topic} by the broker", 0.3)


def add_partitions(servers, topic, count):
    """Give a topic more partitions, as an operator does, and wait until the broker tells of them."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_partitions({topic: NewPartitions(count)})
    admin.close()
    with KafkaLog(KafkaOptions(servers)) as other:
        until(lambda: other.describe(topic).partitions == count, f"{count} partitions of {topic}")


def delete_records(servers, topic, offsets):
    """Remove the records before these offsets, given by partition, as retention does."""
    # A broker refuses that for a topic that is only compacted, as `init` makes it; an operator may have changed it.
    with KafkaLog(KafkaOptions(servers)) as log:
        log.configure(topic, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_records({TopicPartition(topic, partition): offset for partition, offset in offsets.items()})
    admin.close()
