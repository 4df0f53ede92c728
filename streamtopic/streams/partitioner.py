"""Which partition a key belongs to: 32-bit MurmurHash2 (Appleby) with the seed of Kafka's Java client."""

from streamtopic.errors import UsageError

__all__ = ["murmur2", "partition_of"]

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of `data` as an unsigned 32-bit number."""
    whole = len(data) & ~3
    h = SEED ^ len(data)
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * M & MASK
        k = (k ^ k >> 24) * M & MASK
        h = h * M & MASK ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15


def partition_of(key: bytes | None, partitions: int) -> int:
    """Partition of a key among `partitions`; a record without a key goes to the first."""
    if partitions < 1:
        raise UsageError("a topic without partitions takes no record: create it with `streamtopic init`")
    return 0 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
