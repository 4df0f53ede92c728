"""What a writer of a model's topics can do to subscribers who hold nothing but a public key."""

import logging

import pytest

from appending import append
from ledger_maker import CREATED, LedgerMaker, key_of
from streamtopic.client import ModelSubscriber
from streamtopic.errors import StaleRelease
from streamtopic.signed import Alive, Runs, proof_message, releases_topic, to_messages, tombstones
from streamtopic.streams import FileLog

TOPIC = "news.releases"
START = CREATED / 1000
HOUR = 3600.0


@pytest.fixture
def clock():
    """Seconds since 1970, in a list that a test changes."""
    return [START]


@pytest.fixture
def log(tmp_path):
    """A log in files."""
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def maker(log):
    """The service."""
    return LedgerMaker(log)


@pytest.fixture
def alive(maker, clock):
    """The service says what is there, at the time of the test."""
    return lambda newest=None, **changes: maker.alive(newest, **{"made": int(clock[0] * 1000)} | changes)


@pytest.fixture
def subscribe(log, maker, clock):
    """A subscriber that never waits."""
    options = {"model": "news", "public_key": maker.pinned, "idle_seconds": 0, "now": lambda: clock[0]}
    return lambda source=log, **changes: ModelSubscriber(source, **options | changes)


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def made_again(log, *topics):
    """Remove topics with all their records, and make them again."""
    for topic in topics:
        log.remove(topic)
        log.create(topic, 1)


def test_a_withdrawn_version_that_is_put_back_is_not_served(subscribe, maker, alive, log):
    """Records of a withdrawn version, written again, are given to no one, although their proof holds."""
    first = maker.publish(1)
    maker.publish(2, withdrawn=(1,), kind="unlearn")
    log.append_many(TOPIC, tombstones(1, len(first.chunks)))
    alive()
    log.append_many(TOPIC, first.messages)
    log.compact(TOPIC, tombstones_ms=0)
    assert versions(subscribe()) == [2]


def test_a_log_that_ends_at_a_withdrawn_version_serves_nothing(subscribe, maker, alive, log):
    """If the version that withdraws another is erased, the ledger still withdraws it, and the reader says so."""
    maker.publish(1)
    second = maker.publish(2, withdrawn=(1,), kind="unlearn")
    alive()
    log.append_many(TOPIC, tombstones(2, len(second.chunks)))
    log.compact(TOPIC, tombstones_ms=0)
    subscriber = subscribe()
    assert versions(subscriber) == []
    assert "version 2 is the newest" in subscriber.stale
    strict = subscribe(max_age=HOUR)
    maker.publish(3)
    with pytest.raises(StaleRelease, match="version 2"):
        versions(strict)


@pytest.mark.parametrize("how", ["chunk", "proof"])
def test_no_record_shadows_the_newest_version(subscribe, maker, alive, log, how):
    """Who writes over a version's chunk or proof keeps it from new readers, and cannot keep that from them."""
    first, second = maker.publish(1), maker.publish(2, seed=1)
    alive()
    held = subscribe()
    assert versions(held) == [1, 2]
    shadow = to_messages(2, first.data) if how == "chunk" else [proof_message(2, first.proof)]
    log.append_many(TOPIC, shadow)
    log.compact(TOPIC, tombstones_ms=0)
    assert versions(held) == []
    assert held.stale is None
    late = subscribe()
    assert versions(late) == [1]
    assert "version 2 is the newest and its topic does not hold it" in late.stale
    log.append_many(TOPIC, second.messages)
    assert versions(late) == [2]
    assert late.stale is None


def test_unsigned_tombstones_withdraw_nothing(subscribe, maker, alive, log):
    """Tombstones from anyone neither silence a release that is in use nor keep one back that can still be read."""
    subscriber = subscribe()
    made = maker.publish(1)
    alive()
    release = subscriber.poll()
    log.append_many(TOPIC, tombstones(1, len(made.chunks)))
    assert versions(subscriber) == []
    assert release.topics(top=1)
    assert versions(subscribe()) == [1]
    log.compact(TOPIC, tombstones_ms=0)
    assert subscribe().poll() is None
    late = subscribe()
    assert versions(late) == []
    assert "topic does not hold it" in late.stale


@pytest.mark.parametrize("topics", [("news.ledger", TOPIC), ("news.ledger",)], ids=["both", "ledger"])
def test_a_log_that_is_made_again_is_noticed_while_a_subscriber_runs(subscribe, maker, alive, log, tmp_path, topics):
    """A running subscriber of a log that was set back is one that was restarted: nothing comes again, and it says why.

    What was withdrawn stays so. With `max_age` nothing is served until the log has caught up.
    """
    first = maker.publish(1)
    alive()
    second = maker.publish(2)
    maker.append(Alive(5, 0, 2, Runs((1, 1))))
    alive()
    pages = [record.value for record in log.read("news.ledger", 0, 0)]
    subscriber, strict = subscribe(), subscribe(max_age=HOUR)
    assert versions(subscriber) == versions(strict) == [2]
    made_again(log, *topics)
    maker.send(*pages[:4])
    log.append_many(TOPIC, first.messages)
    assert versions(subscriber) == []
    assert "has 2 entries, and had 5 before" in subscriber.stale
    assert subscriber.withdrawn == {1}
    with pytest.raises(StaleRelease, match="had 5 before"):
        strict.poll()
    # Once its records are there again, the service goes on with the ledger that it has signed.
    maker.send(*pages[4:])
    log.append_many(TOPIC, second.messages)
    maker.publish(3)
    alive()
    assert versions(subscriber) == versions(strict) == [3]
    assert subscriber.stale is None


def test_readers_never_go_back(subscribe, maker, alive, log, tmp_path, caplog):
    """A page of before that comes again changes nothing; a log that was set back is noticed after a restart."""
    first = maker.publish(1)
    alive()
    old = [record.value for record in log.read("news.ledger", 0, 0)]
    subscriber = subscribe(progress=tmp_path / "progress")
    assert versions(subscriber) == [1]
    maker.publish(2, withdrawn=(1,), kind="unlearn")
    alive()
    assert versions(subscriber) == [2]
    maker.send(*old)
    assert versions(subscriber) == []
    assert subscriber._ledger.ledger.alive.newest == 2
    subscriber.close()
    with FileLog(tmp_path / "older") as older:
        LedgerMaker(older).send(*old)
        older.append_many(TOPIC, first.messages)
        for _ in range(2):
            # Also after the first restart that has seen the shorter ledger.
            restarted = subscribe(older, progress=tmp_path / "progress")
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert versions(restarted) == []
                assert versions(restarted) == []
            assert "has 2 entries, and had 4 before" in restarted.stale
            assert sum("out of date" in record.getMessage() for record in caplog.records) == 1
            restarted.close()


def test_two_ledgers_are_not_mixed(subscribe, maker, alive, log):
    """Pages and releases of another model, of another key, and of a fork of the same ledger change nothing."""
    maker.publish(1)
    alive()
    fork = maker.fork()
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    maker.append(maker.receipt(1))
    others = [fork, LedgerMaker(log, "olds"), LedgerMaker(log, key=key_of(number=3))]
    for other in others:
        other.names = maker.names
        other.publish(2, withdrawn=(1,))
        other.alive()
    assert versions(subscriber) == []
    assert subscriber._ledger.ledger.alive.newest == 1
    assert subscriber.withdrawn == frozenset()


def test_an_old_word_makes_a_model_stale(subscribe, maker, alive, clock):
    """Without max_age the subscriber says it and serves; with it, it refuses, and so does a release in use."""
    maker.publish(1)
    alive()
    relaxed, strict = subscribe(), subscribe(max_age=HOUR)
    loose, held = relaxed.poll(), strict.poll()
    assert relaxed.stale is strict.stale is None
    assert held.topics(top=1)
    clock[0] += 1.5 * HOUR
    assert relaxed.poll() is None
    assert "5,400 s old" in relaxed.stale
    assert loose.topics(top=1)
    for refused in (strict.poll, held.topics, lambda: held.transform(["text"])):
        with pytest.raises(StaleRelease, match="streamtopic schedule"):
            refused()
    # Receipts are no word of the service: they may be old ones, held back.
    maker.append(maker.receipt(1))
    with pytest.raises(StaleRelease):
        strict.poll()
    alive()
    assert strict.poll() is None
    assert held.topics(top=1)
    assert relaxed.poll() is None
    assert relaxed.stale is None


def test_unsigned_chunks_take_bounded_memory(subscribe, maker, log, caplog):
    """Chunks of releases that never become whole are dropped, and those that no release can have are not kept."""
    piece = b"x" * (900 << 10)
    digest = b"0" * 64

    def chunk(version, number, chunks, content=piece):
        headers = (("chunks", b"%d" % chunks), ("sha256", digest))
        append(log, TOPIC, b"%d/%d" % (version, number), content, headers)

    chunk(5, 0, 4_096)
    chunk(6, 0, 2, piece + b"x")
    for version in range(10, 30):
        chunk(version, 0, 2)
    for number in range(291):
        chunk(40, number, 292, piece[: 64 << 10])
    maker.publish(1)
    subscriber = subscribe()
    with caplog.at_level(logging.WARNING):
        assert versions(subscriber) == [1]
    assert subscriber.skipped == 2 + 6
    assert "news.releases/0 is passed over" in caplog.text
    assert len(subscriber._releases._pending) <= 16


def test_releases_that_are_not_whole_share_the_bytes_of_one(subscribe, log, monkeypatch):
    """Anybody may write a chunk and a proof of any version: the newest are kept, within one bound for all."""
    monkeypatch.setattr(releases_topic, "RELEASE_BYTES", 1_000)
    monkeypatch.setattr(releases_topic, "MAX_PROOFS", 5)
    for version in range(10, 18):
        append(log, TOPIC, b"%d/0" % version, b"x" * 300, (("chunks", b"2"), ("sha256", b"0" * 64)))
        log.append_many(TOPIC, [proof_message(version, "no")])
    subscriber = subscribe()
    assert subscriber.poll() is None
    assert [version for version, *_ in subscriber._releases._pending] == [15, 16, 17]
    assert list(subscriber._releases._proofs) == [13, 14, 15, 16, 17]
