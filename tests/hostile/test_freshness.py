"""What whoever may write to the releases topic can do to subscribers who hold nothing but a public key."""

import hashlib
import logging
import shutil

import pytest

from streamtopic.client import ModelSubscriber
from streamtopic.documents.corpus import Document
from streamtopic.errors import StaleRelease, StateMismatch
from streamtopic.service.app import Service
from streamtopic.service.publish.published import Published
from streamtopic.service.publish.publisher import Statements
from streamtopic.settings import Settings
from streamtopic.signed import (
    SigningKey,
    Statement,
    seal_release,
    seal_statement,
    statement_message,
    to_messages,
    tombstones,
)
from streamtopic.state import Connection, ModelSettings, ModelState
from streamtopic.streams import FileLog, TopicNames

TOPIC = "news.releases"
START = 1_700_000_000.0
HOUR = 3600.0


@pytest.fixture
def clock():
    """Seconds since 1970, in a list that a test changes."""
    return [START]


@pytest.fixture
def log(tmp_path):
    """A log with a topic of releases."""
    log = FileLog(tmp_path / "log")
    log.create(TOPIC, 1)
    return log


@pytest.fixture
def publish(log, make, key):
    """Publish a version as the service does; its records."""

    def send(version, **changes):
        messages = to_messages(version, seal_release(*make(version=version, **changes), key))
        log.append_many(TOPIC, messages)
        return messages

    return send


@pytest.fixture
def state(log, key, clock):
    """Sign a statement of the log as it is, or of what a test says instead."""

    def send(sequence, newest, data=b"", signer=key, **changes):
        digest = hashlib.sha256(data).hexdigest() if data else ""
        fields = {"made": int(clock[0] * 1000), "interval": 600_000, "withdrawn": ()} | changes
        statement = Statement("news", sequence, newest=newest, digest=digest, **fields)
        message = statement_message(seal_statement(statement, signer))
        log.append_many(TOPIC, [message])
        return message

    return send


@pytest.fixture
def subscribe(log, key, clock):
    """A subscriber that never waits."""
    options = {"model": "news", "public_key": key.public, "idle_seconds": 0, "now": lambda: clock[0]}
    return lambda source=log, **changes: ModelSubscriber(source, **options | changes)


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def value(messages):
    """Sealed bytes of a release from its records."""
    return b"".join(message.value for message in messages)


def test_a_withdrawn_version_that_is_put_back_is_not_served(subscribe, publish, state, log):
    """Records of a withdrawn version, written again, are given to nobody, although their signature holds."""
    first = publish(1)
    second = publish(2, withdrawn=(1,), kind="unlearn")
    log.append_many(TOPIC, tombstones(1, len(first)))
    state(1, 2, value(second), withdrawn=(1,))
    log.append_many(TOPIC, first)
    log.compact(TOPIC, tombstones_ms=0)
    assert versions(subscribe()) == [2]


def test_a_log_that_ends_at_a_withdrawn_version_serves_nothing(subscribe, publish, state, log):
    """Where the version that withdraws another is erased, the statement still withdraws it and says so."""
    publish(1)
    second = publish(2, withdrawn=(1,), kind="unlearn")
    state(1, 2, value(second), withdrawn=(1,))
    log.append_many(TOPIC, tombstones(2, len(second)))
    log.compact(TOPIC, tombstones_ms=0)
    subscriber = subscribe()
    assert versions(subscriber) == []
    assert "version 2 is the newest" in subscriber.freshness.stale
    strict = subscribe(max_age=HOUR)
    publish(3)
    with pytest.raises(StaleRelease, match="version 2"):
        versions(strict)


def test_unsigned_tombstones_withdraw_nothing(subscribe, publish, state, log):
    """Tombstones from anyone neither silence a release that is in use nor keep one back that can still be read."""
    subscriber = subscribe()
    messages = publish(1)
    state(1, 1, value(messages))
    release = subscriber.poll()
    log.append_many(TOPIC, tombstones(1, len(messages)))
    assert versions(subscriber) == []
    assert release.topics(top=1)
    assert versions(subscribe()) == [1]
    log.compact(TOPIC, tombstones_ms=0)
    assert subscribe().poll() is None
    late = subscribe()
    assert versions(late) == []
    assert "log does not hold it" in late.freshness.stale


def test_a_log_that_is_made_anew_is_noticed_while_a_subscriber_runs(subscribe, publish, state, log, tmp_path):
    """A running subscriber of a log that was set back is one that was restarted: nothing comes again, and it says why.

    With `max_age` nothing is served until the log has caught up.
    """
    state(1, 1, value(publish(1)))
    state(2, 2, value(publish(2)))
    subscriber = subscribe()
    strict = subscribe(max_age=HOUR)
    assert versions(subscriber) == versions(strict) == [1, 2]
    log.close()
    shutil.rmtree(tmp_path / "log" / TOPIC)
    log.create(TOPIC, 1)
    state(1, 1, value(publish(1)))
    assert versions(subscriber) == []
    assert "lacks statement 2" in subscriber.freshness.stale
    with pytest.raises(StaleRelease, match="lacks statement 2"):
        strict.poll()
    state(3, 3, value(publish(3)))
    assert versions(subscriber) == versions(strict) == [3]
    assert subscriber.freshness.stale is None


def test_readers_never_go_back(subscribe, publish, state, log, tmp_path, caplog):
    """An older statement changes nothing, however late it comes; a log that was set back is noticed after a restart."""
    first = publish(1)
    old = state(1, 1, value(first))
    subscriber = subscribe(progress=tmp_path / "progress")
    assert versions(subscriber) == [1]
    second = publish(2, withdrawn=(1,), kind="unlearn")
    state(2, 2, value(second), withdrawn=(1,))
    assert versions(subscriber) == [2]
    log.append_many(TOPIC, [old])
    assert versions(subscriber) == []
    assert subscriber.freshness.statement.sequence == 2
    subscriber.close()
    with FileLog(tmp_path / "older") as older:
        older.create(TOPIC, 1)
        older.append_many(TOPIC, [*first, old])
        restarted = subscribe(older, progress=tmp_path / "progress")
        with caplog.at_level(logging.WARNING):
            assert versions(restarted) == []
            assert versions(restarted) == []
        assert "lacks statement 2" in restarted.freshness.stale
        assert sum("out of date" in record.getMessage() for record in caplog.records) == 1


def test_old_statements_make_a_model_stale(subscribe, publish, state, clock):
    """Without max_age the subscriber says it and serves; with it, it refuses, also where a release is in use."""
    state(1, 1, value(publish(1)))
    relaxed, strict = subscribe(), subscribe(max_age=HOUR)
    loose, held = relaxed.poll(), strict.poll()
    assert relaxed.freshness.stale is strict.freshness.stale is None
    assert held.topics(top=1)
    clock[0] += 1.5 * HOUR
    assert relaxed.poll() is None
    assert relaxed.freshness.age == pytest.approx(1.5 * HOUR)
    assert "5,400 s old" in relaxed.freshness.stale
    assert loose.topics(top=1)
    for refused in (strict.poll, held.topics, lambda: held.transform(["text"])):
        with pytest.raises(StaleRelease, match="streamtopic publish"):
            refused()
    state(2, 1, value(publish(1)))
    assert strict.poll() is None
    assert held.topics(top=1)
    assert relaxed.poll() is None
    assert relaxed.freshness.stale is None


def test_logs_without_statements_are_served_unless_an_age_is_asked_for(subscribe, publish):
    """Programs before 0.2 sign no statements: how fresh a model is stays unknown, and is no reason to stop."""
    publish(1)
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    assert (subscriber.freshness.known, subscriber.freshness.stale) == (False, None)
    with pytest.raises(StaleRelease, match="its service has not made a statement yet"):
        subscribe(max_age=HOUR).poll()


def test_forged_statements_say_nothing(subscribe, publish, state, log, key):
    """Statements of another key, of another model, damaged or erased are passed over, counted and said."""
    state(1, 1, value(publish(1)))
    state(9, 7, b"other", signer=SigningKey.generate(), withdrawn=(1,))
    other = Statement("olds", 8, 1, 1, 5, "", (1,))
    message = statement_message(seal_statement(other, key))
    log.append_many(TOPIC, [message])
    log.append(TOPIC, message.key, message.value[:-1] + b"\0")
    log.append(TOPIC, message.key, None)
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    assert subscriber.freshness.statement.sequence == 1
    assert subscriber.skipped == 3


@pytest.fixture
def statements(log, key, clock, redis_server):
    """Return a function: what signs statements in a service whose Redis has lost everything."""
    connections = []

    def made(model="news", interval_ms=600_000):
        connections.append(Connection(redis_server.url))
        connections[-1].call("FLUSHALL")
        found = ModelState.open(connections[-1], model, ModelSettings(1, 256))
        published = Published(log, model, key.public)
        return Statements(found, log, published, key, interval_ms=interval_ms, clock=lambda: clock[0])

    yield made
    for connection in connections:
        connection.__exit__(None, None, None)


def test_the_service_says_what_is_there(subscribe, publish, statements, clock):
    """A statement is made at the start, after each change, and before half of what is promised has passed again."""
    service = statements()
    assert service.publish(changed=False).newest == 0
    assert service.publish(changed=False) is None
    data = value(publish(1))
    said = service.publish(changed=True)
    assert (said.sequence, said.newest, said.digest) == (2, 1, hashlib.sha256(data).hexdigest())
    clock[0] += 299
    assert service.publish(changed=False) is None
    clock[0] += 2
    assert service.publish(changed=False).sequence == 3
    publish(2, withdrawn=(1,), kind="unlearn")
    assert service.publish(changed=True).withdrawn == (1,)
    subscriber = subscribe(max_age=HOUR)
    assert versions(subscriber) == [2]


def test_neither_a_restored_redis_nor_a_second_publisher_goes_back(publish, statements, log):
    """Numbers, the newest version and what is withdrawn only grow, whatever Redis and the log have lost."""
    publish(1)
    second = publish(2, withdrawn=(1,), kind="unlearn")
    old = statements()
    assert old.publish(changed=True).sequence == 1
    assert old.publish(changed=True) is None
    log.append_many(TOPIC, tombstones(2, len(second)))
    log.compact(TOPIC, tombstones_ms=0)
    new = statements()  # Redis is empty again
    assert new.publish(changed=True) is None
    publish(3)
    said = new.publish(changed=True)
    assert (said.sequence, said.newest, said.withdrawn) == (2, 3, (1,))
    assert old.publish(changed=True) is None


def test_what_compaction_keeps_is_made_new_again(publish, statements, state, log, clock):
    """An old statement that somebody writes behind the newest is followed by one that says the newest again."""
    old = state(1, 0)
    publish(1)
    service = statements()
    assert service.publish(changed=True).sequence == 2
    log.append_many(TOPIC, [old])
    clock[0] += 301
    assert service.publish(changed=False).sequence == 3


def test_unsigned_chunks_take_bounded_memory(subscribe, publish, log, caplog):
    """Chunks of releases that never become whole are dropped, and those that no release can have are not kept."""
    piece = b"x" * (900 << 10)
    digest = b"0" * 64

    def chunk(version, number, chunks, content=piece):
        headers = (
            ("version", b"%d" % version), ("chunks", b"%d" % chunks), ("sha256", digest), ("chunk", b"%d" % number),
        )  # fmt: skip
        log.append(TOPIC, b"%d/%d" % (version, number), content, headers)

    chunk(5, 0, 4_096)
    chunk(6, 0, 2, piece + b"x")
    for version in range(10, 30):
        chunk(version, 0, 2)
    for number in range(291):
        chunk(40, number, 292, piece[: 64 << 10])
    publish(1)
    subscriber = subscribe()
    with caplog.at_level(logging.WARNING):
        assert versions(subscriber) == [1]
    assert subscriber.skipped == 2 + 13
    assert "news.releases/0 is passed over" in caplog.text
    assembler = subscriber._reader._assembler
    assert assembler._size == sum(pending.size for pending in assembler._pending.values()) <= 256 << 20


def test_status_shows_what_the_releases_topic_says_last(tmp_path):
    """Number, age, newest and withdrawn versions, of the highest number that verifies; a forged one does not count."""
    now = [START]
    settings = Settings(dir=tmp_path / "shown", topics=2, min_df=1, max_df=1.0, max_forget_lag=0.0)
    with Service(settings, clock=lambda: now[0]) as service:
        assert set(service.status()["statement"].values()) == {None}
        service.add([Document(f"d{n}", ("apple banana cherry", "iron copper silver")[n % 2], {}) for n in range(60)])
        service.settle()
        service.delete(["d0"])
        service.settle()
        now[0] += 90.0
        shown = service.status()["statement"]
        assert (shown["newest"], shown["withdrawn"], shown["age"]) == (2, [1], 90.0)
        late = Statement("default", shown["sequence"] + 1, int(START * 1000), 60_000, 2, "", (1,))
        forged = Statement("default", shown["sequence"] + 2, int(START * 1000), 60_000, 9, "")
        signed = [
            (late, service.signing_key),
            (Statement("default", 1, int(START * 1000), 0, 1, ""), service.signing_key),
            (forged, SigningKey.from_bytes(bytes(32))),
        ]
        service.log.append_many("default.releases", [statement_message(seal_statement(s, key)) for s, key in signed])
        shown = service.status()["statement"]
    assert (shown["sequence"], shown["newest"], shown["due"]) == (late.sequence, 2, -30.0)


def test_a_topic_of_releases_that_is_gone_is_told_and_made_again(tmp_path):
    """The publisher does not go on as if nothing had been published, and its remedy gives subscribers a version."""
    settings = Settings(dir=tmp_path / "instance", topics=2, min_df=1, max_df=1.0, min_share=0.0)
    texts = ("rose tulip soil seed bloom", "oven flour butter knead dough")
    with Service(settings) as service:
        service.add(Document(str(k), texts[k % 2]) for k in range(20))
        service.settle()
        topic = TopicNames(settings.model).releases
        service.log.remove(topic)
        with pytest.raises(StateMismatch, match=rf"{topic} is gone.*`streamtopic retrain`"):
            service.statements.publish(changed=True)
    # Opening an instance creates its topics, as `init` does for a service.
    with Service(settings) as service:
        service.scheduler.step("retrain")
        service.settle()
        assert [release.version for release in service.releases()] == [2]
