"""An index of the ledger in Redis: where entries are in its topic, by their number and by their names.

    ledger:head          the ledger as it was read, and the offset at which to go on
    ledger:tiles         8 bytes for each 256 entries: the offset of the draft that holds the first of them
    ledger:nodes         32 bytes for each 256 entries that are complete: the hash of that subtree
    ledger:names:NNNN    sets of numbers, each a part of a name's hash and the index of an entry

All of it follows from the topic: a reader that finds it older (Redis was set back) reads on from `head`. Numbers
in small sets take 8 bytes each, so a million receipts with three names each take about 30 MB.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamtopic.state.connection import Check, Command, Connection, Stale
from streamtopic.state.redis_keys import ModelKeys

__all__ = ["TILE", "Additions", "LedgerIndex", "ReadOnlyIndex"]

TILE = 256
"""Entries of which the index keeps one hash and one place."""

_PLACE_BYTES = 8
_HASH_BYTES = 32
_INDEX_BITS = 40
# With the number of the set and these bits a name has 39 bits of its hash: a hit is looked at, and not believed.
_NAME_BITS = 23


@dataclass(slots=True)
class Additions:
    """What pages add to the index.

    places: number of a tile to the offset of the draft that holds its first entry.
    nodes: number of a complete tile to its hash.
    names: pairs of a name and the index of an entry that has it.
    """

    places: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, bytes] = field(default_factory=dict)
    names: list[tuple[str, int]] = field(default_factory=list)


class LedgerIndex:
    """The index of one model."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._keys = ModelKeys(model)

    def head(self) -> tuple[bytes, int] | None:
        """Return the dump of the ledger and the offset to go on at; None before the first page."""
        dump, offset = self._connection.call("HMGET", self._named("head"), "dump", "offset")
        return None if dump is None else (bytes(dump), int(offset))

    def save(self, dump: bytes, before: int | None, after: int, additions: Additions) -> bool:
        """Add what pages hold, together with the place that was reached; return whether the index was at `before`.

        dump: of the ledger at `after`.
        before, after: offsets; None for an index without a head. May be repeated.
        """
        head, tiles, nodes = (self._named(name) for name in ("head", "tiles", "nodes"))
        steps: list[Command] = []
        for tile, place in additions.places.items():
            steps.append(("SETRANGE", tiles, tile * _PLACE_BYTES, place.to_bytes(_PLACE_BYTES)))
        steps += [("SETRANGE", nodes, tile * _HASH_BYTES, node) for tile, node in additions.nodes.items()]
        steps += [("SADD", names, *numbers) for names, numbers in self._by_set(additions.names).items()]
        steps.append(("HSET", head, "dump", dump, "offset", after))
        reached = ("HGET", head, "offset")
        # A Redis that was set back lacks what lies between, and would seem to have it under a newer head.
        known: Check = (reached, "" if before is None else str(before), "the index has moved")
        result = self._connection.change(steps, guards=[known], done=(reached, str(after)))
        return not isinstance(result, Stale)

    def clear(self) -> None:
        """Begin again: the head goes, and with it all that follows from it is made again."""
        self._connection.call("DEL", self._named("head"))

    def find(self, names: Sequence[str], at: int | None) -> dict[str, list[int]] | None:
        """Return name to the indexes of entries that may have it, ascending; a name without one has no place.

        at: the offset that the index must have reached, None for an index without a head. None if it has another
            one: it was set back, or another process has read on.
        """
        offset, found = self._read(names)
        return found if offset == at else None

    def _read(self, names: Sequence[str]) -> tuple[int | None, dict[str, list[int]]]:
        """Return the offset of the index, and what it has under these names; what came meanwhile may be there, too."""
        reached: Command = ("HGET", self._named("head"), "offset")
        sets = [("SMEMBERS", self._set_of(name)) for name in names]
        offset, *answers, after = self._connection.batch([reached, *sets, reached])
        if int(after or -1) < int(offset or -1):
            # It was set back between the two, and may lack names that were there at `offset`.
            offset = after
        found: dict[str, list[int]] = {}
        for name, numbers in zip(names, answers, strict=True):
            wanted = _part_of(name)
            own = sorted(number for number in map(int, numbers) if number >> _INDEX_BITS == wanted)
            if own:
                found[name] = [number & ((1 << _INDEX_BITS) - 1) for number in own]
        return None if offset is None else int(offset), found

    def place(self, tile: int) -> int | None:
        """Return the offset of the draft that holds the first entry of a tile, None for one that is not indexed."""
        first = tile * _PLACE_BYTES
        data = self._connection.call("GETRANGE", self._named("tiles"), first, first + _PLACE_BYTES - 1)
        return int.from_bytes(data) if len(data) == _PLACE_BYTES else None

    def nodes(self, first: int, end: int) -> list[bytes]:
        """Return the hashes of the complete tiles from `first` up to and without `end`."""
        data = self._connection.call("GETRANGE", self._named("nodes"), first * _HASH_BYTES, end * _HASH_BYTES - 1)
        return [bytes(data[at : at + _HASH_BYTES]) for at in range(0, len(data), _HASH_BYTES)]

    def proved(self) -> int:
        """Return how many keys had been revoked when the proofs of versions were made."""
        return int(self._connection.call("HGET", self._named("head"), "proved") or 0)

    def note_proved(self, revoked: int) -> None:
        """Note that the proofs of versions were made when so many keys had been revoked."""
        self._connection.call("HSET", self._named("head"), "proved", revoked)

    def _by_set(self, names: Iterable[tuple[str, int]]) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name, index in names:
            found.setdefault(self._set_of(name), []).append(_part_of(name) << _INDEX_BITS | index)
        return found

    def _set_of(self, name: str) -> str:
        return self._named(f"names:{_digest(name)[:2].hex()}")

    def _named(self, name: str) -> str:
        return self._keys.named(f"ledger:{name}")


class ReadOnlyIndex(LedgerIndex):
    """The index for a process that may not write it, which keeps what it has read further in memory.

    A service may write to the index at the same time: what it adds is the same.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        super().__init__(connection, model)
        self._base = -1
        self._added = Additions()

    def head(self) -> tuple[bytes, int] | None:
        """As LedgerIndex; what was kept in memory goes."""
        found = super().head()
        self._base = -1 if found is None else found[1]
        self._added = Additions()
        return found

    def save(self, dump: bytes, before: int | None, after: int, additions: Additions) -> bool:  # noqa: ARG002 -- as above
        """Keep what pages hold in memory."""
        self._added.places |= additions.places
        self._added.nodes |= additions.nodes
        self._added.names += additions.names
        return True

    def clear(self) -> None:
        """Do nothing: entries keep their places, also those that became void."""

    def find(self, names: Sequence[str], at: int | None) -> dict[str, list[int]] | None:  # noqa: ARG002 -- as above
        """As LedgerIndex; None if the index was set back to before the place from which this one has read on."""
        offset, found = self._read(names)
        if (-1 if offset is None else offset) < self._base:
            return None
        for name, index in self._added.names:
            if name in names and index not in found.setdefault(name, []):
                found[name] = sorted([*found[name], index])
        return found

    def place(self, tile: int) -> int | None:
        """As LedgerIndex."""
        found = self._added.places.get(tile)
        return super().place(tile) if found is None else found

    def nodes(self, first: int, end: int) -> list[bytes]:
        """As LedgerIndex."""
        found = super().nodes(first, end)
        return found + [self._added.nodes[tile] for tile in range(first + len(found), end) if tile in self._added.nodes]


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _part_of(name: str) -> int:
    return int.from_bytes(_digest(name)[2:5]) & ((1 << _NAME_BITS) - 1)
