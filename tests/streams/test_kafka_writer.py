"""Appending to a Kafka that does not confirm."""

import uuid

import pytest
from kafka import KafkaProducer, errors

from streamtopic.errors import ComponentUnreachable
from streamtopic.streams import KafkaLog, KafkaOptions, Message


def test_records_that_nobody_confirms_in_time_are_an_unreachable_log(kafka_server, monkeypatch):
    """No error of kafka-python leaves the log, also not when waiting for a broker ends before its records give up."""
    topic = f"unconfirmed-{uuid.uuid4().hex}"

    def late(*_, **__):
        raise errors.KafkaTimeoutError("Timeout waiting for future")

    with KafkaLog(KafkaOptions(kafka_server.servers, patience=5.0)) as log:
        log.create(topic, 1)
        with monkeypatch.context() as patch:
            patch.setattr(KafkaProducer, "flush", late)
            patch.setattr(KafkaProducer, "close", lambda *_, **__: None)
            patch.setattr("kafka.producer.future.FutureRecordMetadata.succeeded", lambda _: False)
            with pytest.raises(ComponentUnreachable, match="not confirmed"):
                log.append_many(topic, [Message(b"k", b"v")])
