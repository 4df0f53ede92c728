"""Real servers on this machine, started and stopped by the program, for the demo, for tests and for trying out."""

from streamtopic.local.child import private_folder, tighten
from streamtopic.local.local_kafka import LocalKafka
from streamtopic.local.local_redis import LocalRedis

__all__ = ["LocalKafka", "LocalRedis", "private_folder", "tighten"]
