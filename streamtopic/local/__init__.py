"""Real servers on this machine, started and stopped by the program, for the demo, for tests and for trying out."""

from streamtopic.local.certificates import Authority
from streamtopic.local.child import private_folder, tighten
from streamtopic.local.local_kafka import LocalKafka
from streamtopic.local.local_kafka_cluster import LocalKafkaCluster
from streamtopic.local.local_redis import LocalRedis
from streamtopic.local.local_redis_cluster import LocalRedisCluster, LocalSentinel

__all__ = [
    "Authority",
    "LocalKafka",
    "LocalKafkaCluster",
    "LocalRedis",
    "LocalRedisCluster",
    "LocalSentinel",
    "private_folder",
    "tighten",
]
