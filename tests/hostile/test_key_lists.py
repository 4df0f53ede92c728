"""Keys that are replaced, and keys that are stolen, while a subscriber runs."""

import json
import threading
from pathlib import Path

from ledger_maker import LedgerMaker
from streamtopic.cli import main
from streamtopic.client import ModelSubscriber
from streamtopic.signed import (
    PublicKey,
    SigningKey,
)
from streamtopic.streams import KafkaLog, KafkaOptions
from waiting import PATIENCE


def test_keys_change_while_a_subscriber_waits_at_a_broker(kafka_server, redis_server, tmp_path, capsys, monkeypatch):
    """`keys publish`, `rotate` and `revoke` reach a subscriber that runs, which knows the root key from the start.

    The new key is in the folder of the old one, in whatever folder the command was given.
    """
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    service = [
        "--set", "model=rotating", "--set", f"kafka={kafka_server.servers}", "--set", f"redis_url={redis_server.url}",
        "--set", f"keys={tmp_path}", "--json",
    ]  # fmt: skip
    signing = tmp_path / "signing.key"

    def streamtopic(*arguments):
        capsys.readouterr()
        assert main([*arguments, *service]) == 0
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
        maker = LedgerMaker(log, "rotating", SigningKey.load(signing))
        maker.root = SigningKey.load(tmp_path / "root.key")
        maker.ledger.keys.pinned = PublicKey.load(tmp_path / "root.pub")

        def publish(version):
            maker.follow()
            maker.key = SigningKey.load(signing)
            maker.publish(version)

        thread = threading.Thread(target=follow, args=(subscriber,))
        thread.start()
        publish(1)
        first = streamtopic("keys", "publish", *root)
        rotated = streamtopic("keys", "rotate", *root)
        assert rotated["previous"] == [first["current"]]
        assert {Path(rotated[made]).parent for made in ("private", "list")} == {tmp_path}
        assert not list(Path.cwd().iterdir())
        publish(2)
        revoked = streamtopic("keys", "revoke", first["current"], *root)
        assert (revoked["sequence"], revoked["revoked"]) == (3, [first["current"]])
        maker.follow()
        maker.fork(key=SigningKey.load(tmp_path / f"signing-{first['current']}.key")).publish(3)
        publish(3)
        thread.join(PATIENCE)
        assert found == [1, 2, 3]
        assert subscriber._ledger.ledger.strays >= 2
