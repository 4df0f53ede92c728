"""Versions come in order, each once, and only those that the ledger vouches for."""

import json

import pytest

from appending import append
from ledger_maker import LedgerMaker, key_of
from streamtopic.client import ModelSubscriber
from streamtopic.errors import ComponentUnreachable, InvalidRelease, UsageError
from streamtopic.signed import Alive, Runs, proof_message, to_messages
from streamtopic.signed.canonical import written
from streamtopic.streams import FileLog
from waiting import flipped

TOPIC = "news.releases"


@pytest.fixture
def subscribe(log, maker):
    """A subscriber that never waits."""
    options = {"model": "news", "public_key": maker.pinned, "idle_seconds": 0}
    return lambda **changes: ModelSubscriber(log, **options | changes)


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def test_releases_come_in_order_each_once(subscribe, maker, log):
    """A subscriber gets every version once, repeated records or not, and goes on with those that come later."""
    first, second = maker.publish(1), maker.publish(2)
    log.append_many(TOPIC, second.messages)
    subscriber = subscribe()
    assert versions(subscriber) == [1, 2]
    log.append_many(TOPIC, first.messages)
    maker.publish(3)
    assert versions(subscriber) == [3]
    assert subscriber.poll() is None
    assert subscriber.refused == 0


def test_forged_releases_are_refused(subscribe, maker, log):
    """Bytes with the proof of another key, model or version, damaged bytes and damaged proofs are never given out."""
    LedgerMaker(log, key=key_of(number=9)).publish(1)
    log.append_many(TOPIC, LedgerMaker(log, "olds").publish(2).messages)
    third = maker.publish(3)
    log.append_many(TOPIC, [*to_messages(9, third.data), proof_message(9, third.proof)])
    (damaged,) = to_messages(4, third.data)
    append(log, TOPIC, damaged.key, flipped(damaged.value), damaged.headers)
    log.append_many(TOPIC, [proof_message(4, third.proof)])
    log.append_many(TOPIC, [*to_messages(6, maker.made(6)[0]), proof_message(6, third.proof.replace("1", "2"))])
    append(log, TOPIC, b"junk", b"junk")
    maker.publish(5)
    subscriber = subscribe()
    assert versions(subscriber) == [3, 5]
    assert subscriber.refused == 4
    assert subscriber.skipped == 2


def test_a_second_release_of_a_version_is_refused(subscribe, maker):
    """Two entries with one number are not both believed: the first stays."""
    maker.publish(1)
    maker.publish(1, seed=5)
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    # With the first proof, and with its own.
    assert subscriber.refused == 2


@pytest.mark.parametrize("by", ["version", "entry", "key"])
def test_a_release_refuses_to_serve_once_withdrawn(log, by):
    """It stops when the ledger withdraws it, with or without a version after it, or revokes the key of its entry."""
    old, new = key_of("news", 0), key_of("news", 1)
    maker = LedgerMaker(log, key=old, root=key_of("news", 9))
    maker.begin_list()
    made = maker.publish(1)
    maker.rotate(new)
    subscriber = ModelSubscriber(log, model="news", public_key=maker.pinned, idle_seconds=0)
    release = subscriber.poll()
    assert release.topics()
    if by == "version":
        maker.publish(2, withdrawn=(1,), kind="unlearn")
    elif by == "entry":
        maker.alive(made=5, withdrawn=(1,))
    else:
        maker.revoke(old, made.index)
    assert versions(subscriber) == ([2] if by == "version" else [])
    for serve in (release.topics, lambda: release.transform(["text"])):
        with pytest.raises(InvalidRelease, match="withdrawn"):
            serve()


def test_a_restart_goes_on_where_it_stopped(subscribe, maker, tmp_path):
    """What was dealt with does not come again; what was only given out does. Of the ledger only the rest is read."""
    options = {"progress": tmp_path / "progress.json"}
    for version in (1, 2, 3):
        maker.publish(version)
    subscriber = subscribe(**options)
    assert (subscriber.poll().version, subscriber.poll().version) == (1, 2)
    failing = subscribe(**options)
    assert failing.poll().version == 2
    failing.__exit__(ValueError, ValueError("version 2 was not dealt with"), None)
    crashed = subscribe(**options)
    assert crashed.poll().version == 2
    crashed.close()
    assert versions(subscribe(**options)) == [3]
    written = (tmp_path / "progress.json").stat().st_mtime_ns
    again = subscribe(**options)
    assert versions(again) == []
    assert (tmp_path / "progress.json").stat().st_mtime_ns == written
    found = json.loads((tmp_path / "progress.json").read_text())
    assert {name: found[name] for name in ("model", "version", "size", "offset")} == {
        "model": "news", "version": 3, "size": 3, "offset": 6
    }  # fmt: skip
    assert again._ledger.ledger.checkpoint == maker.ledger.checkpoint


def test_a_draft_that_waits_at_a_restart_is_read_again(subscribe, maker, tmp_path):
    """A subscriber that stopped between a page and its checkpoint knows the page once that comes."""
    options = {"progress": tmp_path / "progress"}
    maker.publish(1)
    draft, checkpoint = maker.records([Alive(5, 0, 1, Runs((1, 1)))])
    maker.send(draft)
    subscriber = subscribe(**options)
    assert versions(subscriber) == [1]
    subscriber.close()
    maker.send(checkpoint)
    restarted = subscribe(**options)
    assert versions(restarted) == []
    assert restarted.withdrawn == {1}


def test_a_log_that_fails_in_the_middle_loses_nothing(maker, tmp_path, log):
    """What was read before the log stopped to answer is given out by the next poll."""
    for version in (1, 2, 3):
        maker.publish(version)

    class Failing(FileLog):
        answers = 3

        def read(self, topic, partition, offset, *_):
            if topic == TOPIC:
                self.answers -= 1
                if not self.answers:
                    raise ComponentUnreachable("away")
            return super().read(topic, partition, offset, 1)

    with Failing(tmp_path / "log") as failing:
        subscriber = ModelSubscriber(failing, model="news", public_key=maker.pinned, idle_seconds=0)
        with pytest.raises(ComponentUnreachable):
            subscriber.poll()
        assert versions(subscriber) == [1, 2, 3]


def test_a_file_of_progress_that_cannot_be_used_is_named(subscribe, maker, tmp_path):
    """Damaged progress, and a place where none can be written, are errors that name the file."""
    file = tmp_path / "progress"
    sound = {"model": "news", "version": 1, "size": 0, "offset": 0, "ledger": "{}"}
    changed = [sound | {name: "x"} for name in ("version", "size", "offset")]
    damaged_ones = ["", "junk", "[]", "{}", '{"model":"news","version":Infinity}', *map(written, [sound, *changed])]
    for damaged in damaged_ones:
        file.write_text(damaged)
        with pytest.raises(UsageError, match=f"{file} is not a file of progress"):
            subscribe(progress=file)
    file.write_text(written(sound | {"model": "olds"}))
    with pytest.raises(UsageError, match="belongs to model olds"):
        subscribe(progress=file)
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}"):
        subscribe(progress=tmp_path)
    maker.publish(1)
    nowhere = tmp_path / "missing" / "progress"
    subscriber = subscribe(progress=nowhere)
    with pytest.raises(UsageError, match=f"cannot write {nowhere}"):
        subscriber.poll()


def test_iteration_waits_for_releases(tmp_path, maker):
    """A subscriber waits at the log, sees what comes meanwhile, and ends after idle_seconds without any."""
    now, naps = [0.0], []

    def sleep(seconds):
        now[0] += seconds
        naps.append(seconds)
        if len(naps) == 3:
            maker.publish(1)

    log = FileLog(tmp_path / "log", monotonic=lambda: now[0], sleep=sleep)
    subscriber = ModelSubscriber(
        log, model="news", public_key=maker.pinned, idle_seconds=2, clock=lambda: now[0], sleep=sleep
    )
    assert versions(subscriber) == [1]
    assert now[0] == pytest.approx(sum(naps[:3]) + 2)
    assert max(naps) <= 0.5


@pytest.mark.parametrize("begin", ["tail", "progress"])
def test_a_ledger_is_read_at_its_end(subscribe, maker, tmp_path, begin):
    """A subscriber that starts does not read a long ledger: only back to the last word of the service, or onwards."""
    options = {"progress": tmp_path / "progress"} if begin == "progress" else {}
    if begin == "progress":
        subscribe(**options).close()
        with subscribe(**options) as early:
            assert versions(early) == []
    for page in range(100):
        maker.append(maker.receipt(page))
    if begin == "progress":
        with subscribe(**options) as later:
            assert versions(later) == []
    maker.publish(1)
    maker.alive()
    subscriber = subscribe(**options)
    assert versions(subscriber) == [1]
    ledger = subscriber._ledger.ledger
    assert ledger.size == 102
    assert len(ledger.gaps) == (94 if begin == "tail" else 0)


def test_a_topic_that_comes_later_is_waited_for(tmp_path):
    """A subscriber that starts first looks now and then for the topic, by its own clock."""
    naps, given = [], {"model": "news", "public_key": key_of().public, "idle_seconds": 1.2}
    late = ModelSubscriber(tmp_path / "none", clock=lambda: sum(naps), sleep=naps.append, **given)
    assert versions(late) == []
    assert naps == pytest.approx([0.5, 0.5, 0.2])
