"""A whole service whose keys have many forms: receipts, traces and proofs wait for the older form."""

import json

import pytest

from streamtopic.service.app import Service
from streamtopic.settings import load
from streamtopic.state.residue_ledger import ResidueState, Stage
from streamtopic.streams import Message

WORDS = [["apple", "banana", "cherry", "damson"], ["iron", "copper", "silver", "gold"]]


def key(number, version=1):
    """A key as Connect's JSON converter writes it."""
    return json.dumps({"schema": {"version": version}, "payload": {"id": number}}).encode()


@pytest.fixture
def service(tmp_path, redis_server):
    """An instance with 40 foreign documents and a version."""
    given = {"dir": tmp_path, "redis_url": redis_server.url, "model": f"forms{abs(hash(tmp_path))}", "topics": 2}
    given |= {"min_df": 1, "max_df": 1.0, "max_forget_lag": 0, "capacity_share": 0.5, "residue_max_age": 0}
    with Service(load(given | {"input": '{"format": "debezium", "key": "*", "text": "body"}'})) as made:
        for n in range(40):
            body = " ".join(WORDS[n % 2][(n // 2 + k) % 4] for k in range(3))
            change = {"before": None, "after": {"id": n, "body": body}, "op": "c"}
            made.send([Message(key(n), json.dumps({"schema": {}, "payload": change}).encode())])
        made.settle()
        yield made


def test_receipts_and_traces_wait_for_the_tombstone_of_the_older_key(service):
    """A crash between the deletion and the tombstone leaves no receipt and no finished log; then both follow."""
    request = (("request", b"r-1"), ("salt", b"s" * 20))
    service.send([Message(key(7, version=2), json.dumps({"__deleted": True}).encode(), request)])
    place = service.log.end(service.names.documents, 0) - 1
    assert service.ingests[0].step().records == 1
    assert service.reader.forgets(0).waits_for_other_forms() == place
    service.scheduler.step()
    service.publisher.drain()
    assert service.issue_receipts() == 0
    service.clear_residue(whole=True)
    residue = ResidueState(service.connection, service.settings.model).read()
    assert residue.of(0, Stage.LOG).offset <= place
    settled = service.settle()
    assert settled.receipts == 1
    (receipt,) = service.receipts()
    assert receipt.is_about("7", "s" * 20)
    last = service.log.read(service.names.documents, 0, place + 1)
    assert [(record.key, record.value) for record in last] == [(key(7), None)]
    service.log.compact(service.names.documents)
    service.clear_residue(whole=True)
    residue = ResidueState(service.connection, service.settings.model).read()
    assert residue.of(0, Stage.LOG).offset > place
    assert service.status()["documents"] == 39
    assert service.verify().passed
