"""Names of everything that a model keeps in Redis."""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from streamtopic.errors import UsageError

__all__ = ["BUCKETS", "ModelKeys", "PartitionKeys"]

BUCKETS = 128
"""Hashes over which a partition's documents are spread, so that no key grows huge."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """Keys of one partition. All have one hash tag, so that one script may write them in a Redis Cluster."""

    tag: str

    @property
    def number(self) -> int:
        """Number of the partition."""
        return int(self.tag.rpartition(":")[2].removesuffix("}"))

    @property
    def meta(self) -> str:
        """Hash: positions, versions and counters."""
        return f"{self.tag}:meta"

    @property
    def changes(self) -> tuple[str, str]:
        """Hashes: version to the change that made it; those of even and of odd generations (change_log.py)."""
        return f"{self.tag}:changes:0", f"{self.tag}:changes:1"

    @property
    def statistics(self) -> str:
        """String: all words with their statistics as of a moment; what came later is in the changes."""
        return f"{self.tag}:statistics"

    @property
    def forgets(self) -> str:
        """Sorted set: offsets of deletions, until their receipts are published. It outlives a rebuild."""
        return f"{self.tag}:forgets"

    @property
    def forget_facts(self) -> str:
        """Hash: offset of a deletion to its facts. It outlives a rebuild."""
        return f"{self.tag}:forgets:facts"

    @property
    def subject_secret(self) -> str:
        """Hash: the secret that digests subjects, under `secret`; Meta's `through`. It outlives a rebuild."""
        return f"{self.tag}:people"

    def subjects(self, bucket: int) -> str:
        """Sorted set, all of one score: digest of a subject and key of a document's record as one string."""
        return f"{self.tag}:subjects:{bucket}"

    def bucket(self, document: bytes) -> int:
        """Return the number of the hash that holds this document."""
        return self.buckets([document])[0]

    def buckets(self, documents: Iterable[bytes]) -> bytes:
        """Return the number of the hash that holds each of these documents: a byte each."""
        # CRC-32, not `hash`: the answer must be the same in every process and every version of Python.
        return bytes(code % BUCKETS for code in map(zlib.crc32, documents))

    def by_bucket(self, documents: Iterable[bytes]) -> dict[int, list[bytes]]:
        """Return the number of each hash with the documents that it holds, each once."""
        once, buckets = list(dict.fromkeys(documents)), defaultdict[int, list[bytes]](list)
        for bucket, document in zip(self.buckets(once), once, strict=True):
            buckets[bucket].append(document)
        return buckets

    def documents(self, bucket: int) -> str:
        """Hash: document id to its record."""
        return f"{self.tag}:docs:{bucket}"


@dataclass(frozen=True, slots=True)
class ModelKeys:
    """Keys of one model. Those without a partition share one slot.

    Raises UsageError for a model name that is not 1 to 100 letters, digits, dashes or underscores.
    """

    model: str

    def __post_init__(self) -> None:
        if not _MODEL.fullmatch(self.model):
            raise UsageError(f"model name {self.model!r}: use 1 to 100 letters, digits, dashes and underscores")

    def partition(self, partition: int) -> PartitionKeys:
        """Return the keys of one partition."""
        return PartitionKeys(f"{{st:{self.model}:{partition}}}")

    def named(self, name: str) -> str:
        """Return the global key `name`, such as settings, base, releases, outbox, lease, fence or ledger:head."""
        return f"{{st:{self.model}}}:{name}"
