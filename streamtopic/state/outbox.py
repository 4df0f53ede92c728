"""Records that wait to be published: their bytes are fixed before they leave."""

from dataclasses import dataclass

import msgpack

__all__ = ["OutboxEntry", "OutboxRecord", "pack_record", "unpack_record"]

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """A record to publish, already signed: its bytes are fixed. value None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A record that waits in the outbox; id, key: where, for `confirm`."""

    id: str
    record: OutboxRecord
    key: str


def pack_record(record: OutboxRecord) -> bytes:
    """Return a record as the outbox keeps it."""
    return bytes(msgpack.packb([record.topic, record.key, record.value, [list(header) for header in record.headers]]))


def unpack_record(data: bytes) -> OutboxRecord:
    """Undo `pack_record`."""
    topic, key, value, headers = msgpack.unpackb(data)
    return OutboxRecord(topic, key, value, tuple((name, content) for name, content in headers))
