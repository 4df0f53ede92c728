"""A flush as the keys and arguments of the script that commits it."""

from collections.abc import Iterable
from itertools import chain

import msgpack

from streamtopic.state.flush import Flush
from streamtopic.state.keys import PartitionKeys

__all__ = ["by_bucket", "commit_arguments"]


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `scripts.COMMIT`. fence: the writer's token."""
    keys = [of.meta, of.forgets]
    arguments: list[str | bytes | int] = []
    steps: list[list[str | int]] = []

    def step(command: str, key: str, values: Iterable[str | bytes | int]) -> None:
        first = len(arguments) + 2
        arguments.extend(values)
        if len(arguments) + 1 >= first:
            keys.append(key)
            steps.append([command, len(keys), first, len(arguments) + 1])

    for bucket, documents in by_bucket(flush.removed, of).items():
        step("HDEL", of.documents(bucket), documents)
    for bucket, documents in by_bucket(flush.records, of).items():
        step("HSET", of.documents(bucket), chain.from_iterable((d, flush.records[d]) for d in documents))
    step("HDEL", of.words, map(_word_bytes, flush.dead))
    step("HSET", of.words, chain.from_iterable((_word_bytes(w), i) for w, i in flush.born.items()))
    step("HSET", of.manifest, chain.from_iterable((e.name, e.pack()) for e, _ in flush.segments))
    entries = []
    for forget in flush.forgets:
        entries.append(len(arguments) + 2)
        arguments.extend((forget.entry, forget.pack()))
    head = {
        "commit": flush.commit_id,
        "base": flush.base.commit,
        "next": str(flush.base.next_offset),
        "version": str(flush.base.version),
        "fence": str(fence),
        "to": str(flush.next_offset),
        "time": str(flush.time_ms),
        "next_word": str(flush.base.next_word + len(flush.born)),
        "words": str(flush.held),
        "chunks": len(keys) + 1,
        "steps": steps,
        "entries": entries,
        "increments": dict(flush.increments),
    }
    keys.extend(of.segment(e.name, k) for e, strings in flush.segments for k in range(len(strings)))
    return keys, [msgpack.packb(head), *arguments]


def by_bucket(documents: Iterable[bytes], of: PartitionKeys) -> dict[int, list[bytes]]:
    """Return documents by the hash that holds them, each once."""
    buckets: dict[int, list[bytes]] = {}
    for document in dict.fromkeys(documents):
        buckets.setdefault(of.bucket(document), []).append(document)
    return buckets


def _word_bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")
