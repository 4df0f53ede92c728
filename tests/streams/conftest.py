"""What tests of logs share: a log in Kafka, and a name for a topic."""

import itertools

import pytest

from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_log import KafkaLog

NUMBERS = itertools.count()


@pytest.fixture
def log(kafka_server):
    """A log of the broker."""
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        yield log


@pytest.fixture
def name():
    """A name that no topic has yet."""
    return f"streams-{next(NUMBERS)}"
