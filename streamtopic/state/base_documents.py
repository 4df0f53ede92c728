"""How many documents of the base model are still there: what its deletion capacity is compared with.

A document belongs to the base if the record that added it lies before the cut that the base was learned from. So the
number follows from the documents alone, and no fault can refund a deletion. The leading scheduler follows the changes
and notes the number; if changes are gone, it looks through the documents once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from streamtopic.state.change_log import CutGone, Place, read_changes
from streamtopic.state.connection import Connection
from streamtopic.state.document_records import Records, record_offsets
from streamtopic.state.meta import Meta
from streamtopic.state.reader import Reader
from streamtopic.state.redis_keys import ModelKeys

__all__ = ["BaseDocuments", "RemainingBase", "StoredBase", "remaining_noted"]


@dataclass(frozen=True, slots=True)
class RemainingBase:
    """The documents of a base model that are live at a moment.

    offsets: partition to the first offset that was not counted then.
    places: partition to the moment.
    documents: how many there are.
    """

    offsets: Mapping[int, int]
    places: Mapping[int, Place]
    documents: int

    @classmethod
    def at(cls, positions: Mapping[int, Meta], documents: int) -> "RemainingBase":
        """Return what there is at these positions. documents: how many."""
        offsets = {partition: meta.next_offset for partition, meta in positions.items()}
        places = {partition: meta.place for partition, meta in positions.items()}
        return cls(offsets, places, documents)

    def pack(self) -> bytes:
        """Return the bytes that Redis keeps."""
        places = {partition: [place.version, place.commit] for partition, place in self.places.items()}
        return bytes(msgpack.packb([dict(self.offsets), places, self.documents]))

    @classmethod
    def unpack(cls, packed: bytes) -> "RemainingBase":
        """Undo `pack`. Raises ValueError, TypeError or msgpack.UnpackException for other bytes."""
        offsets, places, documents = msgpack.unpackb(packed, strict_map_key=False)
        return cls(offsets, {partition: Place(*place) for partition, place in places.items()}, documents)


@dataclass(frozen=True, slots=True)
class StoredBase:
    """The current base model.

    version: of the release that was made with it.
    start: the documents that it was learned from, as of the cut that they were read at.
    fields: facts for the scheduler, msgpack values.
    blob: bytes of the model, b"" if only the facts were read.
    """

    version: int
    start: RemainingBase
    fields: Mapping[str, Any]
    blob: bytes


def remaining_noted(connection: Connection, model: str, version: int, start: RemainingBase) -> RemainingBase:
    """Return what is left of a base model as the leader noted it last, usually a moment ago.

    version: that the base model was published as.
    start: the documents that it was learned from: what is left if there is no note yet.
    """
    packed = connection.call("HGET", ModelKeys(model).named("base"), "left")
    try:
        of, left = msgpack.unpackb(packed or b"")
        return RemainingBase.unpack(left) if of == version else start
    except (ValueError, TypeError, msgpack.UnpackException):
        return start


class BaseDocuments:
    """Keeps count of the base model's documents that are left. Only the leading scheduler does."""

    def __init__(self, reader: Reader, model: str) -> None:
        self._reader = reader
        self._keys = ModelKeys(model)
        self._known: tuple[int, RemainingBase] | None = None

    def left(self, version: int, start: RemainingBase, positions: Mapping[int, Meta]) -> RemainingBase:
        """Return what is left at these positions, and note it for others.

        version: that the base model was published as.
        start: the documents that it was learned from.

        Raises CutGone if documents change faster than they can be read, StateCorrupt, ComponentUnreachable.
        """
        connection = self._reader.connection
        of, known = self._known or (0, start)
        if of != version:
            known = remaining_noted(connection, self._keys.model, version, start)
        try:
            change = sum(self._change(start, known, partition, meta) for partition, meta in positions.items())
            documents = known.documents + change
        except CutGone:
            documents = self._reader.counts(before=start.offsets, at=positions).documents
        found = RemainingBase.at(positions, documents)
        if (version, found) != self._known:
            connection.call("HSET", self._keys.named("base"), "left", msgpack.packb([version, found.pack()]))
            self._known = version, found
        return found

    def _change(self, start: RemainingBase, known: RemainingBase, partition: int, meta: Meta) -> int:
        """Return by how many the base's documents of a partition have changed since a moment. Raises CutGone."""
        if partition not in known.places:
            raise CutGone(f"nothing is known of partition {partition}")
        keys = self._keys.partition(partition)
        before = start.offsets.get(partition, 0)
        found = 0
        for _, change in read_changes(self._reader.connection, keys, known.places[partition], meta.place):
            # One whose subjects change goes, and comes back under the offset that it had.
            for sign, records in ((1, change.came), (-1, change.went)):
                if records:
                    found += sign * int((record_offsets(Records.of(records)) < before).sum())
        return found
