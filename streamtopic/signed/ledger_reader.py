"""Following the topic of a ledger: page by page, and with an index.

By the index entries are found and proved without reading all of the ledger again. For each 256 entries, a tile, it has
the place of the first one and the hash of the whole; for each name of an entry it has a number of 8 bytes. All of it
follows from the topic, where the entries themselves stay.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from streamtopic.errors import InvalidRelease, StateMismatch
from streamtopic.signed.checkpoints import (
    Frontier,
    LedgerProof,
    Logged,
    consistency_path,
    inclusion_path,
    leaf_hash,
    range_hash,
)
from streamtopic.signed.entries import Erased, Receipt, names_of, parse_line
from streamtopic.signed.ledger import Draft, Ledger
from streamtopic.signed.signing_keys import KeyRing
from streamtopic.streams import EventLog, TopicNames

__all__ = ["TILE", "IndexedLedger", "LedgerIndex", "LedgerReader", "Page"]

TILE = 256
"""Entries of which the index keeps one hash and one place."""

_INDEX_BITS = 40
# With the number of the set and these bits a name has 39 bits of its hash: a hit is looked at, and not believed.
_NAME_BITS = 23
# Entries of one write of the index while a long ledger is read for the first time.
_SAVED_AT_ONCE = 8_000
# The last word of a service is among the last records, unless somebody has written others after it.
_TAIL_RECORDS = 16


@dataclass(frozen=True, slots=True)
class Page:
    """A page that counts.

    draft: all its lines, and where it is in the topic.
    entries: those that count now.
    anew: whether the ledger is read again from this page on, since by a newer list of keys entries that were taken are
        void, or pages that were passed over count: what was made of earlier pages is to be made again.
    """

    draft: Draft
    entries: tuple[Logged, ...]
    anew: bool


class LedgerReader:
    """Follows a model's ledger; each record is read once.

    keys: the key of the ledger, or the root key; lists in the ledger are taken in.
    tail: whether to begin at the last records: for readers who want to know what holds now, and not what was. The pages
        among them are not told.
    ledger: what was read so far.
    offset: where to continue; None before the first read.
    """

    def __init__(
        self,
        log: EventLog,
        model: str,
        keys: KeyRing,
        *,
        tail: bool = False,
        dump: str = "",
        offset: int | None = None,
    ) -> None:
        """Begin at the begin of the topic, at its tail, or at `offset`.

        dump: of the ledger at `offset`; without it the reader knows nothing of what came before.
        """
        self._log = log
        self._topic = TopicNames(model).ledger
        self._keys = keys
        self._tail = tail
        self._listed = keys.sequence > 0
        self._anew = False
        self.ledger = Ledger.restore(dump, keys) if dump else Ledger(keys)
        self.offset = offset

    @property
    def resume(self) -> int:
        """The offset at which another reader goes on with a dump of this ledger: drafts that wait are read again."""
        return min([*(draft.offset for draft in self.ledger.waiting), self.offset or 0])

    def read(self, until: int | None = None) -> Iterator[Page]:
        """Yield each page that counts, up to the end of the log.

        until: an offset at which it is enough, for whoever knows that there is a record before it.

        Raises ComponentUnreachable, StateMismatch if the topic ends before the place that was reached.
        """
        if self._log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self._begin()
        yield from self._onwards(until)

    def catch_up(self) -> list[Logged]:
        """Read to the end of the topic; return the entries that are new and count. Raises as `read`."""
        found = list[Logged]()
        for page in self.read():
            if page.anew:
                found.clear()
            found += page.entries
        return found

    def _onwards(self, until: int | None = None) -> Iterator[Page]:
        while self.offset is not None and (records := self._log.read(self._topic, 0, self.offset)):
            for record in records:
                entries = self.ledger.take(record.value, record.offset)
                self.offset = record.next_offset
                if self.ledger.page is not None:
                    anew, self._anew = self._anew, False
                    yield Page(self.ledger.page, entries, anew)
            # Before its first list a reader with the root key does not know the keys of the pages that are before it.
            unread = 0 in self.ledger.gaps and not (self._tail or self._listed) and self._keys.sequence > 0
            if self.ledger.outdated or unread:
                # The lists that make entries void are known from here on.
                self._listed = self._anew = True
                self.ledger = Ledger(self._keys)
                self._begin()
            elif until is not None and self.offset >= until:
                return

    def _begin(self) -> None:
        """Begin with the first record; at the tail, so far back that the last word of the service has been read."""
        begin = self.offset = self._log.begin(self._topic, 0)
        if not self._tail:
            return
        end, back = self._log.end(self._topic, 0), _TAIL_RECORDS
        while self.ledger.alive is None:
            start, known = max(begin, end - back), self._keys.sequence
            self.ledger, self.offset = Ledger(self._keys, tail=start > 0), start
            for _ in self._onwards():
                pass
            # With a list that it met on the way it knows the keys of the records before that list.
            if start == begin and self._keys.sequence == known:
                return
            back *= 8


class LedgerIndex:
    """The index of a ledger in memory: 40 MB for a million entries with three names each.

    A subclass may keep it elsewhere, and have in memory what was added since it was saved.

    places: number of a tile to the offset of the draft that holds its first entry.
    nodes: number of a complete tile to its hash.
    names: number of a set to its members: each is a part of a name's hash, and the index of an entry with that name.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.nodes: dict[int, bytes] = {}
        self.names: dict[int, array[int]] = {}

    def head(self) -> tuple[str, int] | None:
        """Return the dump of the ledger and the offset to go on at; None if the index begins with the first page."""
        return None

    def save(self, dump: str, offset: int) -> bool:  # noqa: ARG002 -- for those who keep it elsewhere
        """Keep what was added, with the place that was reached; return False if it belongs to another place.

        dump: of the ledger at `offset`.
        """
        return True

    def clear(self) -> None:
        """Forget everything: the ledger is read again."""
        self.places, self.nodes, self.names = {}, {}, {}

    def add(self, name: str, index: int) -> None:
        """Add a name of an entry."""
        number, part = _digits(name)
        self.names.setdefault(number, array("q")).append(part << _INDEX_BITS | index)

    def find(self, names: Sequence[str]) -> dict[str, list[int]] | None:
        """Return name to the indexes of entries that may have it, ascending; a name without one has no place.

        None if the index is not the one that was read: go on from its `head`.
        """
        digits = [_digits(name) for name in names]
        sets = self.members([number for number, _ in digits])
        if sets is None:
            return None
        found = {}
        for name, (_, part), members in zip(names, digits, sets, strict=True):
            own = {member & ((1 << _INDEX_BITS) - 1) for member in members if member >> _INDEX_BITS == part}
            if own:
                found[name] = sorted(own)
        return found

    def members(self, numbers: Sequence[int]) -> list[Iterable[int]] | None:
        """Return the members of each of these sets; None as of `find`."""
        return [self.names.get(number, ()) for number in numbers]

    def place(self, tile: int) -> int | None:
        """Return the offset of the draft that holds the first entry of a tile, None for one that is not indexed."""
        return self.places.get(tile)

    def hashes(self, first: int, end: int) -> list[bytes]:
        """Return the hashes of the complete tiles from `first` up to and without `end`."""
        return [self.nodes[tile] for tile in range(first, end) if tile in self.nodes]


def _digits(name: str) -> tuple[int, int]:
    """Return the number of the set that a name is in, and the part of its hash that is kept there."""
    digest = sha256(name.encode()).digest()
    return int.from_bytes(digest[:2]), int.from_bytes(digest[2:5]) & ((1 << _NAME_BITS) - 1)


class IndexedLedger:
    """Follows a model's ledger together with an index of it.

    log, model, keys: as of LedgerReader.
    index: goes on from where it was left.
    page: the newest page that this object has read, None before the first.

    All methods that read the log raise ComponentUnreachable if it does not answer.
    """

    def __init__(self, log: EventLog, model: str, keys: KeyRing, index: LedgerIndex) -> None:
        self._log = log
        self._model = model
        self._keys = keys
        self._topic = TopicNames(model).ledger
        self.index = index
        self.page: Draft | None = None
        self._reader: LedgerReader | None = None
        # Entries that were added to the index since it was saved.
        self._unsaved = 0
        # The last tile that has a place, and lines around the newest entries, or of the tile that was read last.
        self._tile = -1
        self._lines: dict[int, str] = {}

    @property
    def ledger(self) -> Ledger:
        """The ledger as it was read last."""
        return self._opened().ledger

    def catch_up(self, until: int | None = None) -> None:
        """Read the ledger to its end, and let the index follow.

        until: as `LedgerReader.read` takes it.

        Raises StateMismatch if the topic has lost what was read from it.
        """
        while True:
            reader = self._opened()
            # A topic that is gone is read like an empty one.
            if reader.offset is not None and not self._log.partitions(self._topic):
                raise self._shortened
            try:
                if self._read(reader, until):
                    return
            except StateMismatch as error:
                raise self._shortened from error
            # The index was set back, or another process has read on: the index is the place to begin from.
            self._reader = None

    def find(self, names: Sequence[str]) -> dict[str, list[Logged]]:
        """Return name to the entries that have it, in their order.

        names: a receipt's id, `link` or `request` digest, `erased/PARTITION`, or `version/NUMBER`.

        The answer is that of the whole ledger, also if the index was set back.
        """
        found = self._places(names)
        entries = self.entries({index for indexes in found.values() for index in indexes})
        by_name = {}
        for name, indexes in found.items():
            own = [entries[index] for index in indexes if index in entries and name in names_of(entries[index].entry)]
            if own:
                by_name[name] = own
        return by_name

    def entries(self, indexes: Iterable[int]) -> dict[int, Logged]:
        """Return index to entry for those that are in the ledger and count."""
        found = {}
        lines: Mapping[int, str] = {}
        for index in sorted(set(indexes)):
            if index not in lines:
                lines = self.lines_of(index // TILE)
            if index in lines and not self.ledger.is_void(index):
                found[index] = Logged(index, parse_line(lines[index]), lines[index])
        return found

    def erased(self, receipt: Receipt, index: int) -> Logged | None:
        """Return the first entry that says that nothing is left of a deletion, None without one.

        receipt: of the deletion. index: of its receipt.
        """
        name = f"erased/{receipt.partition}"
        known = self._places([name]).get(name, [])
        later = [one for one in known if one > index and not self.ledger.is_void(one)]

        def covers(place: int) -> bool:
            logged = self.entries([place]).get(place)
            return logged is not None and isinstance(logged.entry, Erased) and logged.entry.covers(receipt)

        # Ends only grow, so all later entries of this partition cover it as well.
        first = bisect_left(later, x=True, key=covers)
        return self.entries([later[first]]).get(later[first]) if first < len(later) else None

    def proof(self, index: int) -> LedgerProof:
        """Return the proof that an entry is in the ledger as it was read last. Raises InvalidRelease if it is not."""
        size = self.ledger.size
        lines = self.lines_of(index // TILE)
        if index not in lines:
            raise InvalidRelease(f"entry {index} is not in {self._topic}: `streamtopic verify` examines it")
        return LedgerProof(lines[index], index, inclusion_path(_Nodes(self, size), index, size), self.ledger.checkpoint)

    def consistency(self, draft: Draft, old: int, size: int) -> list[bytes]:
        """Return the proof that the tree with a draft begins with that of `old` entries. size: with the draft."""
        leaves = [leaf_hash(line.encode()) for line in draft.lines]
        return consistency_path(_Nodes(self, draft.before.size, leaves), old, size)

    def lines_of(self, tile: int) -> Mapping[int, str]:
        """Return index to line of the entries of a tile, and of others around it."""
        begin, end = tile * TILE, min((tile + 1) * TILE, self.ledger.size)
        if begin in self._lines and end - 1 in self._lines:
            return self._lines
        place = self.index.place(tile)
        lines = dict[int, str]()
        # This reader knows nothing of what came before, and begins with the very page that the index names.
        for page in () if place is None else LedgerReader(self._log, self._model, self._keys, offset=place).read():
            lines |= _numbered(page.draft)
            if page.draft.after.size >= end:
                break
        if end == self.ledger.size:
            self._lines = lines
        return lines

    def _places(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return name to the indexes of entries that may have it, ascending."""
        while (found := self.index.find(names)) is None:
            self._reader = None
            self.catch_up()
        return found

    def _opened(self) -> LedgerReader:
        if self._reader is None:
            dump, offset = self.index.head() or ("", None)
            self._reader = LedgerReader(self._log, self._model, self._keys, dump=dump, offset=offset)
            self._unsaved, self._lines = 0, {}
            self._tile = (self._reader.ledger.size - 1) // TILE
        return self._reader

    def _read(self, reader: LedgerReader, until: int | None) -> bool:
        """Read on, and let the index follow; return whether it was where this object had left it."""
        for page in reader.read(until):
            if page.anew:
                self.index.clear()
                self._tile = -1
            self._add(page)
            if self._unsaved > _SAVED_AT_ONCE and not self._save(reader):
                return False
        # Also after an error of before: whoever comes next must notice if the topic loses what was read.
        return not self._unsaved or self._save(reader)

    def _save(self, reader: LedgerReader) -> bool:
        saved = self.index.save(reader.ledger.dump(), reader.resume)
        self._unsaved = 0 if saved else self._unsaved
        return saved

    def _add(self, page: Page) -> None:
        """Add a page to the index: names and places of its entries, and hashes of the tiles that it completes."""
        self.page, self._unsaved = page.draft, self._unsaved + len(page.draft.lines)
        for logged in page.entries:
            for name in names_of(logged.entry):
                self.index.add(name, logged.index)
        size = page.draft.before.size
        # A new version is proved at once, so the lines around it are at hand.
        around = {index: line for index, line in self._lines.items() if index >= size // TILE * TILE}
        self._lines = around | _numbered(page.draft)
        # The smallest subtrees of the whole frontier are those of the tile that is not complete.
        hashes = page.draft.before.hashes
        partial = Frontier(size % TILE, hashes[len(hashes) - (size % TILE).bit_count() :])
        for index, line in _numbered(page.draft).items():
            tile = index // TILE
            if tile > self._tile:
                self._tile, self.index.places[tile] = tile, page.draft.offset
            partial = partial.grown([leaf_hash(line.encode())])
            if partial.size == TILE:
                self.index.nodes[tile], partial = partial.root, Frontier()

    @property
    def _shortened(self) -> StateMismatch:
        return StateMismatch(
            f"topic {self._topic} has lost records that were read from it: restore it; nothing is signed until "
            "then, since a ledger must not have two histories"
        )


def _numbered(draft: Draft) -> dict[int, str]:
    """Return index to line of the entries of a page."""
    return dict(enumerate(draft.lines, start=draft.before.size))


class _Nodes:
    """The hash of each complete subtree of a ledger: of tiles from the index, below them from the topic.

    size: entries of the ledger.
    leaves: hashes of further entries after them.
    """

    def __init__(self, ledger: IndexedLedger, size: int, leaves: Sequence[bytes] = ()) -> None:
        self._ledger = ledger
        self._size = size
        self._leaves = leaves
        self._tiles: dict[int, Mapping[int, str]] = {}

    def __call__(self, level: int, number: int) -> bytes:
        """Return the hash of a complete subtree: 2^level entries, the one with this number from the left."""
        low, high = number << level, (number + 1) << level
        if level == 0:
            return self._leaf(number)
        if low % TILE == 0 and high % TILE == 0 and high <= self._size:
            return _whole(self._ledger.index.hashes(low // TILE, high // TILE))
        middle = (low + high) // 2
        return _whole([range_hash(self, low, middle), range_hash(self, middle, high)])

    def _leaf(self, number: int) -> bytes:
        if number >= self._size:
            return self._leaves[number - self._size]
        tile = number // TILE
        if tile not in self._tiles:
            self._tiles[tile] = self._ledger.lines_of(tile)
        return leaf_hash(self._tiles[tile][number].encode())


def _whole(hashes: Iterable[bytes]) -> bytes:
    """Return the hash over the hashes of subtrees of one size, a power of two of them."""
    return Frontier().grown(hashes).root
