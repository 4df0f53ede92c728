import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed import (
    Receipt,
    SigningKey,
    digest_of,
    request_digest,
    seal_receipt,
    seal_release,
    to_message,
    to_messages,
    tombstones,
)
from streamtopic.streams import FileLog

TOPIC = "news.releases"


@pytest.fixture
def log(tmp_path):
    """A log with the topics of releases and receipts."""
    log = FileLog(tmp_path / "log")
    log.create(TOPIC, 1)
    log.create("news.receipts", 1)
    return log


@pytest.fixture
def publish(log, make, key):
    """Publish a version as the service does; its records."""

    def send(version, signer=key, **changes):
        messages = to_messages(version, seal_release(*make(version=version, **changes), signer))
        log.append_many(TOPIC, messages)
        return messages

    return send


@pytest.fixture
def subscribe(log, key):
    """A subscriber that never waits."""
    return lambda **options: ModelSubscriber(
        log, **({"model": "news", "public_key": key.public, "idle_seconds": 0} | options)
    )


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def test_releases_come_in_order_each_once(subscribe, publish):
    """A subscriber gets every version once, repeated records or not, and goes on with those that come later."""
    publish(1)
    publish(2)
    publish(2)
    subscriber = subscribe()
    assert versions(subscriber) == [1, 2]
    publish(1)
    publish(3)
    assert versions(subscriber) == [3]
    assert subscriber.poll() is None
    assert subscriber.refused == 0


def test_older_versions_that_arrive_late_are_skipped(subscribe, publish):
    """Order is that of versions: nothing older follows what was given out."""
    publish(2)
    subscriber = subscribe()
    assert versions(subscriber) == [2]
    publish(1)
    assert versions(subscriber) == []


def test_forged_releases_are_refused(subscribe, publish, log, make, key):
    """Another signer, another model, a renamed version and damage are counted and never given out."""
    publish(1, signer=SigningKey.generate())
    publish(2, model="olds")
    log.append_many(TOPIC, to_messages(9, seal_release(*make(version=3), key)))
    (message,) = to_messages(4, seal_release(*make(version=4), key))
    log.append(TOPIC, message.key, message.value[:-1] + b"\0", message.headers)
    log.append(TOPIC, b"junk", b"junk")
    publish(5)
    subscriber = subscribe()
    assert versions(subscriber) == [5]
    assert subscriber.refused == 3


def test_a_second_release_of_a_version_is_refused(subscribe, publish):
    """Two signed releases with one number are not both believed: the first stays."""
    publish(1)
    publish(1, seed=5)
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    assert subscriber.refused == 1


def test_half_releases_wait_for_their_rest(subscribe, log, make, key):
    """A release of which a chunk is missing is not seen until the chunk comes."""
    messages = to_messages(1, seal_release(*make(n=20_000, r=20), key))
    assert len(messages) > 1
    log.append_many(TOPIC, messages[:-1])
    subscriber = subscribe()
    assert subscriber.poll() is None
    log.append_many(TOPIC, messages[-1:])
    assert subscriber.poll().version == 1


def test_withdrawn_versions_are_left_out(subscribe, publish):
    """What a later release withdraws is not given out, unless asked for."""
    publish(1)
    publish(2)
    publish(3, withdrawn=(1, 2), kind="unlearn")
    subscriber = subscribe()
    assert versions(subscriber) == [3]
    assert subscriber.withdrawn == {1, 2}
    assert versions(subscribe(include_withdrawn=True)) == [1, 2, 3]


def test_a_release_refuses_to_serve_once_withdrawn(subscribe, publish):
    """A version that was given out stops serving when the subscriber learns of its withdrawal."""
    publish(1)
    subscriber = subscribe()
    release = subscriber.poll()
    assert release.topics()
    publish(2, withdrawn=(1,), kind="unlearn")
    assert subscriber.poll().version == 2
    assert release.withdrawn
    for serve in (release.topics, lambda: release.transform(["text"])):
        with pytest.raises(InvalidRelease, match="withdrawn"):
            serve()


def test_tombstones_alone_withdraw_nothing(subscribe, publish, log):
    """Anybody may have written a tombstone: a version that can still be read is given out, since no one signed that."""
    messages = publish(1)
    publish(2)
    log.append_many(TOPIC, tombstones(1, len(messages)))
    subscriber = subscribe()
    assert versions(subscriber) == [1, 2]
    assert subscriber.withdrawn == frozenset()


def test_retired_versions_still_serve(subscribe, publish, log):
    """A version that was erased because of its age was not withdrawn: who holds it may go on using it."""
    messages = publish(1)
    subscriber = subscribe()
    first = subscriber.poll()
    publish(2)
    log.append_many(TOPIC, tombstones(1, len(messages), retired=True))
    assert versions(subscriber) == [2]
    assert subscriber.withdrawn == frozenset()
    assert first.topics(top=1)


def test_a_restart_goes_on_where_it_stopped(subscribe, publish, tmp_path):
    """What was dealt with does not come again; what was only given out does."""
    options = {"progress": tmp_path / "progress.json"}
    for version in (1, 2, 3):
        publish(version)
    subscriber = subscribe(**options)
    assert (subscriber.poll().version, subscriber.poll().version) == (1, 2)
    crashed = subscribe(**options)
    assert crashed.poll().version == 2
    crashed.close()
    assert versions(subscribe(**options)) == [3]
    assert versions(subscribe(**options)) == []
    assert json.loads((tmp_path / "progress.json").read_text()) == {"model": "news", "version": 3, "statement": 0}


def test_an_error_in_the_callers_block_brings_the_release_again(subscribe, publish, tmp_path):
    """Leaving the block by an exception does not count the last release as dealt with."""
    publish(1)

    def fail():
        with subscribe(progress=tmp_path / "p") as subscriber:
            assert subscriber.poll().version == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert versions(subscribe(progress=tmp_path / "p")) == [1]


def test_progress_of_another_model_is_refused(subscribe, tmp_path):
    """A file that is no progress, or that of another model, is a usage error."""
    for content in ('{"model": "olds", "version": 1}', "junk", "[]"):
        (tmp_path / "p").write_text(content)
        with pytest.raises(UsageError):
            subscribe(progress=tmp_path / "p")


def test_a_file_of_progress_that_cannot_be_used_is_named(subscribe, publish, tmp_path):
    """Damaged progress, and a place where none can be written, are errors that name the file."""
    file = tmp_path / "progress"
    for damaged in ("", "[]", "{}", '{"model": "news", "version": Infinity}', '{"model": "news", "version": "x"}'):
        file.write_text(damaged)
        with pytest.raises(UsageError, match=f"{file} is not a file of progress"):
            subscribe(progress=file)
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}"):
        subscribe(progress=tmp_path)
    publish(1)
    nowhere = tmp_path / "missing" / "progress"
    subscriber = subscribe(progress=nowhere)
    assert subscriber.poll().version == 1
    with pytest.raises(UsageError, match=f"cannot write {nowhere}"):
        subscriber.poll()


@pytest.mark.parametrize("max_age", [0, -1.0, float("nan")])
def test_an_age_that_refuses_nothing_is_refused(subscribe, max_age):
    """A limit of no seconds would switch the check off without a word."""
    with pytest.raises(UsageError, match="max_age"):
        subscribe(max_age=max_age)


def test_iteration_waits_for_releases(tmp_path, publish, key):
    """A subscriber waits at the log, sees what comes meanwhile, and ends after idle_seconds without any."""
    now, naps = [0.0], []

    def sleep(seconds):
        now[0] += seconds
        naps.append(seconds)
        if len(naps) == 3:
            publish(1)

    log = FileLog(tmp_path / "log", monotonic=lambda: now[0], sleep=sleep)
    subscriber = ModelSubscriber(
        log, model="news", public_key=key.public, idle_seconds=2, clock=lambda: now[0], sleep=sleep
    )
    assert versions(subscriber) == [1]
    assert now[0] == pytest.approx(sum(naps[:3]) + 2)
    assert max(naps) <= 0.5


def test_a_topic_that_comes_later_is_waited_for(tmp_path, publish, key, log):
    """A subscriber that starts first looks now and then for the topic, by its own clock."""
    now, naps = [0.0], []

    def sleep(seconds):
        now[0] += seconds
        naps.append(seconds)

    late = ModelSubscriber(
        tmp_path / "none", model="news", public_key=key.public, idle_seconds=1.2, clock=lambda: now[0], sleep=sleep
    )
    assert versions(late) == []
    assert naps == pytest.approx([0.5, 0.5, 0.2])


def test_a_topic_that_is_not_there_yet_is_empty(tmp_path, key):
    """A subscriber may start before the service has created anything."""
    with ModelSubscriber(tmp_path / "new", model="news", public_key=key.public, idle_seconds=0) as subscriber:
        assert versions(subscriber) == []


def test_topics_can_keep_their_numbers(subscribe, log, make, key):
    """With match_topics a release whose topics are permuted is numbered like the one before."""
    payload, envelope = make(version=1)
    log.append_many(TOPIC, to_messages(1, seal_release(payload, envelope, key)))
    turned = dataclasses.replace(payload, A=payload.A[:, ::-1], top_words=payload.top_words[::-1])
    for version in (2, 3):
        changed = dataclasses.replace(envelope, version=version)
        log.append_many(TOPIC, to_messages(version, seal_release(turned, changed, key)))
    first, *others = subscribe(match_topics=True)
    assert [release.order for release in others] == [(1, 0), (1, 0)]
    assert all(release.top_words == first.top_words for release in others)


def receipt(offset, request, sequence=1, previous=""):
    """A receipt for the delete at an offset."""
    return Receipt(
        sequence=sequence, previous=previous, model="news", partition=0, offset=offset,
        request=request_digest(request, "s" * 16), document="d", received=1, applied=2, found=True, version=1,
        mode="certified", certificate=1e-9, sigma=1e-7, epsilon=1.0, delta=1e-6, cumulative_epsilon=1.0,
        capacity_used=1, capacity_left=4,
    )  # fmt: skip


def test_receipts_are_found_and_verified(log, key):
    """A receipt is found by request or id, repeated records count once, and a copy under another key is passed over."""
    first = receipt(3, "r-3")
    second = receipt(5, "r-5", 2, digest_of(seal_receipt(first, key)))
    for entry in (first, first, second):
        log.append_many("news.receipts", [to_message(entry, seal_receipt(entry, key))])
    receipts = Receipts(log, model="news", public_key=key.public)
    assert [entry.offset for entry in receipts] == [3, 5]
    assert receipts.find("r-5", salt="s" * 16) == [receipts.get("news/0/5")] == [second]
    assert receipts.find("r-4", salt="s" * 16) == []
    log.append("news.receipts", b"news/0/7", seal_receipt(receipt(6, "r"), key))
    assert receipts.find("r", salt="s" * 16) == []
    assert receipts.skipped == 1


def test_receipts_of_a_log_that_was_made_anew_are_those_that_it_holds(log, key, tmp_path):
    """A running reader finds the receipts of a topic that was made again, and none of the topic before."""
    first, second = receipt(3, "r-3"), receipt(5, "r-5")
    log.append_many("news.receipts", [to_message(first, seal_receipt(first, key))] * 2)
    receipts = Receipts(log, model="news", public_key=key.public)
    assert receipts.find("r-3", salt="s" * 16) == [first]
    log.close()
    shutil.rmtree(tmp_path / "log" / "news.receipts")
    log.create("news.receipts", 1)
    log.append_many("news.receipts", [to_message(second, seal_receipt(second, key))])
    assert receipts.find("r-3", salt="s" * 16) == []
    assert receipts.find("r-5", salt="s" * 16) == [second]


def test_the_client_is_light():
    """Importing and using the client loads neither numba nor scipy, scikit-learn, Redis or the service."""
    program = """
import sys
import streamtopic.client
from streamtopic.streams import FileLog
heavy = ("numba", "scipy", "sklearn", "redis", "kafka")
ours = ("streamtopic.service", "streamtopic.state", "streamtopic.counts")
print([name for name in sys.modules if name.startswith(heavy + ours)])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
