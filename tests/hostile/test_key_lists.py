"""Keys that are replaced, and keys that are stolen, while subscribers and readers of receipts run."""

import json
import threading
from pathlib import Path

import pytest

from ledger_maker import LedgerMaker, key_of
from streamtopic.cli import main
from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.errors import InvalidRelease
from streamtopic.signed import (
    KeyList,
    PublicKey,
    Revoked,
    SigningKey,
)
from streamtopic.streams import FileLog, KafkaLog, KafkaOptions
from waiting import PATIENCE

OLD, NEW, OTHER = (key_of(number=number) for number in range(1, 4))
ROOT, STRANGER = (SigningKey.from_seed(bytes([number]) * 32, "test/root") for number in (8, 9))
FIRST = KeyList("test/news", 1, 1, OLD.public)
SECOND = FIRST.rotated(NEW.public, 2)


@pytest.fixture
def log(tmp_path):
    """A log in files."""
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def maker(log):
    """A service that signs with the old key, whose readers know the root key only."""
    return LedgerMaker(log, key=OLD, root=ROOT)


@pytest.fixture
def subscribe(log):
    """A subscriber who knows the root key only, and never waits."""
    options = {"model": "news", "public_key": ROOT.public, "idle_seconds": 0}
    return lambda **changes: ModelSubscriber(log, **options | changes)


@pytest.fixture
def receipts(log):
    """A reader of receipts who knows the root key only."""
    return Receipts(log, model="news", public_key=ROOT.public)


def versions(subscriber):
    """Versions that a subscriber gives out."""
    return [release.version for release in subscriber]


def revoke(maker, first):
    """Take the new key into use, and revoke the old one: entries from `first` on are void."""
    revoked = Revoked(OLD.public, maker.ledger.size if first is None else first, maker.ledger.size, 3)
    maker.key = NEW
    maker.list_keys(SECOND.without(revoked))


def test_a_revoked_key_counts_for_what_is_from_before(subscribe, maker):
    """Of a stolen key the entries count up to the one that the list names; what was given out from them is refused."""
    maker.list_keys(SECOND)
    first = maker.publish(1)
    running = subscribe()
    assert versions(running) == [1]
    forged = maker.publish(2, seed=6)
    held = next(iter(running))
    assert held.topics(top=1)
    revoke(maker, forged.index)
    maker.fork(key=OLD).publish(3)
    second = maker.publish(2)
    assert versions(running) == []  # it was given a version 2 already
    with pytest.raises(InvalidRelease):
        held.topics()
    # The proof of the first version is signed with the stolen key, and says nothing any more by itself.
    late = subscribe()
    assert versions(late) == [2]
    maker.prove(first)
    latest = subscribe()
    assert [release.digest for release in latest] == [_digest(maker, one) for one in (first, second)]
    maker.publish(3)
    assert versions(running) == versions(latest) == [3]


def _digest(maker, made):
    return json.loads(maker.lines[made.index])["release"]


def test_keys_change_while_a_subscriber_waits_at_a_broker(kafka_server, redis_server, tmp_path, capsys, monkeypatch):
    """`keys publish`, `rotate` and `revoke` reach a subscriber that runs, which knows the root key from the start.

    The new key is in the folder of the old one, in whatever folder the command was given.
    """
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    service = [
        "--set", "model=rotating", "--set", f"kafka={kafka_server.servers}", "--set", f"redis_url={redis_server.url}",
        "--set", f"public_key={tmp_path / 'root.pub'}", "--json",
    ]  # fmt: skip
    settings = {"signing": tmp_path / "signing.key"}

    def streamtopic(*arguments):
        capsys.readouterr()
        assert main([*arguments, *service, "--set", f"signing_key={settings['signing']}"]) == 0
        return json.loads(capsys.readouterr().out)

    name = ["--name", "example.org/rotating", "--to", str(tmp_path), "--json"]
    assert main(["keys", "new", *name]) == main(["keys", "new", "--root", *name]) == 0
    streamtopic("init")
    root = ("--root-key", str(tmp_path / "root.key"))
    found = []

    def follow(subscriber):
        for release in subscriber:
            found.append(release.version)
            if release.version == 3:
                return

    with (
        KafkaLog(KafkaOptions(kafka_server.servers)) as log,
        ModelSubscriber(
            kafka_server.servers, model="rotating", public_key=tmp_path / "root.pub", idle_seconds=PATIENCE
        ) as subscriber,
    ):
        maker = LedgerMaker(log, "rotating", SigningKey.load(settings["signing"]))
        maker.root = SigningKey.load(tmp_path / "root.key")
        maker.ledger.keys.pinned = PublicKey.load(tmp_path / "root.pub")

        def publish(version, path):
            maker.follow()
            maker.key = SigningKey.load(Path(path))
            maker.publish(version)

        thread = threading.Thread(target=follow, args=(subscriber,))
        thread.start()
        publish(1, settings["signing"])
        first = streamtopic("keys", "publish", *root)
        rotated = streamtopic("keys", "rotate", *root)
        assert rotated["previous"] == [first["current"]]
        assert {Path(rotated[made]).parent for made in ("private", "list")} == {tmp_path}
        assert not list(Path.cwd().iterdir())
        publish(2, rotated["private"])
        old, settings["signing"] = settings["signing"], rotated["private"]
        revoked = streamtopic("keys", "revoke", first["current"], *root)
        assert (revoked["sequence"], revoked["revoked"]) == (3, [first["current"]])
        maker.follow()
        maker.fork(key=SigningKey.load(old)).publish(3)
        publish(3, rotated["private"])
        thread.join(PATIENCE)
        assert found == [1, 2, 3]
        assert subscriber._ledger.ledger.strays >= 2
