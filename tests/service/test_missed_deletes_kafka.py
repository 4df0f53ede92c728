"""Kafka really erases deletes in time; who missed them finds out from what the log still holds."""

import time

import numpy as np

from kafka_topics import HASTY, until_compacted
from streamtopic.counts import Weighting
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.service.ingest.missed_deletes import delete_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ModelSettings, Reader
from streamtopic.streams import TopicNames, open_log

DAY_MS = 86_400_000


def test_deletes_that_kafka_has_erased_are_made_up_for(kafka_server, connection):
    """Counts end as those of a log from which documents and their deletes have vanished."""
    names = TopicNames("sweepkafka")
    log, _ = open_log(kafka_server.servers)
    with log:
        log.create(names.documents, 1, HASTY | {"delete.retention.ms": "1"})
        log.create(names.rejected, 1)
        ingest = Ingest.open(connection, log, names, 0, settings=ModelSettings(1, 256), clock=time.time)
        log.append_many(names.documents, [encode_add(f"d{n}", counts={"x": 2, f"w{n}": 1}) for n in range(50)])
        list(ingest.drain())
        log.append_many(names.documents, [encode_delete(f"d{n}", "r") for n in range(20)])
        _await_erased(log, names.documents)
        # As after a takeover: the writer of before may have read a delete ahead while it was still there.
        ingest = Ingest.open(connection, log, names, 0, settings=ModelSettings(1, 256), clock=time.time)
        deleted = delete_missed_if_due(ingest, log, int(time.time() * 1000) + 20 * DAY_MS, 30 * DAY_MS)
        assert deleted == 20
        list(ingest.drain())
        end = ingest.state.meta.next_offset
        found = documents_in_log(log, names.documents, {0: end}, lambda *_: None)
    assert len(found.alive) == 30
    assert not found.whole
    fresh = found.recount(Weighting())
    counts = Reader(connection, names.model, 1).counts()
    counted = counts.restrict(np.arange(len(counts.words)))
    assert counted.digest(counts.words) == fresh.cooccurrence.digest(fresh.words)


def _await_erased(log, topic):
    """Wait until no record of the first 20 documents is left."""
    gone = {b"d%d" % n for n in range(20)}

    def erased():
        held, offset = set(), log.begin(topic, 0)
        while page := log.read(topic, 0, offset):
            held |= {record.key for record in page}
            offset = page[-1].next_offset
        return not held & gone

    until_compacted(log, topic, erased)
