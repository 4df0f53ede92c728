"""A requester finds their own receipt and can prove it; others neither hide it nor find out whose it is."""

import json

import pytest

from appending import append
from embedded_service import Service
from streamtopic.cli import main
from streamtopic.client import DocumentProducer, Receipts, verify_receipt
from streamtopic.errors import InvalidRelease
from streamtopic.settings import load


@pytest.fixture(scope="module")
def service(kafka_server, redis_server, tmp_path_factory):
    """A service on real Kafka and Redis, with a version of forty documents."""
    name, tmp_path = "subjects", tmp_path_factory.mktemp("subjects")
    main(["keys", "new", "--name", f"example.org/{name}", "--to", str(tmp_path / "keys")])
    file = tmp_path / "streamtopic.toml"
    file.write_text(
        f'model = "{name}"\nkafka = "{kafka_server.servers}"\nredis_url = "{redis_server.url}"\npartitions = 1\n'
        "topics = 2\nmin_df = 1\nmax_df = 1.0\nmax_forget_lag = 0.0\n"
        'keys = "keys"\n'
    )
    assert main(["init", "--config", str(file)]) == 0
    words = [["apple", "pear", "plum", "fig", "lime"], ["iron", "zinc", "lead", "tin", "gold"]]
    with Service(load(config=file)) as made:
        with DocumentProducer(kafka_server.servers, model=name) as producer:
            producer.add_many((f"d{n}", " ".join(words[n % 2][(n // 2 + k) % 5] for k in range(4))) for n in range(40))
        made.settle()
        yield made, file


def test_a_request_id_used_twice_hides_no_receipt(service, capsys):
    """Each of two producers finds the receipt of its own delete, and the operator sees both."""
    made, file = service
    with DocumentProducer(made.log, model=made.settings.model) as producer:
        mine, theirs = producer.delete("d3", "ticket-7"), producer.delete("nobody", "ticket-7")
    made.settle()
    assert main(["receipt", "ticket-7", "--proof", str(file.parent / "which"), "--config", str(file)]) == 2
    assert "has 2 receipts, and a file proves one" in capsys.readouterr().err
    append(made.log, made.names.documents, b"d4", None, (("request", b"ticket-7"),), 0)
    made.settle()
    with Receipts(made.log, model=made.settings.model, public_key=made.keys) as receipts:
        ((own,), (other,)) = receipts.find(mine), receipts.find(theirs)
        assert (own.found, other.found) == (True, False)
        assert own.is_about("d3", mine.salt)
        assert not other.is_about("d3", mine.salt)
        assert not own.is_about("d3", theirs.salt)
        assert receipts.find("ticket-7") == []
        proof = receipts.proof(own)
    assert verify_receipt(proof, made.keys, document="d3", salt=mine.salt) == own
    for document, salt in (("d4", mine.salt), ("d3", theirs.salt)):
        with pytest.raises(InvalidRelease, match="not about this document"):
            verify_receipt(proof, made.keys, document=document, salt=salt)
    capsys.readouterr()
    assert main(["receipt", "ticket-7", "--config", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    # In the order of the ledger: what was not there needs no new version.
    assert [one["found"] for one in shown["receipts"]] == [False, True, True]
    assert [one["id"] for one in shown["receipts"]][:2] == [other.id, own.id]
    for arguments in (["--salt", mine.salt, "--document", "d3"], ["--document", "d4"]):
        assert main(["receipt", "ticket-7", *arguments, "--config", str(file), "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["receipts"]) == 1
    assert main(["receipt", "ticket-7", "--salt", mine.salt, "--document", "d4", "--config", str(file)]) == 1
