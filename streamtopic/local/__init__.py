"""Real servers on this machine, started and stopped by the program: for the demo, tests and trying out."""

from streamtopic.local.kafka import LocalKafka
from streamtopic.local.redis import LocalRedis

__all__ = ["LocalKafka", "LocalRedis"]
