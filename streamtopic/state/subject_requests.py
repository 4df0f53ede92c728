"""Requests to forget a subject in one partition, as Redis holds them until their receipt is published.

A partition has one hash: the key of each request's record to the request, and under SECRET the secret that subjects are
digested with. The hash outlives a rebuild, so that the digests stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from streamtopic.errors import StateCorrupt

__all__ = ["SECRET", "SubjectRequest", "read_requests"]

SECRET = b"secret"
"""The field of the hash that is no request."""


@dataclass(frozen=True, slots=True)
class SubjectRequest:
    """A request to forget a subject. Times are milliseconds since 1970.

    key: of its record in the documents topic.
    digest: of the subject, under the secret of the partition.
    request: request id; "" without one.
    salt: of the requester; b"" without one.
    offset: of its record in this partition.
    received_ms: time of its record.
    trace: W3C `traceparent` of the request; b"" without one.
    closed: offset of the tombstone of its record; -1 as long as that was not counted.
    done: whether no document of the subject was left once `closed` was counted.
    """

    key: bytes
    digest: bytes
    request: str
    salt: bytes
    offset: int
    received_ms: int
    trace: bytes = b""
    closed: int = -1
    done: bool = False

    def pack(self) -> bytes:
        """Return the value of its field."""
        fields = [self.digest, self.request, self.salt, self.offset, self.received_ms, self.trace]
        return bytes(msgpack.packb([*fields, self.closed, self.done]))

    @classmethod
    def unpack(cls, key: bytes, value: bytes) -> "SubjectRequest":
        """Undo `pack`. Raises StateCorrupt."""
        try:
            return cls(key, *msgpack.unpackb(value))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(
                f"a request to forget a subject cannot be read ({error}): run `streamtopic rebuild`"
            ) from None


def read_requests(fields: Mapping[bytes, bytes]) -> dict[bytes, SubjectRequest]:
    """Return the requests in a partition's hash by key, the oldest first. Raises StateCorrupt."""
    found = [SubjectRequest.unpack(key, value) for key, value in fields.items() if key != SECRET]
    found.sort(key=lambda request: request.offset)
    return {request.key: request for request in found}
