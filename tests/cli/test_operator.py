"""What an operator does with an instance, one story after the demo: look, ask, take away, check, make anew."""

import json
import re
import shutil

import pytest

from crashes import skip_records
from streamtopic.cli import main
from streamtopic.client import DocumentProducer
from streamtopic.local import LocalRedis
from streamtopic.state import Connection
from streamtopic.state.connection import ModelKeys
from streamtopic.streams import FileLog, Message


def meta_of(instance, change):
    """Let `change` work on the instance's Redis, given a connection and the keys of its partition."""
    with LocalRedis(instance / "redis") as redis, Connection(redis.url) as connection:
        return change(connection, ModelKeys("default").partition(0))


def test_init_makes_an_instance_and_changes_nothing_the_second_time(program, tmp_path):
    """Safe to repeat, and it says what it found."""
    for action in ("made", "found"):
        status, out, err = program("init", "--dir", tmp_path / "new", "--json")
        assert status == 0, err
        found = json.loads(out)
        assert found["state"] == {"action": action, "partitions": 1, "cap": 256}
        assert len(found["topics"]) == 5
    status, out, _ = program("init", "--dir", tmp_path / "new")
    assert status == 0
    assert re.search(r"default\.documents +found +1 ", out)


def test_a_healthy_instance_passes_the_doctor(on, program, instance):
    """Every line is ok, and it is also readable."""
    found = on("doctor")
    assert found["passed"] is True
    assert {finding["passed"] for finding in found["findings"]} == {True}
    looked_at = {finding["name"] for finding in found["findings"]}
    assert {"signing.key", "noise.key", "receipt.key", "signing.pub", "redis", "eviction", "persistence", "clock",
            "default.documents", "ledger", "alive", "state", "partition 0"} <= looked_at  # fmt: skip
    status, out, _ = program("doctor", "--dir", instance)
    assert status == 0
    assert all(line.startswith("ok ") for line in out.splitlines())


def _unreadable(instance):
    (instance / "keys" / "noise.key").chmod(0o644)


def _other_public(instance):
    (instance / "keys" / "signing.pub").unlink()
    shutil.rmtree(instance.parent / "other", ignore_errors=True)
    assert main(["keys", "new", "--to", str(instance.parent / "other")]) == 0
    shutil.copy(instance.parent / "other" / "signing.pub", instance / "keys" / "signing.pub")


def _other_name(instance):
    for name in ("signing.key", "signing.pub"):
        (instance / "keys" / name).unlink()
    assert main(["keys", "new", "--name", "example.org/news", "--to", str(instance.parent / "news")]) == 0
    for name in ("signing.key", "signing.pub"):
        shutil.copy(instance.parent / "news" / name, instance / "keys" / name)


def _gap(instance):
    """Let the ledger lose its first page, whose records are a draft and a checkpoint."""
    with FileLog(instance / "log") as log:
        records = log.read("default.ledger", 0, 0)
        log.remove("default.ledger")
        log.create("default.ledger", 1, {})
        log.append_many("default.ledger", [Message(None, record.value, partition=0) for record in records[2:]])
    shutil.rmtree(instance / "redis")


def _ahead(instance):
    meta_of(instance, lambda connection, keys: skip_records(connection, keys, 1000))


def _other_partitions(instance):
    settings = instance / "streamtopic.toml"
    settings.write_text('learner = "paper"\n' + settings.read_text())


@pytest.mark.parametrize(
    ("spoil", "name", "remedy"),
    [
        (_unreadable, "instance", "chmod 600"),
        (_other_public, "signing.pub", "signing.pub"),
        (_other_name, "instance", "--name example.org/default"),
        (_gap, "ledger", "backup"),
        (_ahead, "partition 0", "rebuild"),
        (_other_partitions, "state", "rebuild"),
    ],
)
def test_the_doctor_finds_what_is_wrong(on, instance, spoil, name, remedy):
    """Status 1, and the finding says what to change."""
    spoil(instance)
    found = on("doctor", status=1)
    (failed,) = [finding for finding in found["findings"] if finding["passed"] is False]
    assert failed["name"] == name
    assert remedy in failed["detail"] + failed["remedy"]


def test_a_receipt_is_found_by_request_and_by_id(on, program, instance):
    """What `delete` printed leads to the receipt, and so does the receipt's own id."""
    request = on("delete", "doc-9")["requests"][0]["id"]
    (found,) = on("receipt", request)["receipts"]
    assert found["found"] is True
    assert on("receipt", found["id"])["receipts"] == [found]
    status, out, _ = program("receipt", request, "--dir", instance)
    assert status == 0
    assert found["id"] in out
    with DocumentProducer(instance / "log", model="default") as producer:
        mine, _ = [producer.delete(document, "ticket-7") for document in ("doc-10", "nobody")]
    on("unlearn", "--retrain")
    assert [one["found"] for one in on("receipt", "ticket-7")["receipts"]] == [False, True]
    assert len(on("receipt", "ticket-7", "--salt", mine.salt, "--document", "doc-10")["receipts"]) == 1
    on("receipt", "ticket-7", "--salt", mine.salt, "--document", "doc-11", status=1)
    assert "has 2 receipts, and a file proves one" in on("receipt", "ticket-7", "--proof", "which", status=2)
    said = on("receipt", "doc-9", status=1)
    assert "no receipt for request doc-9" in said
    assert "not the id of a document" in said


def test_a_receipt_can_be_checked_elsewhere(on, program, instance, tmp_path):
    """Its file verifies with the public key alone, and says what it is about to a reader who has the salt."""
    request = on("delete", "doc-9")["requests"][0]
    file, key = tmp_path / "doc-9.tlog-proof", instance / "keys" / "signing.pub"
    (shown,) = on("receipt", request["id"], "--salt", request["salt"], "--proof", file)["receipts"]
    assert file.stat().st_size < 2_000
    for folder in ("log", "redis"):
        shutil.rmtree(instance / folder)
    salted = ("--document", "doc-9", "--salt", request["salt"])

    def verify(*arguments):
        status, out, err = program("verify", file, "--key", key, *arguments, "--json")
        return status, json.loads(out) if out else err

    status, found = verify(*salted)
    assert (status, found["passed"], found["id"]) == (0, True, shown["id"])
    assert verify()[0] == 0
    assert verify("--document", "doc-8", "--salt", request["salt"])[0] == 1
    assert verify("--document", "doc-9")[0] == 2
    status, out, _ = program("verify", file, "--key", key.read_text().strip())
    assert (status, out.count("ok ")) == (0, 2)
    text = file.read_text()
    for changed in (text.replace("index ", "index 1"), text.replace("extra ", "extra A"), text[:-5], "nonsense"):
        file.write_text(changed)
        assert verify()[0] == 1
    other = tmp_path / "other"
    assert program("keys", "new", "--to", other)[0] == 0
    file.write_text(text)
    assert program("verify", file, "--key", other / "signing.pub")[0] == 1


def test_a_proof_that_does_not_verify_is_given_to_nobody(on, tmp_path, monkeypatch):
    """If the index in Redis has wrong hashes, the command fails and leaves no file."""
    monkeypatch.setattr("streamtopic.signed.ledger_reader.inclusion_path", lambda *_: [bytes(32)])
    assert "do not rely on this" in on("receipt", "default/0/600", "--proof", tmp_path / "one.tlog-proof", status=1)
    assert not (tmp_path / "one.tlog-proof").exists()


def test_refused_records_are_listed(on, program, instance):
    """The list shows place and reason, never the text, and names nothing that a record could do to a terminal."""
    with FileLog(instance / "log") as log:
        log.append_many(
            "default.documents",
            [
                Message(b"bad-1", b'{"op": "add", "text": 7, "note": "s3cret"}'),
                Message(b"bad-2", b"not an event"),
                Message(b"bad\x1b[31m", b"not an event"),
                Message(b"good", b'{"op": "add", "text": "some words"}'),
            ],
        )
    assert on("unlearn")["ingested"]["rejected"] == 3
    found = on("rejected")
    assert found["rejected"] == 3
    assert found["reasons"] == {"format": 2, "text-type": 1}
    assert [newest["document"] for newest in found["newest"][-2:]] == ["bad-2", "bad\x1b[31m"]
    assert "s3cret" not in json.dumps(found)
    assert on("rejected", "--last", 1)["newest"] == found["newest"][-1:]
    shown = program("rejected", "--dir", instance)[1]
    assert shown.count("bad-1") == 1
    assert "\x1b" not in shown
    assert on("verify")["passed"] is True


def test_verify_says_what_a_compacted_log_cannot_tell(on, instance):
    """Versions without the deleted documents are compared; one that holds a document that is gone is not."""
    with FileLog(instance / "log") as log:
        assert log.compact("default.documents") > 0
    assert all(check["passed"] for check in on("verify")["checks"])
    with DocumentProducer(instance / "log", model="default") as producer:
        producer.delete("doc-14")
    on("delete", "nobody", "--set", "max_forget_lag=86400")
    with FileLog(instance / "log") as log:
        assert log.compact("default.documents") > 0
    found = on("verify")
    assert found["passed"] is True
    opened = {check["name"]: check for check in found["checks"] if check["passed"] is None}
    assert opened.keys() == {"deletions", "version"}
    assert "documents: the log has erased" in opened["version"]["detail"]
    on("verify", "--strict", status=1)
    on("unlearn", "--retrain")
    assert all(check["passed"] for check in on("verify")["checks"])
