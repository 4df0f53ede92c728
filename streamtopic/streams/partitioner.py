"""The partition of a key, by the hash that the producers of a topic use.

murmur2: 32-bit MurmurHash2 (Appleby) with the seed of Kafka's Java client, which kafka-python uses too.
crc32: CRC-32, as librdkafka's `consistent` and its default, `consistent_random`.

Clients with the same hash differ only over records without a key, which are refused in every partition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from zlib import crc32

from streamtopic.errors import UsageError
from streamtopic.streams.event_log import Message, check_partition

__all__ = ["MURMUR2", "PARTITIONERS", "addressed", "murmur2", "partition_of", "placed"]

MURMUR2 = "murmur2"
PARTITIONERS = (MURMUR2, "crc32")

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: Sequence[int], start: int = 0, stop: int = -1) -> int:
    """Return the MurmurHash2 of data[start:stop], an unsigned 32-bit number; stop -1 means the end of `data`."""
    # Byte by byte, since numba compiles this very function for ingest. In plain Python slices would not be faster.
    if stop < 0:
        stop = len(data)
    h = SEED ^ (stop - start)
    at = start
    while stop - at >= 4:
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = word * M & MASK
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
    """Return the partition of a key, below `partitions`; 0 for a record without a key. Raises UsageError."""
    if partitions < 1:
        raise UsageError("a topic without partitions takes no record: create it with `streamtopic init`")
    if key is None:
        return 0
    if partitioner == "crc32":
        return crc32(key) % partitions
    if partitioner != MURMUR2:
        raise UsageError(f"there is no partitioner {partitioner!r}: choose one of {', '.join(PARTITIONERS)}")
    # Without the sign bit, as Kafka's Java client does it: Java has no unsigned numbers.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def placed(topic: str, messages: Sequence[Message], partitions: int) -> list[int]:
    """Return the partition of each message: the one that it names, else that of its key.

    Raises UsageError for a partition that the topic does not have.
    """
    found = []
    for message in messages:
        partition = message.partition
        if partition is None:
            partition = partition_of(message.key, partitions)
        check_partition(topic, partition, partitions)
        found.append(partition)
    return found


def addressed(messages: Iterable[Message], partitions: int, partitioner: str) -> list[Message]:
    """Return the messages with the partitions of their keys; a message that names its partition keeps it."""
    found = []
    for message in messages:
        if message.partition is None:
            found.append(replace(message, partition=partition_of(message.key, partitions, partitioner)))
        else:
            found.append(message)
    return found
