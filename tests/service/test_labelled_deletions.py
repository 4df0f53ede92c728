"""Deleting by label: all documents that carry it now go, and the counts are those of a model that never saw them."""

import itertools
import time
from contextlib import ExitStack

import numpy as np
import pytest

from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.instance import provision
from streamtopic.service.requests.labelled_deletions import documents_with_label
from streamtopic.settings import Settings
from streamtopic.signed import SigningKey

PARTITIONS = 3
_numbers = itertools.count()


def documents():
    """Documents of two sections; some have no label, and some have one of another task."""
    labels = [{"section": "sport"}, {"section": "news", "place": "sport"}, {}]
    return [Document(f"doc-{n}", f"word{n % 5} other{n % 3} more", labels[n % 3]) for n in range(30)]


@pytest.fixture(params=["embedded", "kafka"])
def opened(request, tmp_path):
    """Open services, each with a model and topics of its own."""
    stack = ExitStack()

    def open_one():
        name = f"labelled{next(_numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        if request.param == "embedded":
            settings = Settings(dir=folder, model=name, partitions=PARTITIONS)
        else:
            public = folder / "signing.pub"
            public.write_text(str(SigningKey.generate(name).public))
            servers = request.getfixturevalue("kafka_server").servers
            url = request.getfixturevalue("redis_server").url
            settings = Settings(model=name, kafka=servers, redis_url=url, partitions=PARTITIONS, public_key=public)
        service = stack.enter_context(Service(settings))
        provision(service.log, service.names, PARTITIONS, service.topic_settings)
        return service

    with stack:
        yield open_one


def count(service):
    """Count the log, and return the digest of all counts."""
    for partition in range(PARTITIONS):
        arguments = (service.connection, service.log, service.names, partition)
        ingest = Ingest.open(*arguments, settings=service.fixed, clock=time.time, ahead=False)
        list(ingest.drain())
    counts = service.reader.counts()
    keep = np.flatnonzero(counts.frequency)
    words = [counts.words[n] for n in keep]
    return counts.restrict(keep).digest(words), counts.documents


def test_what_carries_a_label_goes_by_one_request(opened):
    """All partitions are asked, one request names all deletes, and a twin without these documents counts the same."""
    service, twin = opened(), opened()
    service.add(documents())
    count(service)
    found = documents_with_label(service.reader, "section", "sport")
    assert sorted(found) == sorted(f"doc-{n}" for n in range(0, 30, 3))
    received = service.door.receive(found)
    assert received.request.documents == 10
    lease = service.state.acquire("test", 60_000)
    assert service.request_mover.step(lease).sent == 1
    twin.add([document for document in documents() if document.id not in found])
    assert count(service) == count(twin)
    assert count(service)[1] == 20
