"""Reading and writing the ledger: the index in Redis follows its topic, and pages are appended by the log's order.

A page is a draft, and after it the checkpoint that signs it (signed/ledger.py has the rules). A writer appends a draft
after the ledger as it has read it, and reads on: the first draft in the topic is the next page, whoever wrote it. Only
then is the checkpoint signed, so two writers, or one that slept while Redis was set back, never sign two histories.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, SettingsError, StateError, StateMismatch
from streamtopic.signed import (
    Envelope,
    Frontier,
    Ledger,
    LedgerProof,
    LedgerReader,
    Logged,
    leaf_hash,
    line_of,
    page_record,
)
from streamtopic.signed.checkpoints import consistency_path, inclusion_path, range_hash
from streamtopic.signed.entries import Keys, names_of, parse_line
from streamtopic.state.ledger_index import TILE, Additions, LedgerIndex, ReadOnlyIndex
from streamtopic.streams import Message, TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streamtopic.service.publish.witnesses import Witnesses
    from streamtopic.signed import Draft, Entry, KeyRing, SigningKey
    from streamtopic.state import Connection
    from streamtopic.streams import EventLog

__all__ = ["LedgerWriter", "cut_of", "recorded", "refuse_losing"]

logger = logging.getLogger("streamtopic.service")

# Names of one write to Redis while a long ledger is read for the first time.
_NAMES_AT_ONCE = 20_000
_LOOK_SECONDS = 60.0
# What a topic must be, so that it loses no record of its kind.
_KEPT = {"cleanup.policy": {"delete"}, "retention.ms": {"-1"}, "retention.bytes": {"-1"}}
_COMPACTED = {"cleanup.policy": {"compact"}}


class LedgerWriter:
    """The ledger of a model, followed by its index in Redis, and written if there is a signing key.

    signing_key: None for a process that only reads, Redis as well as the ledger.
    witnesses: cosign checkpoints; None for none.
    ledger: as it was read last.
    """

    def __init__(
        self,
        connection: Connection,
        log: EventLog,
        model: str,
        keys: KeyRing,
        signing_key: SigningKey | None = None,
        *,
        witnesses: Witnesses | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._model = model
        self._names = TopicNames(model)
        self._keys = keys
        self._signing_key = signing_key
        self._witnesses = witnesses
        self._clock = clock
        self._index = (ReadOnlyIndex if signing_key is None else LedgerIndex)(connection, model)
        self._looked = -_LOOK_SECONDS
        self._additions = Additions()
        self._page: Draft | None = None
        self._saved: Draft | None = None
        self._reached: int | None = None
        self._restarts = 0
        self._newest: dict[int, str] = {}
        self._reader: LedgerReader | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger as it was read last."""
        return self._opened().ledger

    def catch_up(self, until: int | None = None) -> list[Logged]:
        """Read the ledger to its end, and let the index follow; return the entries that are new to this object.

        until: as `LedgerReader.read` takes it.

        Raises ComponentUnreachable, StateMismatch if the topic has lost what was read from it.
        """
        while True:
            reader = self._opened()
            news = list[Logged]()
            # A topic that is gone is read like an empty one.
            if reader.offset is not None and not self._log.partitions(self._names.ledger):
                raise self._shortened
            try:
                if self._read(reader, news, until):
                    return news
            except StateMismatch as error:
                raise self._shortened from error
            # Redis was set back, or another process has read on: the index is the place to begin from.
            self._reader = None

    def _read(self, reader: LedgerReader, news: list[Logged], until: int | None) -> bool:
        """Read on, and let the index follow; return whether it was where this reader had left it."""
        for logged in reader.read(until):
            if reader.restarts != self._restarts:
                self._restarts = reader.restarts
                self._index.clear()
                self._reached = None
                news.clear()
            news.append(logged)
            self._additions.names += [(name, logged.index) for name in names_of(logged.entry)]
            if len(self._additions.names) > _NAMES_AT_ONCE and not self._save(reader):
                return False
        return self._page is self._saved or self._save(reader)

    def append(self, entries: Sequence[Entry]) -> bool:
        """Append a page; return whether these very entries are the next page of the ledger.

        If not, another writer was first: the ledger has gone on, and what is due is to be decided again.

        Raises SettingsError without a signing key, StateMismatch if the topic would lose records, StateError if
        witnesses that are required do not sign, ComponentUnreachable. It may be repeated after each.
        """
        key = self._key()
        if self.ledger.end is not None:
            # Offsets of a new model of this name begin again, and its receipts would seem to be there already.
            raise StateMismatch(
                f"{self._names.ledger} has ended: model {self._model} was deleted; give a new model another name, or "
                "remove that topic"
            )
        self._refuse_unlisted(key, entries)
        self._look_at_topics()
        size = self.ledger.size
        if self.ledger.pending is None:
            self._write(self.ledger.draft(entries, key))
        self.complete()
        page = self._page
        lines = tuple(map(line_of, entries))
        return page is not None and page.before.size == size and page.lines == lines

    def complete(self) -> None:
        """Sign the draft that waits for its checkpoint, if there is one; whoever wrote it. Raises as `append`."""
        while (draft := self.ledger.pending) is not None:
            key = self._key()
            if key.public not in draft.ring.trusted:
                raise StateError(
                    f"a page of {self._names.ledger} cannot be signed: its key is not one of the ledger; put the key "
                    "that signs now in the place of signing.key"
                )
            note = self.ledger.sign(draft, key)
            if self._witnesses is not None:
                note = self._witnesses.cosign(note, lambda old, size: self._consistency(draft, old, size))
            self._write(page_record(note))

    def _write(self, record: bytes) -> None:
        """Append a record to the topic, and read on until it was read."""
        ((_, offset),) = self._log.append_many(self._names.ledger, [Message(None, record, partition=0)])
        # Not to the end of the topic: each request to Kafka is one that a receipt waits for.
        self.catch_up(offset + 1)

    def find(self, names: Sequence[str]) -> dict[str, list[Logged]]:
        """Return name to the entries that have it, in their order.

        names: a receipt's id, `link` or `request` digest, `erased/PARTITION`, or `version/NUMBER`.

        The answer is that of the whole ledger, also if Redis was set back. Raises ComponentUnreachable.
        """
        found = self.places(names)
        entries = self.entries({index for indexes in found.values() for index in indexes})
        by_name = {}
        for name, indexes in found.items():
            own = [entries[index] for index in indexes if index in entries and name in names_of(entries[index].entry)]
            if own:
                by_name[name] = own
        return by_name

    def places(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return name to the indexes of entries that may have it, ascending; see `find`, which looks at them."""
        while (found := self._index.find(names, self._reached)) is None:
            self._reader = None
            self.catch_up()
        return found

    def entries(self, indexes: Iterable[int]) -> dict[int, Logged]:
        """Return index to entry for those that are in the ledger and count. Raises ComponentUnreachable."""
        wanted = sorted(set(indexes))
        found = {}
        tile, lines = -1, dict[int, str]()
        for index in wanted:
            if index // TILE != tile:
                tile = index // TILE
                lines = self._lines_of(tile)
            if index in lines and not self.ledger.is_void(index):
                found[index] = Logged(index, parse_line(lines[index]), lines[index])
        return found

    def proof(self, index: int) -> LedgerProof:
        """Return the proof that an entry is in the ledger as it was read last.

        Raises InvalidRelease for an entry that is not there, ComponentUnreachable.
        """
        size = self.ledger.size
        tile = index // TILE
        lines = self._lines_of(tile)
        if index not in lines:
            raise InvalidRelease(f"entry {index} is not in {self._names.ledger}: `streamtopic verify` examines it")
        nodes = _Nodes(self._index, self._lines_of, size)
        return LedgerProof(lines[index], index, inclusion_path(nodes, index, size), self.ledger.checkpoint)

    @property
    def index(self) -> LedgerIndex:
        """The index in Redis."""
        return self._index

    def _opened(self) -> LedgerReader:
        if self._reader is None:
            head = self._index.head()
            dump, self._reached = head or (b"", None)
            self._additions = Additions()
            self._saved = self._page = None
            self._newest = {}
            self._restarts = 0
            self._reader = LedgerReader(
                self._log, self._model, self._keys, dump=dump.decode(), offset=self._reached, on_page=self._take_page
            )
        return self._reader

    def _take_page(self, page: Draft) -> None:
        """Note where the entries of a page are, and the hashes of the tiles that it completes."""
        self._page = page
        size = page.before.size
        # A new version is proved at once, so the lines around it are at hand.
        tile = size // TILE * TILE
        self._newest = {index: line for index, line in self._newest.items() if index >= tile}
        self._newest.update(enumerate(page.lines, start=size))
        # The smallest subtrees of the whole frontier are those of the tile that is not complete.
        hashes = page.frontier_before.hashes
        partial = Frontier(size % TILE, hashes[len(hashes) - (size % TILE).bit_count() :])
        for line in page.lines:
            if size % TILE == 0:
                self._additions.places[size // TILE] = page.offset
            partial = partial.grown([leaf_hash(line.encode())])
            size += 1
            if size % TILE == 0:
                self._additions.nodes[size // TILE - 1] = partial.root
                partial = Frontier()

    def _save(self, reader: LedgerReader) -> bool:
        """Write to the index what was read; return whether it was where this object had left it."""
        if not self._index.save(reader.ledger.dump().encode(), self._reached, reader.resume, self._additions):
            return False
        self._reached = reader.resume
        self._saved = self._page
        self._additions = Additions()
        return True

    @property
    def _shortened(self) -> StateMismatch:
        return StateMismatch(
            f"topic {self._names.ledger} has lost records that were read from it: restore it; nothing is signed until "
            "then, since a ledger must not have two histories"
        )

    def _look_at_topics(self) -> None:
        now = self._clock()
        if now - self._looked >= _LOOK_SECONDS:
            refuse_losing(self._log, self._names.ledger, _KEPT)
            refuse_losing(self._log, self._names.releases, _COMPACTED)
            self._looked = now

    def _key(self) -> SigningKey:
        if self._signing_key is None:
            raise SettingsError("there is no signing.key here: this process may read the ledger, and not write it")
        # Readers pass over its pages: a thief may sign with a stolen key, too.
        if self._signing_key.public in {one.key for one in self.ledger.keys.revoked}:
            raise SettingsError(
                f"signing key {self._signing_key.public.key_id} was revoked: put the key that `streamtopic keys "
                "rotate` made in the place of signing.key"
            )
        return self._signing_key

    def _refuse_unlisted(self, key: SigningKey, entries: Sequence[Entry]) -> None:
        """Raise SettingsError where readers would pass over a page: the list of keys does not name the one that signs.

        entries: of the page, which may bring a newer list.
        """
        ring = self.ledger.keys
        for note in [entry.note for entry in entries if isinstance(entry, Keys)]:
            # A list of a root that is not known here brings no key here, either.
            with suppress(InvalidRelease):
                ring = ring.with_list(note)
        if key.public not in ring.trusted:
            raise SettingsError(
                f"signing key {key.public.key_id} is not in the list of the ledger's keys: put the key that signs now "
                "in the place of signing.key"
            )

    def _lines_of(self, tile: int) -> dict[int, str]:
        """Return index to line of the entries of a tile, and of others around it."""
        begin, end = tile * TILE, min((tile + 1) * TILE, self.ledger.size)
        if begin in self._newest and end - 1 in self._newest:
            return self._newest
        place = self._index.place(tile)
        lines = dict[int, str]()
        if place is None:
            return lines

        def take(page: Draft) -> None:
            lines.update(enumerate(page.lines, start=page.before.size))

        # It knows nothing of what came before, and begins with the very page that the index names.
        reader = LedgerReader(self._log, self._model, self._keys, offset=place, on_page=take)
        for _ in reader.read():
            if reader.ledger.size >= end:
                break
        if end == self.ledger.size:
            self._newest = lines
        return lines

    def _consistency(self, draft: Draft, old: int, size: int) -> list[bytes]:
        """Return the proof that the tree with a draft begins with that of `old` entries."""
        leaves = [leaf_hash(line.encode()) for line in draft.lines]
        return consistency_path(_Nodes(self._index, self._lines_of, draft.before.size, leaves), old, size)


class _Nodes:
    """The hash of each complete subtree of a ledger: of tiles from the index, below them from the topic.

    size: entries that the index has.
    leaves: hashes of further entries after them.
    """

    def __init__(
        self,
        index: LedgerIndex,
        lines_of: Callable[[int], Mapping[int, str]],
        size: int,
        leaves: Sequence[bytes] = (),
    ) -> None:
        self._index = index
        self._lines_of = lines_of
        self._size = size
        self._leaves = leaves
        self._tiles: dict[int, Mapping[int, str]] = {}

    def __call__(self, level: int, number: int) -> bytes:
        """Return the hash of a complete subtree: 2^level entries, the one with this number from the left."""
        low, high = number << level, (number + 1) << level
        if level == 0:
            return self._leaf(number)
        if low % TILE == 0 and high % TILE == 0 and high <= self._size:
            return _whole(self._index.nodes(low // TILE, high // TILE))
        middle = (low + high) // 2
        return _whole([range_hash(self, low, middle), range_hash(self, middle, high)])

    def _leaf(self, number: int) -> bytes:
        if number >= self._size:
            return self._leaves[number - self._size]
        tile = number // TILE
        if tile not in self._tiles:
            self._tiles[tile] = self._lines_of(tile)
        return leaf_hash(self._tiles[tile][number].encode())


def _whole(hashes: list[bytes]) -> bytes:
    """Return the hash over the hashes of subtrees of one size, a power of two of them."""
    return Frontier().grown(hashes).root


def refuse_losing(log: EventLog, topic: str, kept: Mapping[str, Any]) -> None:
    """Raise StateMismatch where a topic would lose records that must be kept. kept: name to the values that keep."""
    have = log.settings(topic)
    losing = []
    for name, values in kept.items():
        value = have.get(name)
        # None: a log in files may have no settings, and then it keeps every record.
        if value is not None and value not in values:
            losing.append(f"{name}={value}")
    if losing:
        raise StateMismatch(
            f"topic {topic} has {', '.join(losing)}, so records would be lost: run `streamtopic init`, which makes it "
            "keep every record"
        )


def recorded(record: Mapping[str, Any]) -> Envelope:
    """Return the facts of a version as its record in Redis has them. Raises StateError for another record."""
    entry = parse_line(record["entry"])
    if not isinstance(entry, Envelope):
        raise StateError(
            "the record of a version in Redis holds another entry: `streamtopic unlearn --retrain` makes a new one"
        )
    return entry


def cut_of(record: Mapping[str, Any]) -> dict[int, int]:
    """Return, by partition, the offset up to which a recorded version reflects deletions.

    It is {} without a record, and where documents were moved since.
    """
    return {int(partition): int(offset) for partition, offset in record.get("cut", {}).items()}
