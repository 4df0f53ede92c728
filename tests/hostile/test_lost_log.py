"""A log that is not the one that was counted: cut, made again under its name, or with partitions that nobody counts."""

import dataclasses
import itertools
import sqlite3
import time
from contextlib import closing

import pytest

from appending import append
from embedded_service import Service, made_on_kafka, two_topics
from kafka_topics import add_partitions, delete_records
from streamtopic.cli import main
from streamtopic.client import DocumentProducer
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.errors import StateMismatch, TakenOver
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.instance import provision, topic_settings
from streamtopic.settings import Settings, load
from streamtopic.state import ModelSettings
from streamtopic.state.meta import POSITIONS
from streamtopic.streams import FileLog, TopicNames, open_log
from waiting import until

_numbers = itertools.count()


@pytest.fixture
def settings(tmp_path, redis_server):
    """Settings of an instance in a folder, whose Redis other tests share."""
    given = {"topics": 2, "min_df": 1, "max_df": 1.0, "max_forget_lag": 0.0, "residue_max_age": 86_400.0}
    return Settings(dir=tmp_path / "instance", model=f"lost{next(_numbers)}", redis_url=redis_server.url, **given)


@pytest.fixture
def counted(settings):
    """The settings of an instance that has counted 30 documents."""
    with Service(settings) as service:
        service.add(two_topics(0, 30))
        service.settle()
    return settings


NEWEST = """
id IN (SELECT records.id FROM records JOIN topics ON records.id >> 52 = number WHERE name = ? ORDER BY 1 DESC LIMIT ?)
"""


def cut(settings, topic, records):
    """Take the newest records off a topic, as a power cut does; return them."""
    which = f"{settings.model}.{topic}", records
    with closing(sqlite3.connect(settings.dir / "log" / "events.sqlite")) as database, database:
        gone = database.execute(f"SELECT * FROM records WHERE {NEWEST}", which).fetchall()  # noqa: S608  no input
        database.execute(f"DELETE FROM records WHERE {NEWEST}", which)  # noqa: S608  no input
    assert len(gone) == records
    return gone


def refused(settings, words):
    """Assert that an instance neither starts nor takes a record, and says so everywhere. words: of the reason."""
    topic = f"{settings.model}.documents"
    with Service(settings) as service:
        end = service.log.end(topic, 0)
        for act in (service.settle, lambda: service.add(two_topics(50, 1)), lambda: service.delete(["d7"])):
            with pytest.raises(StateMismatch, match=rf"partition 0 of {topic}.*{words}.*streamtopic rebuild"):
                act()
        assert service.log.end(topic, 0) == end
        faults = [one.detail + one.remedy for one in service.examine() if one.passed is False]
        assert any(words in fault and "streamtopic rebuild" in fault for fault in faults)


def test_a_log_that_was_cut_takes_no_deletion_until_the_state_is_rebuilt(counted, capsys, monkeypatch):
    """A deletion is refused with the remedy and not appended; after the remedy it is carried out, with a receipt."""
    settings = counted
    cut(settings, "documents", 6)
    monkeypatch.setenv("STREAMTOPIC_MODEL", settings.model)
    monkeypatch.setenv("STREAMTOPIC_REDIS_URL", settings.redis_url.get_secret_value())
    assert main(["delete", "d7", "d8", "--dir", str(settings.dir)]) == 1
    said = capsys.readouterr().err
    assert "ends at offset 24, but records up to offset 30 were counted" in said
    assert "streamtopic rebuild" in said
    with FileLog(settings.dir / "log") as log:
        assert log.end(f"{settings.model}.documents", 0) == 24
    refused(settings, "was cut")
    with Service(settings) as service:
        service.rebuild(lambda *_: None)
        service.delete(["d7", "d8"])
        service.settle()
        assert service.status()["documents"] == 22
        assert len(service.receipts()) == 2


@pytest.mark.parametrize("written", [6, 9])
def test_records_that_take_the_place_of_counted_ones_are_noticed(counted, written):
    """However far the log has come again, the record that was counted last is not there."""
    settings = counted
    cut(settings, "documents", 6)
    with FileLog(settings.dir / "log") as log:
        for number in range(written):
            append(log, f"{settings.model}.documents", *_delete(f"d{number}"))
    refused(settings, "another one now")


def _delete(document):
    message = encode_delete(document, "request")
    return message.key, message.value, message.headers


def test_a_running_service_notices_a_log_that_is_cut(counted):
    """Within a minute, also if records came again before it looked; a process that does not count says it at once."""
    settings = counted
    now = [time.time()]
    with Service(settings, clock=lambda: now[0]) as service:
        (ingest,) = service.ingests
        cut(settings, "documents", 6)
        facts = service.status()
        assert (facts["lag"], facts["healthy"]) == (0, False)
        assert "the log was cut" in facts["remarks"][-1]
        for act in (ingest.step, service.settle):
            with pytest.raises(StateMismatch, match=r"partition 0|/0 holds offsets"):
                act()
        service.log.append_many(service.names.documents, [encode_add(f"e{n}", text="apple banana") for n in range(9)])
        facts = service.status()
        assert (facts["lag"], facts["healthy"]) == (3, False)
        with pytest.raises(StateMismatch, match="another one now"):
            service.delete(["d7"])
        now[0] += 61
        with pytest.raises(StateMismatch, match="another one now"):
            ingest.step()


def test_a_log_that_is_whole_is_not_refused(counted):
    """Neither as it is, nor compacted until the last counted record is gone."""
    settings = counted
    with Service(settings) as service:
        topic = service.names.documents
        position = service.reader.positions()[0]
        keys = service.reader._keys[0]
        assert service.status()["healthy"]
        service.delete(["d29"])
        service.settle()
        service.log.compact(topic, tombstones_ms=-1)
    with Service(settings) as service:
        assert [record.offset for record in service.log.read(topic, 0, position.last.offset)] == [30]
        assert service.status()["healthy"]
        # The last record of the state is the one that compaction took.
        now = dataclasses.replace(service.reader.position(0), last=position.last)
        service.connection.call("HSET", keys.meta, "facts", POSITIONS.pack(now))
        service.add(two_topics(30, 10))
        service.settle()
        assert service.status()["healthy"]


def test_a_ledger_that_was_cut_is_signed_no_more(settings):
    """The service refuses to sign a second history, also after a restart; subscribers say that entries are missing."""
    with Service(settings) as service:
        subscriber = _followed(service)
        receipts = service.receipts()
        # Its last checkpoint alone.
        gone = cut(settings, "ledger", 1)
        assert list(subscriber) == []
        assert "entries, and had" in subscriber.stale
        service.delete(["d3"])
        with pytest.raises(StateMismatch, match=r"ledger has lost records that were read from it: restore it"):
            service.settle()
    with Service(settings) as service:
        with pytest.raises(StateMismatch, match="restore it"):
            service.settle()
        assert "ledger" in {one.name for one in service.examine() if one.passed is False}
    with closing(sqlite3.connect(settings.dir / "log" / "events.sqlite")) as database, database:
        database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", gone)
    with Service(settings) as service:
        service.settle()
        assert service.receipts()[:2] == receipts
        assert [receipt.found for receipt in service.receipts()] == [True] * 3
        assert "ledger" not in {one.name for one in service.examine() if one.passed is False}


def _followed(service):
    """Return a subscriber that has taken the third version of a service with two deletions."""
    service.add(two_topics(0, 30))
    for gone in ("d1", "d2"):
        service.settle()
        service.delete([gone])
    service.settle()
    assert len(service.receipts()) == 2
    subscriber = service.subscriber()
    assert [release.version for release in subscriber] == [3]
    return subscriber


@pytest.fixture
def on_kafka(kafka_server, redis_server, tmp_path):
    """Settings of a service on Kafka that has counted 30 documents, and a function: send records as a producer."""
    model = f"lost{next(_numbers)}-kafka"
    settings = load(config=made_on_kafka(tmp_path, kafka_server, redis_server, model))
    with Service(settings) as service:
        with DocumentProducer(kafka_server.servers, model=settings.model) as producer:
            producer.add_many([(document.id, document.text) for document in two_topics(0, 30)])
        list(service.open_ingest(0).drain())
        assert service.status()["healthy"]
    return settings


@pytest.mark.parametrize("deleted", [20, 40])
def test_a_topic_of_kafka_that_was_made_again_loses_no_deletion(on_kafka, deleted):
    """However many deletes it holds by now: they are refused together with the topic, and counted by a rebuild."""
    with Service(on_kafka) as service:
        ingest = service.open_ingest(0)
        topic = service.names.documents
        service.log.remove(topic)
        until(lambda: not service.log.describe(topic).partitions, "the removal of the topic")
        provision(service.log, service.names, 1, topic_settings(service.settings))
        with DocumentProducer(on_kafka.kafka, model=on_kafka.model) as producer:
            for number in range(deleted):
                producer.delete(f"d{number}")
    with Service(on_kafka) as service:
        facts = service.status()
        assert facts["lag"] >= 0
        assert not facts["healthy"]
        assert "streamtopic rebuild" in facts["remarks"][-1]
        with pytest.raises(StateMismatch, match=r"partition 0 of .*streamtopic rebuild"):
            service.open_ingest(0)
        assert service.rebuild(lambda *_: None).documents == 0
        assert service.status()["healthy"]
    assert ingest.state.meta.documents == 30


def test_a_service_with_partitions_that_nobody_counts_is_not_well(on_kafka):
    """From the first look on, though the number of partitions was asked for a moment before."""
    now = [time.time()]
    with Service(on_kafka, clock=lambda: now[0]) as service:
        topic = service.names.documents
        assert service.log.partitions(topic) == 1
        ingest = service.open_ingest(0)
        add_partitions(on_kafka.kafka, topic, 2)
        facts = service.status()
        assert (facts["lag"], facts["healthy"]) == (0, False)
        assert "2 partitions and 1 are counted" in facts["remarks"][-1]
        now[0] += 61
        with pytest.raises(StateMismatch, match="2 partitions and 1 are counted"):
            ingest.step()


def test_who_lost_a_partition_unnoticed_takes_no_log_for_shortened(kafka_server, connection):
    """Its position lies before the log by now, since the new owner has counted on and the broker has erased that."""
    names = TopicNames(f"overtaken{next(_numbers)}")
    log, _ = open_log(kafka_server.servers)
    with log:
        log.create(names.documents, 1)
        log.create(names.rejected, 1)
        before, after = (
            Ingest(connection, log, names, 0, settings=ModelSettings(1, 256), clock=time.time) for _ in range(2)
        )
        log.append_many(names.documents, [encode_add(f"d{n}", text="some plain words") for n in range(20)])
        list(after.drain())
        delete_records(kafka_server.servers, names.documents, {0: 20})
        with pytest.raises(TakenOver):
            before.step()
        assert not after.step().records
