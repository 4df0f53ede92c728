"""Looks at a cluster for a campaign: at the log, at everything published, at Redis, and whether it has come to rest."""

import re

from campaign import checks
from campaign.oracle import Oracle
from campaign.tail import TopicTail
from campaign.witness import Subscriber, Witness
from streamtopic.client import ModelSubscriber
from streamtopic.errors import ComponentUnreachable, StateError, StreamtopicError
from streamtopic.state import Connection, ModelState, Reader
from streamtopic.state.deletion_requests import DeletionRequests

_DOCUMENTS = re.compile(rb"\{st:[^:]+:(\d+)\}:docs:")
# All people of the stream have names like that.
_PERSON = b"person-"


def stored_documents(client, model, partitions):
    """Return the ids of the documents whose records Redis keeps, by partition."""
    found = {partition: set() for partition in range(partitions)}
    for key in client.scan_iter(match=f"{{st:{model}:*}}:docs:*", count=1000):
        if place := _DOCUMENTS.match(key):
            ids = client.hkeys(key)
            found[int(place[1])].update(ids)
    return found


def naming_keys(clients, model):
    """Return the keys of a model whose values hold the name of a person."""
    keys = {(client, key) for client in clients for key in client.scan_iter(match=f"{{st:{model}*", count=1000)}
    return sorted(key.decode() for client, key in keys if _PERSON in (client.dump(key) or b""))


class Observer:
    """Looks at a cluster from outside; past the proxy, unless Redis is a cluster, whose nodes name the proxy.

    partitions: number of partitions of the documents topic.
    """

    def __init__(self, cluster, partitions):
        self.oracle = Oracle(partitions)
        self.witness = Witness(cluster.kafka.servers, cluster.names, cluster.public_key)
        self.subscribers = [self._subscriber(cluster, 0), self._subscriber(cluster, 1)]
        self._cluster = cluster
        self._tail = TopicTail(cluster.kafka.servers, cluster.names.documents, partitions)
        self._requests = TopicTail(cluster.kafka.servers, cluster.names.requests, 1)
        self._connection = Connection(cluster.redis.url)
        self._partitions = partitions
        self._follower = self.reader

    def __enter__(self):
        return self

    def __exit__(self, kind, error, at):
        self._tail.close()
        self._requests.close()
        self.witness.close()
        for subscriber in self.subscribers:
            subscriber.restart()
        self._connection.close()

    @property
    def reader(self):
        """Reads the counts, and has read nothing before."""
        return Reader(self._connection, self._cluster.names.model, self._partitions)

    def look(self):
        """Follow the log and the published topics up to their ends, unless the broker is away."""
        try:
            for record in self._tail.read():
                self.oracle.take(
                    record.partition, record.offset, record.key, record.value, record.headers, record.time_ms
                )
            for partition, offset in self._tail.positions.items():
                self.oracle.reach(partition, offset)
            for record in self._requests.read():
                self.oracle.take_request(record.key, record.value, record.time_ms)
            self.witness.read()
        except ComponentUnreachable:
            # The broker may be one of the faults; the next look continues where this one stopped.
            return
        for subscriber in self.subscribers:
            subscriber.poll()

    def unrest(self):
        """Return the work that the service still has, as of the last look; [] if it has come to rest."""
        try:
            positions = self.reader.positions()
            state = ModelState.find(self._connection, self._cluster.names.model)
            # Without its keys the model has not begun, so it is not at rest either.
            waiting = len(state.outbox()) if state else 1
            # Redis may have been set back to before they ended.
            requests = len(DeletionRequests(self._connection, self._cluster.names.model).open())
        except (ComponentUnreachable, StateError) as error:
            return [str(error)]
        books = self.oracle.books
        unread = [
            f"partition {partition} is counted up to {meta.next_offset} of {books[partition].next_offset}"
            for partition, meta in positions.items()
            if meta.next_offset != books[partition].next_offset
        ]
        deletions = {(p, offset) for p, book in enumerate(books) for offset in book.deletions}
        missing = sorted(deletions - self.witness.receipts.keys())
        if waiting:
            unread.append(f"{waiting} records wait in the outbox")
        # Some delete a document that has come again since, so they are work although nothing seems to be missing.
        if going_on := max(requests, len(self.oracle.misplaced)):
            unread.append(f"{going_on} requests for deletions have not ended")
        if away := len(self.oracle.missing()):
            unread.append(f"{away} deletions are not yet in the partition of their key")
        if missing:
            unread.append(f"{len(missing)} deletions have no receipt, the first at {missing[0]}")
        published = max(self.witness.entries, default=0)
        if any(max(subscriber.seen, default=0) != published for subscriber in self.subscribers):
            unread.append(f"subscribers have not got version {published}")
        return unread

    def check(self):
        """Make every check, and return the findings."""
        # The other one has carried its counts from round to round by what changed.
        model = self._cluster.names.model
        followed = [f"for a reader that follows: {found}" for found in self._counts(self._follower)]
        return [
            *self._counts(self.reader),
            *followed,
            *checks.check_documents(self.oracle, self.stored()),
            *checks.check_forwards(self.oracle),
            *checks.check_rejected(self.oracle, self.witness),
            *checks.check_ledger(self.witness),
            *checks.check_receipts(self.oracle, self.witness),
            *checks.check_versions(self.oracle, self.witness),
            *checks.check_subscribers(self.witness, self.subscribers),
            *(f"Redis holds the name of a person in {key}" for key in naming_keys(self._cluster.redis.masters, model)),
        ]

    def _counts(self, reader):
        try:
            return checks.check_counts(self.oracle, reader)
        except StreamtopicError as error:
            # A finding like any other: the checks that do not read counts still tell something.
            return [f"the counts cannot be read: {error}"]

    def stored(self):
        """Return the ids of the documents whose records Redis keeps, by partition."""
        stored = {partition: set() for partition in range(self._partitions)}
        for client in self._cluster.redis.masters:
            for partition, ids in stored_documents(client, self._cluster.names.model, self._partitions).items():
                stored[partition] |= ids
        return stored

    @staticmethod
    def _subscriber(cluster, number):
        def start(progress):
            return ModelSubscriber(
                cluster.kafka.servers,
                model=cluster.names.model,
                public_key=cluster.public_key,
                progress=progress,
            )

        return Subscriber(start, cluster.folder / f"subscriber-{number}.json")
