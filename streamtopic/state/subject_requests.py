"""Requests to forget a subject, as Redis holds them until the receipt that covers their documents is published.

A partition has one hash: the name of each request (`subjects.request_name`) to the request, and under SECRET the secret
that subjects are digested with. The hash outlives a rebuild, so that the digests stay the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgpack

from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import DROP_SUBJECT_REQUEST
from streamtopic.subjects import record_key, subject_digest

__all__ = ["SECRET", "SubjectRequest", "SubjectRequests", "read_requests", "split", "unfinished"]

SECRET = b"secret"
"""The field of the hash that is no request."""


@dataclass(frozen=True, slots=True)
class SubjectRequest:
    """A request to forget a subject. Times are milliseconds since 1970.

    name: of the request, the same in every partition.
    digest: of the subject, under the secret of the partition.
    request: request id; "" without one.
    salt: of the requester; b"" without one.
    offset: of its record in this partition.
    received_ms: time of its record.
    trace: W3C `traceparent` of the request; b"" without one.
    closed: offset of the tombstone of its record, -1 as long as that was not counted. Of a request that is done: the
        last offset that was counted by then, so that all its deletions lie between `offset` and here.
    done: whether no document of the subject was left once the tombstone was counted.
    """

    name: bytes
    digest: bytes
    request: str
    salt: bytes
    offset: int
    received_ms: int
    trace: bytes = b""
    closed: int = -1
    done: bool = False

    @property
    def key(self) -> bytes:
        """The key of its record in the documents topic."""
        return record_key(self.name)

    def pack(self) -> bytes:
        """Return the value of its field."""
        fields = [self.digest, self.request, self.salt, self.offset, self.received_ms, self.trace]
        return bytes(msgpack.packb([*fields, self.closed, self.done]))

    @classmethod
    def unpack(cls, name: bytes, value: bytes) -> "SubjectRequest":
        """Undo `pack`. Raises StateCorrupt."""
        try:
            return cls(name, *msgpack.unpackb(value))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(
                f"a request to forget a subject cannot be read ({error}): run `streamtopic rebuild`"
            ) from None


def read_requests(fields: Mapping[bytes, bytes]) -> dict[bytes, SubjectRequest]:
    """Return the requests in a partition's hash by name, the oldest first. Raises StateCorrupt."""
    found = [SubjectRequest.unpack(name, value) for name, value in fields.items() if name != SECRET]
    found.sort(key=lambda request: request.offset)
    return {request.name: request for request in found}


class SubjectRequests:
    """The requests of all partitions of a model, for those who do not write the partitions.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self._connection = connection
        keys = ModelKeys(model)
        self._partitions = [keys.partition(partition) for partition in range(partitions)]
        self._keys = [partition.subject_requests for partition in self._partitions]

    def read(self) -> dict[int, dict[bytes, SubjectRequest]]:
        """Return partition to its requests by name, the oldest first. Raises StateCorrupt."""
        answers = self._connection.batch([("HGETALL", key) for key in self._keys])
        return {partition: read_requests(fields) for partition, fields in enumerate(answers)}

    def documents(self, subject: str) -> int:
        """Return the number of live documents of a subject, as far as the partitions have counted."""
        found = 0
        for partition in self._partitions:
            secret = self._connection.call("HGET", partition.subject_requests, SECRET)
            if secret is None:
                continue
            digest = subject_digest(subject, secret)
            index = partition.subjects(partition.bucket(digest))
            found += int(self._connection.call("ZLEXCOUNT", index, b"[" + digest, b"(" + digest + b"\xff"))
        return found

    def drop(self, partition: int, requests: Iterable[SubjectRequest]) -> None:
        """Remove requests of a partition that are done; one that was asked again meanwhile stays."""
        for request in requests:
            self._connection.script(DROP_SUBJECT_REQUEST, [self._keys[partition]], [request.name, request.pack()])


def unfinished(requests: Mapping[int, Mapping[bytes, SubjectRequest]]) -> list[SubjectRequest]:
    """Return the requests that are not done in every partition, from each partition that has counted them.

    requests: partition to its requests by name, of all partitions. A partition that lacks one has not counted it yet.
    """
    found = list[SubjectRequest]()
    for same in _by_name(requests).values():
        if len(same) < len(requests) or not all(request.done for request in same.values()):
            found += same.values()
    return found


def split(requests: Mapping[int, Mapping[bytes, SubjectRequest]], cut: Mapping[int, int]) -> list[SubjectRequest]:
    """Return the requests of which a version may reflect a part: their records, and not all their deletions.

    requests: as of `unfinished`.
    cut: partition to the first offset that the version does not reflect.
    """
    found = list[SubjectRequest]()
    for same in _by_name(requests).values():
        begun = any(request.offset < cut.get(partition, 0) for partition, request in same.items())
        ended = [request.done and request.closed < cut.get(partition, 0) for partition, request in same.items()]
        if begun and not (all(ended) and len(same) == len(requests)):
            found += same.values()
    return found


def _by_name(requests: Mapping[int, Mapping[bytes, SubjectRequest]]) -> dict[bytes, dict[int, SubjectRequest]]:
    """Return each name with the request that each partition has under it."""
    found: dict[bytes, dict[int, SubjectRequest]] = {}
    for partition, of_partition in requests.items():
        for name, request in of_partition.items():
            found.setdefault(name, {})[partition] = request
    return found
