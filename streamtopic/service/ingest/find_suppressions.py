"""Finds for each record of a batch whether its id or its subjects are suppressed at that place of the log.

The commit that counts a record of a suppression keeps its statement, in a hash of the partition. So offsets order
suppressions against adds, and the state is a function of the log. Each add is compared by the digests of its id and its
subjects. They are only computed where something is suppressed, or is about to be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.documents.events import Delete, Heartbeat
from streamtopic.documents.suppression import Suppression, SuppressionKey, digest_in, is_suppression_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.service.ingest.decode import Decoded
    from streamtopic.state import PartitionWriter

__all__ = ["Suppressions", "find_suppressions"]


@dataclass(slots=True)
class Suppressions:
    """What was said about the ids and subjects of a batch.

    key: of the operator.
    people: (k,), digests of id and subjects of each record; () where no record can be suppressed.
    said: digest to the last statement about it, before the batch and by its records so far.
    changed: the same, by records of the batch alone.
    more: how many more are suppressed than before the batch.
    """

    key: SuppressionKey
    people: Sequence[tuple[bytes, ...]] = ()
    said: dict[bytes, Suppression] = field(default_factory=dict)
    changed: dict[bytes, Suppression] = field(default_factory=dict)
    more: int = 0

    def holds(self, people: Sequence[bytes]) -> bool:
        """Return whether one of these digests is suppressed."""
        return any(person in self.said and self.said[person].suppressed for person in people)

    def about(self, key: bytes | None) -> Suppression | None:
        """Return the present statement about the digest in a record's key, None where there is none."""
        digest = None if key is None else digest_in(key)
        return None if digest is None else self.said.get(digest)

    def take(self, new: Suppression) -> None:
        """Let what a record says hold from now on."""
        before = self.said.get(new.digest)
        self.more += new.suppressed - (before is not None and before.suppressed)
        self.said[new.digest] = self.changed[new.digest] = new

    def value(self, present: Suppression) -> bytes:
        """Return the value of the record that says again what holds at present."""
        return self.key.value(present)


def find_suppressions(state: PartitionWriter, decoded: Decoded, key: SuppressionKey) -> Suppressions:
    """Return the statements of the state about the ids and subjects of these records.

    state: as the records were prepared. A change in between makes their commit Stale.
    key: of the operator.
    """
    own = [record.key for record in decoded.records if record.key is not None and is_suppression_key(record.key)]
    if not own and not state.meta.suppressed:
        return Suppressions(key)
    people = _people(decoded, key)
    asked = {digest for digests in people for digest in digests}
    asked.update(digest for digest in map(digest_in, own) if digest is not None)
    return Suppressions(key, people, state.suppressions(sorted(asked)))


def _people(decoded: Decoded, key: SuppressionKey) -> list[tuple[bytes, ...]]:
    """Return the digests of id and subjects of each record that may be refused for them."""
    found = list[tuple[bytes, ...]]()
    named: Mapping[int, Sequence[str]] = decoded.subjects
    ids = decoded.batch.keys
    for k, document in enumerate(ids):
        # Nobody's delete is ever refused.
        if not document or isinstance(decoded.others.get(k), Delete | Heartbeat):
            found.append(())
            continue
        subjects = map(key.of_subject, named.get(decoded.batch.start + k, ()))
        found.append((key.of_document(document), *subjects))
    return found
