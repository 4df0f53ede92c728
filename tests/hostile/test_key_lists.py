"""Keys that are replaced, and keys that are stolen, while subscribers run."""

import json
import threading
from pathlib import Path

import pytest

from streamtopic.cli import main
from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.documents.corpus import Document
from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.service.app import Service
from streamtopic.settings import load
from streamtopic.signed import (
    KeyList,
    KeyRing,
    Receipt,
    Revoked,
    SigningKey,
    Statement,
    digest_of,
    keys_message,
    seal_keys,
    seal_receipt,
    seal_release,
    seal_statement,
    statement_message,
    to_message,
    to_messages,
)
from streamtopic.streams import FileLog, KafkaLog, KafkaOptions

TOPIC = "news.releases"
ROOT, OLD, NEW, OTHER = (SigningKey.from_bytes(bytes([number]) * 32) for number in range(1, 5))
FIRST = KeyList("news", 1, 1, OLD.public)
SECOND = FIRST.rotated(NEW.public, 2)


@pytest.fixture
def log(tmp_path):
    """A log with the topics of releases and receipts."""
    log = FileLog(tmp_path / "log")
    log.create(TOPIC, 1)
    log.create("news.receipts", 1)
    return log


@pytest.fixture
def publish(log, make):
    """Publish a version that a key has signed; its sealed bytes."""

    def send(version, signer, **changes):
        data = seal_release(*make(version=version, **changes), signer)
        log.append_many(TOPIC, to_messages(version, data))
        return data

    return send


@pytest.fixture
def enlist(log):
    """Publish a key list."""
    return lambda keys, root=ROOT: log.append_many(TOPIC, [keys_message(seal_keys(keys, root))])


@pytest.fixture
def subscribe(log):
    """A subscriber who knows the root key only, and never waits."""
    return lambda: ModelSubscriber(log, model="news", public_key=ROOT.public, idle_seconds=0)


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def without_old(releases, receipts=(0, "")):
    """The list in which the old key is revoked."""
    return SECOND.without(Revoked(OLD.public, {n: digest_of(data) for n, data in releases.items()}, receipts, 3))


def test_subscribers_follow_a_rotation(subscribe, publish, enlist, log):
    """What the old key signed stays valid, what the new one signs is taken at once, also by those who come later."""
    enlist(FIRST)
    publish(1, OLD)
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    enlist(SECOND)
    publish(2, NEW)
    assert versions(subscriber) == [2]
    log.compact(TOPIC)
    assert versions(subscribe()) == [1, 2]
    assert subscriber.refused == 0


def test_a_list_may_come_behind_what_it_is_for(subscribe, publish, enlist):
    """Compaction leaves the newest list behind older releases: they are read again once it is known."""
    publish(1, OLD)
    publish(2, NEW)
    subscriber = subscribe()
    assert versions(subscriber) == []
    enlist(SECOND)
    assert versions(subscriber) == [1, 2]


def test_a_revoked_key_counts_for_what_is_from_before(subscribe, publish, enlist, log):
    """Of a stolen key only the very releases count that the list names: nothing new, and no other content of theirs."""
    enlist(SECOND)
    first = publish(1, OLD)
    running = subscribe()
    assert versions(running) == [1]
    forged = publish(2, OLD)
    held = next(iter(running))
    assert held.topics(top=1)
    enlist(without_old({1: first}))
    publish(3, OLD)
    publish(2, NEW)
    assert versions(running) == []  # it was given a version 2 already
    with pytest.raises(InvalidRelease):
        held.topics()
    assert forged
    late = subscribe()
    assert versions(late) == [1, 2]
    publish(1, OLD, seed=9)
    log.compact(TOPIC)
    assert versions(subscribe()) == [2]


def test_a_revoked_key_states_nothing(subscribe, publish, enlist, log):
    """A statement of a stolen key withdraws nothing, whatever its number."""
    enlist(SECOND)
    first = publish(1, OLD)
    enlist(without_old({1: first}))
    statement = Statement("news", 9, 1, 0, 1, "", (1,))
    log.append_many(TOPIC, [statement_message(seal_statement(statement, OLD))])
    subscriber = subscribe()
    assert versions(subscriber) == [1]
    assert not subscriber.freshness.known


def test_lists_are_the_roots_and_never_go_back(subscribe, publish, enlist):
    """A list of another key, of the signing key itself, of another model or of an older number changes nothing."""
    first = publish(1, OLD)
    enlist(without_old({1: first}))
    enlist(SECOND)
    for root in (OTHER, OLD, NEW):
        enlist(KeyList("news", 9, 9, OTHER.public), root)
    enlist(KeyList("olds", 9, 9, OTHER.public))
    publish(2, OLD)
    publish(3, OTHER)
    publish(4, NEW)
    subscriber = subscribe()
    assert versions(subscriber) == [1, 4]
    assert subscriber.skipped == 4


def test_a_single_key_works_as_before(log, publish):
    """Whoever knows one signing key needs no list, and is told what to give when another key signs."""
    publish(1, OLD)
    publish(2, NEW)
    subscriber = ModelSubscriber(log, model="news", public_key=OLD.public, idle_seconds=0)
    assert versions(subscriber) == [1]
    with pytest.raises(UnknownKey, match="root key"):
        KeyRing(OLD.public, "news").verify(b"", b"", NEW.public.key_id)


def receipt(sequence, previous):
    """A receipt."""
    return Receipt(
        sequence=sequence, previous=previous, model="news", partition=0, offset=sequence,
        request="", document="d", received=1, applied=2, found=True, version=1,
        mode="certified", certificate=1e-9, sigma=1e-7, epsilon=1.0, delta=1e-6, cumulative_epsilon=1.0,
        capacity_used=1, capacity_left=4,
    )  # fmt: skip


def test_receipts_follow_the_list_too(log, enlist):
    """Receipts of old and new key are one chain; of a revoked key those up to the named head count, and no others."""
    previous, sealed = "", []
    for number, signer in enumerate((OLD, OLD, NEW), start=1):
        entry = receipt(number, previous)
        sealed.append(seal_receipt(entry, signer))
        previous = digest_of(sealed[-1])
        log.append_many("news.receipts", [to_message(entry, sealed[-1])])
    enlist(SECOND)
    with Receipts(log, model="news", public_key=ROOT.public) as receipts:
        assert [entry.sequence for entry in receipts] == [1, 2, 3]
    enlist(without_old({}, (2, digest_of(sealed[1]))))
    with Receipts(log, model="news", public_key=ROOT.public) as receipts:
        assert [entry.sequence for entry in receipts] == [1, 2, 3]
    forged = receipt(4, previous)
    log.append_many("news.receipts", [to_message(forged, seal_receipt(forged, OLD))])
    with Receipts(log, model="news", public_key=ROOT.public) as receipts:
        assert receipts.get(forged.id) is None
        assert [entry.sequence for entry in receipts] == [1, 2, 3]
        assert receipts.skipped == 1


def test_a_receipt_whose_key_is_listed_later_is_read_then(log, enlist):
    """A reader passes a record of an unknown key over, and comes back to it with the list that names the key."""
    enlist(FIRST)
    with Receipts(log, model="news", public_key=ROOT.public) as receipts:
        entry = receipt(1, "")
        log.append_many("news.receipts", [to_message(entry, seal_receipt(entry, NEW))])
        assert receipts.get(entry.id) is None
        assert receipts.skipped == 1
        enlist(SECOND)
        assert receipts.get(entry.id) == entry


def test_keys_change_while_a_subscriber_waits_at_a_broker(kafka_server, redis_server, tmp_path, make, capsys):
    """`keys publish`, `rotate` and `revoke` reach a subscriber that runs, which knows the root key from the start."""
    service = [
        "--set", "model=rotating", "--set", f"kafka={kafka_server.servers}", "--set", f"redis_url={redis_server.url}",
        "--set", f"public_key={tmp_path / 'root.pub'}", "--json",
    ]  # fmt: skip
    settings = {"signing": tmp_path / "signing.pem"}

    def streamtopic(*arguments):
        capsys.readouterr()
        assert main([*arguments, *service, "--set", f"signing_key={settings['signing']}"]) == 0
        return json.loads(capsys.readouterr().out)

    def publish(log, version, path):
        data = seal_release(*make(version=version, model="rotating"), SigningKey.load(Path(path)))
        log.append_many("rotating.releases", to_messages(version, data))

    assert main(["keys", "new", "--to", str(tmp_path), "--json"]) == 0
    assert main(["keys", "new", "--root", "--to", str(tmp_path), "--json"]) == 0
    streamtopic("init")
    folder = ("--root-key", str(tmp_path / "root.pem"), "--to", str(tmp_path))
    found = []

    def follow(subscriber):
        for release in subscriber:
            found.append(release.version)
            if release.version == 3:
                return

    with (
        KafkaLog(KafkaOptions(kafka_server.servers)) as log,
        ModelSubscriber(
            kafka_server.servers, model="rotating", public_key=tmp_path / "root.pub", idle_seconds=60
        ) as subscriber,
    ):
        thread = threading.Thread(target=follow, args=(subscriber,))
        thread.start()
        publish(log, 1, settings["signing"])
        first = streamtopic("keys", "publish", *folder)
        rotated = streamtopic("keys", "rotate", *folder)
        assert rotated["previous"] == [first["current"]]
        publish(log, 2, rotated["private"])
        old, settings["signing"] = settings["signing"], rotated["private"]
        revoked = streamtopic("keys", "revoke", first["current"], *folder)
        assert (revoked["sequence"], revoked["revoked"]) == (3, [first["current"]])
        publish(log, 3, old)
        publish(log, 3, rotated["private"])
        thread.join(60)
        assert found == [1, 2, 3]
        assert subscriber.refused >= 1
    assert main(["receipts", "export", "--to", str(tmp_path / "r"), *service, "--set", f"signing_key={old}"]) == 2
    assert "was revoked" in capsys.readouterr().err


def test_an_instance_goes_on_with_its_new_key(tmp_path, capsys):
    """After a rotation the service knows what it signed before: versions go on, no deletion gets a second receipt."""
    root = tmp_path / "offline" / "root.pem"
    chosen = {"dir": tmp_path / "instance", "topics": 2, "min_df": 1, "max_df": 1.0, "max_forget_lag": 0}

    def settled(deleted):
        with Service(load(chosen)) as service:
            service.delete(deleted)
            service.settle()
            subscriber = service.subscriber(include_withdrawn=True)
            found = versions(subscriber), [receipt.sequence for receipt in service.receipts()]
            assert subscriber.freshness.statement.newest == found[0][-1]
            return *found, service.signing_key.public.key_id

    subjects = ["apple banana cherry damson elder", "iron copper silver gold tin"]
    words = [subject.split() for subject in subjects]
    with Service(load(chosen)) as service:
        documents = [(n, " ".join(words[n % 2][(n // 2 + k) % 5] for k in range(4))) for n in range(60)]
        service.add([Document(f"d{n}", text, {}) for n, text in documents])
        service.settle()
    assert settled(["d1"])[:2] == ([1, 2], [1])
    assert main(["keys", "new", "--root", "--to", str(root.parent)]) == 0
    for action in ("publish", "rotate"):
        assert main(["keys", action, "--root-key", str(root), "--dir", str(chosen["dir"]), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert listed["sequence"] == 2
    assert settled(["d3"]) == ([1, 2, 3], [1, 2], listed["current"])
    assert main(["keys", "revoke", listed["previous"][0], "--root-key", str(root), "--dir", str(chosen["dir"])]) == 0
    assert settled(["d5"])[:2] == ([1, 2, 3, 4], [1, 2, 3])
    assert main(["keys", "revoke", listed["current"], "--root-key", str(root), "--dir", str(chosen["dir"])]) == 2
    assert "must be rotated first" in capsys.readouterr().err
