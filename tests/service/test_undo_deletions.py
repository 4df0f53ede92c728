"""Undo brings back what was a document, and nothing that was refused as one."""

from dataclasses import replace
from itertools import count

import pytest

from streamtopic.documents.events import encode_add, encode_delete, encode_delete_subject
from streamtopic.service.app import Service
from streamtopic.service.requests.undo_deletions import undo
from streamtopic.settings import load
from streamtopic.signed import new_secret, request_digest
from streamtopic.state.deletion_requests import RequestState
from streamtopic.streams import Message, partition_of

PARTITIONS = 2
ALL = dict.fromkeys(range(PARTITIONS), 0)
_numbers = count()


@pytest.fixture
def service(tmp_path, redis_server):
    """A service of two partitions with a key of suppressions; nobody counts its documents."""
    new_secret(tmp_path / "suppression.key")
    given = {"dir": tmp_path / "instance", "redis_url": redis_server.url, "model": f"undo{next(_numbers)}"}
    with Service(load(given | {"partitions": PARTITIONS, "suppression_key": tmp_path / "suppression.key"})) as made:
        yield made


def restored(service):
    """Undo all deletes; ids that came back."""
    return sorted(undo(service, ALL, append=True, update=lambda *_: None).restored)


def test_a_document_in_a_wrong_partition_is_not_written_there_again(service):
    """Its add was refused: once more, it would remove the document that stands where it belongs."""
    home = partition_of(b"a", PARTITIONS)
    service.send([encode_add("a", text="in its place")])
    service.log.append_many(service.names.documents, [Message(b"a", encode_add("a", text="not").value, (), 1 - home)])
    service.log.append_many(service.names.documents, [Message(b"a", None, (), 1 - home)])
    service.send([Message(b"a", None)])
    end = service.log.end(service.names.documents, 1 - home)
    assert restored(service) == ["a"]
    assert service.log.end(service.names.documents, 1 - home) == end
    assert service.log.read(service.names.documents, home, 0)[-1].value is not None


def test_an_add_that_was_refused_as_suppressed_does_not_come_back_after_a_lift(service):
    """It was never a document. What was one before comes back, unless a request asked for its end."""
    received = service.door.receive(["asked"])
    request = received.request
    service.door.requests.move(request, request.moved(RequestState.SENDING, 1))
    service.send([encode_add("asked", text="first"), encode_add("plain", text="first")])
    service.send([encode_delete("asked", request.id, received.salt.encode())])
    names = ["asked", "plain", "new"]
    service.suppress(names, [])
    service.send([encode_add(name, text="sent again") for name in names])
    service.send([Message(name.encode(), None, (("st-suppressed", b"1"),)) for name in names])
    service.suppress(names, [], suppressed=False)
    assert restored(service) == ["plain"]
    partition = partition_of(b"plain", PARTITIONS)
    newest = service.log.read(service.names.documents, partition, 0)[-1]
    assert newest.value == encode_add("plain", text="first").value


@pytest.mark.parametrize("state", [RequestState.SENDING, RequestState.COMPLETED])
def test_a_foreign_delete_under_the_id_of_a_request_is_undone(service, state):
    """Whoever writes deletes may name any request; only those with its salt were asked for."""
    received = service.door.receive(["asked"])
    salt = received.salt.encode()
    digest = request_digest(received.request.id, salt) if state is RequestState.COMPLETED else ""
    service.door.requests.move(received.request, replace(received.request.moved(state, 1), digest=digest))
    service.send([encode_add(name, text="first") for name in ("asked", "mine", "yours")])
    service.send([encode_delete("asked", received.request.id, salt)])
    service.send([encode_delete("mine", received.request.id, b"another salt of somebody")])
    service.send([encode_delete("yours", received.request.id)])
    assert restored(service) == ["mine", "yours"]


def test_a_foreign_delete_beside_a_forgotten_person_is_undone(service):
    """A request to forget a person, still open, protects its own deletes alone."""
    salt = b"a salt of the requester"
    service.send([encode_add("asked", text="first", subjects=["ann"]), encode_add("mine", text="first")])
    service.send(encode_delete_subject("ann", "r-1", salt, PARTITIONS))
    for ingest in service.ingests:
        ingest.step()
    service.send([encode_delete("asked", "r-1", salt), encode_delete("mine", "r-1", b"another salt of somebody")])
    assert restored(service) == ["mine"]
