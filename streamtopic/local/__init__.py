"""Real servers on this machine, started and stopped by the program, for the demo, for tests and for trying out."""

from streamtopic.local.local_kafka import LocalKafka
from streamtopic.local.local_redis import LocalRedis
from streamtopic.local.local_redis_cluster import LocalRedisCluster, LocalSentinel
from streamtopic.local.private import private_folder, tighten

__all__ = ["LocalKafka", "LocalRedis", "LocalRedisCluster", "LocalSentinel", "private_folder", "tighten"]
