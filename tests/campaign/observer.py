"""Looks at a cluster for a campaign: at the log, at everything published, at Redis, and whether it has come to rest."""

import re

from campaign import checks
from campaign.oracle import Oracle
from campaign.people_checks import check_people, open_demands
from campaign.tail import Tail
from campaign.witness import Subscriber, Witness
from streamtopic.errors import ComponentUnreachable, StateError, StreamtopicError
from streamtopic.state import Connection, ModelState, Reader
from streamtopic.state.deletion_requests import DeletionRequests

_DOCUMENTS = re.compile(rb"\{st:[^:]+:(\d+)\}:docs:")
# All people of the stream have names like that.
_PERSON = b"person-"


class Observer:
    """Looks at a cluster from outside; past the proxy, unless Redis is a cluster, whose nodes name the proxy.

    partitions: number of partitions of the documents topic.
    """

    def __init__(self, cluster, partitions):
        self._cluster = cluster
        self._names = cluster.names
        self._partitions = partitions
        self.oracle = Oracle(partitions)
        self.witness = Witness(cluster.public_key, cluster.names.model)
        self._subscribers = [self._subscriber(number) for number in range(2)]
        names = self._names
        ones = (names.requests, names.ledger, names.releases, names.rejected)
        self._tail = Tail(cluster.kafka.servers, {names.documents: partitions, **dict.fromkeys(ones, 1)})
        self._connection = Connection(cluster.redis.url)
        # It carries its counts from round to round by what changed.
        self._follower = self._reader()

    def close(self):
        """Close the connections."""
        self._tail.close()
        for subscriber in self._subscribers:
            subscriber.restart()
        self._connection.close()

    def look(self):
        """Follow the log and the published topics up to their ends, unless the broker is away."""
        try:
            for record in self._tail.read():
                self._take(record)
        except ComponentUnreachable:
            # The broker may be one of the faults; the next look continues where this one stopped.
            return
        for place, offset in self._tail.positions.items():
            if place.topic == self._names.documents:
                self.oracle.reach(place.partition, offset)
        for subscriber in self._subscribers:
            subscriber.poll()

    def restart_subscriber(self):
        """Start one of the subscribers again: it goes on from its file."""
        self._subscribers[1].restart()

    def unrest(self):
        """Return the work that the service still has, as of the last look; [] if it has come to rest."""
        try:
            positions = self._reader().positions()
            state = ModelState.find(self._connection, self._names.model)
            # Without its keys the model has not begun, so it is not at rest either.
            waiting = len(state.outbox()) if state else 1
            # Redis may have been set back to before they ended.
            requests = len(DeletionRequests(self._connection, self._names.model).open())
        except (ComponentUnreachable, StateError) as error:
            return [str(error)]
        books = self.oracle.books
        unread = [
            f"partition {partition} is counted up to {meta.next_offset} of {books[partition].next_offset}"
            for partition, meta in positions.items()
            if meta.next_offset != books[partition].next_offset
        ]
        deletions = {(p, offset) for p, book in enumerate(books) for offset in book.deletions}
        if waiting:
            unread.append(f"{waiting} records wait in the outbox")
        # Some delete a document that has come again since, so they are work although nothing seems to be missing.
        if going_on := max(requests, len(self.oracle.misplaced)):
            unread.append(f"{going_on} requests for deletions have not ended")
        if away := len(self.oracle.missing()):
            unread.append(f"{away} deletions are not yet in the partition of their key")
        if missing := sorted(deletions - self.witness.receipts.keys()):
            unread.append(f"{len(missing)} deletions have no receipt, the first at {missing[0]}")
        published = max(self.witness.entries, default=0)
        if any(max(subscriber.seen, default=0) != published for subscriber in self._subscribers):
            unread.append(f"subscribers have not got version {published}")
        return unread + open_demands(self.oracle, self.witness)[:1]

    def check(self):
        """Make every check, and return the findings."""
        return [
            *self._counts(self._reader()),
            *(f"for a reader that follows: {found}" for found in self._counts(self._follower)),
            *checks.check_documents(self.oracle, self._stored()),
            *checks.check_forwards(self.oracle),
            *checks.check_rejected(self.oracle, self.witness),
            *checks.check_ledger(self.witness),
            *checks.check_receipts(self.oracle, self.witness),
            *checks.check_versions(self.oracle, self.witness),
            *checks.check_subscribers(self.witness, self._subscribers),
            *check_people(self.oracle, self.witness),
            *(f"Redis holds the name of a person in {key}" for key in self._naming_keys()),
        ]

    def _take(self, record):
        headers = tuple((name, value or b"") for name, value in record.headers)
        if record.topic == self._names.documents:
            place = record.partition, record.offset
            self.oracle.take(*place, record.key, record.value, headers, record.timestamp)
        elif record.topic == self._names.requests:
            self.oracle.take_request(record.key, record.value, record.timestamp)
        elif record.topic == self._names.ledger:
            self.witness.take_page(record.value)
        elif record.topic == self._names.releases:
            self.witness.releases.take(record.key, record.value, headers)
        else:
            self.witness.take_rejection(record.value)

    def _reader(self):
        """Return what reads the counts, and has read nothing before."""
        return Reader(self._connection, self._names.model, self._partitions)

    def _counts(self, reader):
        try:
            return checks.check_counts(self.oracle, reader)
        except StreamtopicError as error:
            # A finding like any other: the checks that do not read counts still tell something.
            return [f"the counts cannot be read: {error}"]

    def _stored(self):
        """Return the ids of the documents whose records Redis keeps, by partition."""
        stored = {partition: set() for partition in range(self._partitions)}
        for client, key in self._keys():
            if place := _DOCUMENTS.match(key):
                stored[int(place[1])].update(client.hkeys(key))
        return stored

    def _naming_keys(self):
        """Return the keys whose values hold the name of a person."""
        return sorted(key.decode() for client, key in self._keys() if _PERSON in (client.dump(key) or b""))

    def _keys(self):
        """Yield the model's keys in Redis, each once, with the client of a master that has it."""
        for node in self._cluster.redis.masters():
            # A scan may give a key twice.
            for key in set(node.client.scan_iter(match=f"{{st:{self._names.model}*", count=1000)):
                yield node.client, key

    def _subscriber(self, number):
        progress = self._cluster.folder / f"subscriber-{number}.json"
        keys = {"model": self._names.model, "public_key": self._cluster.public_key}
        return Subscriber(self._cluster.kafka.servers, progress=progress, **keys)
