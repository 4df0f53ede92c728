"""Which partition a key belongs to, by the hash that the clients which write the topic use.

murmur2: 32-bit MurmurHash2 (Appleby) with the seed of Kafka's Java client, which kafka-python has too.
crc32: CRC-32, as librdkafka's `consistent` and its default, `consistent_random`.
The clients differ over records without a key only; these are refused wherever they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from zlib import crc32

from streamtopic.errors import UsageError
from streamtopic.streams.event_log import Message

__all__ = ["MURMUR2", "PARTITIONERS", "addressed", "murmur2", "partition_of"]

MURMUR2 = "murmur2"
PARTITIONERS = (MURMUR2, "crc32")

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: Sequence[int], start: int = 0, stop: int = -1) -> int:
    """MurmurHash2 of data[start:stop] as an unsigned 32-bit number; all of `data` for stop -1."""
    # Byte by byte, since numba compiles this very function for ingest; in plain Python it is no slower than by slices.
    if stop < 0:
        stop = len(data)
    h = SEED ^ (stop - start)
    at = start
    while stop - at >= 4:
        k = (data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24) * M & MASK
        k = (k ^ k >> 24) * M & MASK
        h = h * M & MASK ^ k
        at += 4
    if at < stop:
        k = 0
        while stop > at:
            stop -= 1
            k = k << 8 | data[stop]
        h = (h ^ k) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15


def partition_of(key: bytes | None, partitions: int, partitioner: str = MURMUR2) -> int:
    """Partition of a key among `partitions`; a record without a key goes to the first."""
    if partitions < 1:
        raise UsageError("a topic without partitions takes no record: create it with `streamtopic init`")
    if key is None:
        return 0
    if partitioner == "crc32":
        return crc32(key) % partitions
    if partitioner != MURMUR2:
        raise UsageError(f"there is no partitioner {partitioner!r}: choose one of {', '.join(PARTITIONERS)}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def addressed(messages: Iterable[Message], partitions: int, partitioner: str) -> list[Message]:
    """Return the messages with their partitions; one that names its partition keeps it."""
    return [
        replace(message, partition=partition_of(message.key, partitions, partitioner))
        if message.partition is None
        else message
        for message in messages
    ]
