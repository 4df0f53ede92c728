"""Nobody but its owner reads what an instance in a folder, a local Redis or a local Kafka holds."""

import json
import os
import stat

import pytest

from embedded_service import two_topics
from streamtopic.cli import main
from streamtopic.local import LocalKafka, LocalRedis
from streamtopic.streams import KafkaOptions, Message, open_log


@pytest.fixture(autouse=True)
def _careless_umask():
    """The widest one: whatever is closed is closed by the program."""
    before = os.umask(0)
    yield
    os.umask(before)


def _open(folder):
    """What others may do something with, below a folder and with it."""
    paths = [folder, *folder.rglob("*")]
    return [str(path.relative_to(folder)) for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_an_instance_is_closed_and_one_that_was_open_is_closed_at_the_start(tmp_path, capsys, caplog):
    """After a real run with all that it writes; then everything is opened, as by an earlier version or a copy."""
    folder, corpus = tmp_path / "instance", tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": one.id, "text": one.text}) for one in two_topics(0, 40)), "utf-8")
    demo = f"demo --documents {corpus} --topics 2 --delete 2 --json --set min_df=1 --set max_df=1 --keep {folder}"
    assert main(demo.split()) in {0, 1}
    assert (folder / "redis" / "appendonly.aof").exists()
    assert _open(folder) == []
    for path in [folder, *folder.rglob("*")]:
        # A secret key that was open is refused, not closed: the doctor's tests show it.
        if path.suffix not in {".pem", ".key"}:
            path.chmod(0o777 if path.is_dir() else 0o666)
    assert main(["status", "--dir", str(folder), "--json"]) == 0
    assert _open(folder) == []
    assert "were open to other users" in caplog.text


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    """Closing a folder changes nothing outside of it."""
    outside = tmp_path / "outside"
    outside.write_text("x", encoding="utf-8")
    outside.chmod(0o644)
    folder = tmp_path / "redis"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    with LocalRedis(folder):
        assert stat.S_IMODE(outside.stat().st_mode) == 0o644


@pytest.mark.slow
def test_the_data_of_a_local_kafka_is_closed():
    """Its log of documents, its settings and its own log."""
    with LocalKafka() as server:
        log, _ = open_log(KafkaOptions(server.servers))
        with log:
            log.create("documents", 1, {})
            log.append_many("documents", [Message(b"a", b"secret")])
        assert _open(server._temporary) == []
