"""The client over a real Kafka broker: what other services use."""

import itertools
import threading

import pytest

from ledger_maker import LedgerMaker
from streamtopic.client import ModelSubscriber
from streamtopic.signed import tombstones
from streamtopic.streams import KafkaLog, KafkaOptions, TopicNames

NUMBERS = itertools.count()


@pytest.fixture
def log(kafka_server):
    """A log of the broker."""
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        yield log


@pytest.fixture
def model(log):
    """A model of its own for each test, its topics made as `streamtopic init` makes them."""
    names = TopicNames(f"client{next(NUMBERS)}")
    for topic, settings in names.settings().items():
        log.create(topic, 3 if topic == names.documents else 1, settings)
    return names.model


@pytest.fixture
def maker(log, model):
    """The service of the model."""
    return LedgerMaker(log, model)


def test_a_release_wakes_the_subscriber(model, kafka_server, maker):
    """A release that is published while a subscriber waits is given out long before its next look at the topic."""
    maker.publish(1)
    subscriber = ModelSubscriber(kafka_server.servers, model=model, public_key=maker.pinned, idle_seconds=3600)
    with subscriber:
        releases = iter(subscriber)
        assert next(releases).version == 1
        timer = threading.Timer(0.5, lambda: maker.publish(2, n=20_000, r=20))
        timer.start()
        # The subscriber's own next look comes after an hour: only the release itself can wake it.
        assert next(releases).version == 2
        timer.join()


def test_a_restarted_subscriber_goes_on(model, kafka_server, maker, tmp_path, log):
    """Progress, withdrawal and tombstones work over a broker as over files."""
    options = {"model": model, "public_key": maker.pinned, "progress": tmp_path / "progress", "idle_seconds": 0}
    first = maker.publish(1)
    with ModelSubscriber(kafka_server.servers, **options) as subscriber:
        (release,) = subscriber
        maker.publish(2, withdrawn=(1,), kind="unlearn")
        log.append_many(f"{model}.releases", tombstones(1, len(first.chunks)))
        assert [found.version for found in subscriber] == [2]
        assert release.withdrawn
    maker.publish(3)
    maker.alive()
    with ModelSubscriber(kafka_server.servers, **options, max_age=3600) as subscriber:
        assert [found.version for found in subscriber] == [3]
        assert subscriber.refused == 0
        assert subscriber.freshness.stale is None
