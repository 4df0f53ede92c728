"""The ledger: every rule by which a reader trusts what it reads. Bytes in, state out; no I/O and no clock.

A ledger is a Merkle tree of entries that only grows. Its records come in pairs: a draft holds new entries, and a
checkpoint after it signs the tree with them. Two writers may draft at once, one of them may have slept for an hour,
and Redis may have been set back: the order of the records alone decides, so that no two checkpoints contradict each
other.

1.  A draft counts only if a key of the ledger has signed it, and if its hashes are those of the tree that it names.
2.  The first such draft for the present tree is the next page. Another one for the same tree is passed over.
3.  A page counts once a checkpoint with its very size and root, signed by a key of the ledger, follows its draft.
4.  A page is signed by the key that signs now or one that signed before, or by a key that the page itself brings. Keys
    are those that the user gave, or those of the newest list that the root key has signed. An older list changes
    nothing, and a newer one counts wherever it is.
5.  A revoked key signs nothing more: its pages count up to the `size` that its list names, and of their entries those
    from `first` on are void. They stay in the tree: a ledger never forks. A reader who began at the tail has not read
    what vouches for such a page, so to him a revoked key signs nothing at all.
6.  A page for a tree that is ahead of the reader counts too, and leaves a gap: a reader may begin at the tail, and a
    topic may have lost records. Where entries are missing is known.
7.  The first entry of a version counts, and no other with its number. Withdrawals are never taken back.
8.  A version's bytes count if a proof under a trusted key leads from its entry to a checkpoint, the entry has their
    SHA-256, and they do not contradict the facts in it. If the entry's place was read, it must be there.
9.  The newest version is the one of the largest number. A reader is out of date if the ledger has fewer entries than it
    had before, if it lacks the version that the last `alive` calls the newest, or if that `alive` is too old or of the
    future.
10. Whatever else is in the topic is passed over and counted.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import msgpack

from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.signed.checkpoints import Checkpoint, LedgerProof, Logged, hash_of, text_of
from streamtopic.signed.entries import (
    Alive,
    End,
    Entry,
    Envelope,
    Keys,
    Withdraw,
    fitting,
    line_of,
    parse_line,
    reading_fields,
)
from streamtopic.signed.key_list import KeyRing, check_origin
from streamtopic.signed.merkle import Frontier, leaf_hash
from streamtopic.signed.notes import read_note, sign_note
from streamtopic.signed.number_runs import Runs
from streamtopic.signed.release import Release, open_release
from streamtopic.signed.signing_keys import SigningKey

__all__ = ["PAGE_BYTES", "Draft", "Ledger", "lines_of", "page_record"]

PAGE_BYTES = 700 << 10
"""The longest page: a record has at most 1 MiB, with the escapes of JSON."""

_Kind = TypeVar("_Kind", bound=Entry)

_DRAFT = "streamtopic draft"
# Drafts for trees that are ahead of the reader: honest writers make one at a time.
_MOST_AHEAD = 8
# Versions whose entry a reader remembers: the older ones are long withdrawn, or proved by themselves.
_VERSIONS = 64
# Seconds by which the clock of a service may be ahead. An entry from later says nothing about its age: made with a
# clock a year ahead, it would let a ledger pass for that year.
_AHEAD = 300
# An `alive` is late once it is twice as old as the service promises.
_PATIENCE = 2
_KEYS_LINE = '{"kind":"keys",'
_NO_WORD = (
    "its service has not said yet which version is the newest: start `streamtopic schedule`, or give no `max_age`"
)


@dataclass(frozen=True, slots=True)
class Draft:
    """New entries after a tree, which a key of the ledger has signed.

    before, after: the tree without and with them.
    hashes_before: frontier of the tree without them.
    frontier: of the tree with them.
    lines: the entries.
    ring: the keys that count for its checkpoint.
    """

    before: Checkpoint
    after: Checkpoint
    hashes_before: tuple[bytes, ...]
    frontier: Frontier
    lines: tuple[str, ...]
    ring: KeyRing = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Dump:
    """What `Ledger.dump` keeps, in types of msgpack; fields as of Ledger."""

    size: int
    hashes: tuple[bytes, ...]
    start: int
    tail: bool
    gaps: tuple[int, ...]
    strays: int
    checkpoint: str
    origin: str
    alive: str | None
    end: str | None
    versions: tuple[int, ...]
    indexes: tuple[int, ...]
    digests: tuple[str, ...]
    newest: int
    withdrawn: tuple[int, ...]
    keys: str
    foreign: str
    revoked: int

    @classmethod
    def read(cls, data: bytes) -> "_Dump":
        """Return the fields in a dump. Raises InvalidRelease, or an error that `reading_fields` turns into it."""
        found = msgpack.unpackb(data)
        return fitting(cls, {name: tuple(one) if isinstance(one, list) else one for name, one in found.items()})


class Ledger:
    """What a reader knows of a ledger; see the module for its rules.

    keys: that are trusted; newer lists of the ledger are taken in.
    start: index of the first entry that was read; above 0 for a reader that began at the tail.
    gaps: ranges of entries that the topic lacks.
    strays: number of records that were passed over.
    checkpoint: the newest one, a signed note; "" before the first.
    origin: name of the ledger, "" before the first page.
    pending: the draft that is the next page, and still lacks its checkpoint.
    page: the page that the last record completed, None if it completed none.
    alive: the newest `alive`, None before the first. end: of the model, None without one.
    foreign: a list of keys that a root has signed which is not known here; "" without one.
    outdated: whether a list has come that makes entries void which were taken already: read the ledger again.
    tail: whether the first page that is read may be anywhere.
    """

    def __init__(self, keys: KeyRing, *, tail: bool = False) -> None:
        self.keys = keys
        self.tail = tail
        self.start = 0
        self.gaps: list[range] = []
        self.strays = 0
        self.checkpoint = ""
        self.origin = ""
        self.pending: Draft | None = None
        self.page: Draft | None = None
        self.alive: Alive | None = None
        self.end: End | None = None
        self.outdated = False
        self.foreign = ""
        self._tree = Frontier()
        self._ahead: dict[int, Draft] = {}
        self._versions: dict[int, tuple[int, str]] = {}
        self._newest = 0
        self._withdrawn = Runs()
        self._revoked = len(keys.revoked)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self._tree.size

    @property
    def root(self) -> bytes:
        """Root of the tree."""
        return self._tree.root

    @property
    def newest(self) -> int:
        """Number of the newest version, 0 before the first."""
        return self._newest

    @property
    def withdrawn(self) -> Runs:
        """The versions that must not be used."""
        return self._withdrawn

    @property
    def missing(self) -> list[str]:
        """Which entries were not read, in words: those before the first, and those that the topic lacks."""
        ranges = [range(self.start), *self.gaps] if self.start else self.gaps
        return [f"{one.start} to {one.stop - 1}" for one in ranges]

    def is_withdrawn(self, version: int) -> bool:
        """Whether a version must not be used."""
        return version in self._withdrawn

    @property
    def waiting(self) -> tuple[Draft, ...]:
        """The drafts that still lack their checkpoint: `pending`, and those after trees that are ahead."""
        return (*([self.pending] if self.pending else []), *self._ahead.values())

    def index_of(self, version: int) -> int | None:
        """Return the index of a version's entry, None for one that was not read."""
        return self._versions[version][0] if version in self._versions else None

    def digest(self, version: int) -> str | None:
        """Return the SHA-256 of a version's bytes, hexadecimal, None for one that was not read."""
        return self._versions[version][1] if version in self._versions else None

    def is_void(self, index: int) -> bool:
        """Whether an entry does not count, since a revoked key signed it."""
        return any(one.first <= index < one.size for one in self.keys.revoked)

    def take(self, data: bytes | None) -> tuple[Logged, ...]:
        """Take the value of the next record; return the entries that count now, without void ones and unknown kinds."""
        self.page = None
        try:
            fields = _fields(data)
            if "draft" in fields:
                self._take_draft(fields)
                return ()
            return self._take_checkpoint(fields)
        except (InvalidRelease, UnicodeEncodeError):
            # JSON may hold halves of characters, and no text that is signed or hashed does.
            self.strays += 1
            return ()

    def _take_draft(self, fields: dict[str, Any]) -> None:
        draft = self._opened(fields)
        size = draft.before.size
        if size < self.size or (size == self.size and self.pending is not None) or size in self._ahead:
            raise InvalidRelease("it is a draft after a tree that has a next page already")
        if size > self.size:
            self._ahead[size] = draft
            if len(self._ahead) > _MOST_AHEAD:
                del self._ahead[min(self._ahead)]
        elif draft.before.root == self.root:
            self.pending = draft
        else:
            raise InvalidRelease("it is a draft after another tree")

    def _opened(self, fields: dict[str, Any]) -> Draft:
        """Return a draft whose signature and hashes are right. Raises InvalidRelease."""
        note, lines, hashes = fields["draft"], fields.get("entries"), fields.get("frontier", [])
        if not isinstance(note, str) or not isinstance(lines, list) or not isinstance(hashes, list):
            raise InvalidRelease("this is not a draft of the ledger")
        if not lines or not all(isinstance(line, str) for line in lines):
            raise InvalidRelease("this is not a draft of the ledger")
        self._learn(fields.get("keys"))
        ring = self._ring_with(lines, fields.get("keys"))
        title, _, rest = read_note(note).text.partition("\n")
        before, blank, after = rest.partition("\n\n")
        if title != _DRAFT or not blank:
            raise InvalidRelease("this is not a draft of the ledger")
        first, second = Checkpoint.parse(f"{before}\n"), Checkpoint.parse(after)
        _, signer = ring.open(note, None if self.tail else second.size)
        frontier = Frontier(first.size, map(hash_of, hashes))
        grown = frontier.grown(leaf_hash(line.encode()) for line in lines)
        whole = frontier.root == first.root and (grown.size, grown.root) == (second.size, second.root)
        if not whole or not first.origin == second.origin == signer.name == (self.origin or signer.name):
            raise InvalidRelease("the hashes of a draft are not those of its entries")
        return Draft(first, second, frontier.hashes, grown, tuple(lines), ring)

    def _ring_with(self, lines: Sequence[str], note: object) -> KeyRing:
        """Return the keys that count for a page with these entries: it may bring a newer list.

        note: the newest list that is next to it, for readers who begin here.
        """
        ring = self.keys
        entries = (parse_line(line) for line in lines if line.startswith(_KEYS_LINE))
        for one in (note, *(entry.note for entry in entries if isinstance(entry, Keys))):
            if isinstance(one, str) and one not in ("", ring.note):
                # A list of another root says nothing to a reader who has not that root's key.
                with suppress(InvalidRelease):
                    ring = ring.with_list(one)
        return ring

    def _take_checkpoint(self, fields: dict[str, Any]) -> tuple[Logged, ...]:
        note = fields.get("checkpoint")
        if not isinstance(note, str):
            raise InvalidRelease("this is not a record of the ledger")
        claimed = Checkpoint.parse(read_note(note).text)
        draft = next((one for one in self.waiting if one.after == claimed), None)
        if draft is None:
            raise InvalidRelease("it is a checkpoint without its draft")
        Checkpoint.open(note, draft.ring, in_place=not self.tail)
        return self._accept(draft, note)

    def _accept(self, draft: Draft, note: str) -> tuple[Logged, ...]:
        first = draft.before.size
        if not self.checkpoint:
            self.start = first
        elif first > self.size:
            self.gaps.append(range(self.size, first))
        self._tree = draft.frontier
        self.checkpoint = note
        self.origin = draft.after.origin
        self.page, self.pending = draft, None
        self._ahead = {size: one for size, one in self._ahead.items() if size >= self.size}
        following = self._ahead.pop(self.size, None)
        if following is not None and following.before.root == self.root:
            self.pending = following
        if draft.ring.note:
            self._follow(draft.ring.note)
        found = []
        for index, line in enumerate(draft.lines, start=first):
            try:
                entry = parse_line(line)
            except InvalidRelease:
                # A newer program wrote it: the tree has it, and this reader cannot use it.
                continue
            # Before the others: a list makes entries of its own page count, or void.
            if isinstance(entry, Keys):
                self._follow(entry.note)
            if not self.is_void(index):
                self._apply(index, entry)
                found.append(Logged(index, entry, line))
        return tuple(found)

    def _follow(self, note: str) -> None:
        try:
            self._take_list(note)
        except InvalidRelease:
            self.foreign = note

    def _learn(self, note: object) -> None:
        """Take in a newer list that is next to a draft, also if the draft is passed over.

        A thief who has a revoked key could lead a reader astray at the tail, if nobody knows yet that it is revoked.
        """
        if isinstance(note, str) and note not in ("", self.keys.note):
            with suppress(InvalidRelease):
                self._take_list(note)

    def _take_list(self, note: str) -> None:
        """Take in a list if it is newer. Raises InvalidRelease for one that is not of this ledger."""
        self.keys.take(note)
        # Another reader may have the same ring, and may have taken the list in before.
        void = self.keys.revoked[self._revoked :]
        self._revoked = len(self.keys.revoked)
        self.outdated |= any(self.tail or one.first < min(one.size, self.size) for one in void)

    def _apply(self, index: int, entry: Entry) -> None:
        match entry:
            case Envelope(model=self.keys.model, version=version) if version > self._newest:
                self._versions[version] = (index, entry.release)
                self._newest = version
                self._withdrawn |= entry.withdrawn
                if len(self._versions) > _VERSIONS:
                    del self._versions[min(self._versions)]
            case Withdraw():
                self._withdrawn |= entry.versions
            case Alive():
                self.alive = entry
                self._newest = max(self._newest, entry.newest)
                self._withdrawn |= entry.withdrawn_versions
            case End():
                self.end = entry

    def stale(
        self, now: float, max_age: float | None, holds: Callable[[int], str | None], remembered: int = 0
    ) -> str | None:
        """Return why the newest version may be missing, None without a sign of that.

        now: seconds since 1970.
        max_age: seconds within which an `alive` must have been written; None for what the service promises.
        holds: a version to the digest of the bytes that the reader has, None if it has none.
        remembered: number of entries that the ledger had before.
        """
        if self.size < remembered:
            return (
                f"the ledger has {self.size} entries, and had {remembered} before: find out who may write to its "
                "topic, or whether it was restored"
            )
        if self.alive is None:
            return None if max_age is None else _NO_WORD
        # A version is sent only after its entry counts; the next `alive` says that it was.
        newest = self.alive.newest
        held, wanted = holds(newest), self.digest(newest)
        missing = held is None or (wanted is not None and held != wanted)
        if newest and newest not in self._withdrawn and missing:
            return (
                f"version {newest} is the newest and its topic does not hold it: find out who may write to the "
                "releases topic, or have a new version made (`streamtopic unlearn --retrain`)"
            )
        ahead = self.alive.made / 1000 - now
        if ahead > _AHEAD:
            return (
                f"the last word of its service is {ahead:,.0f} s ahead of this machine's clock, so its age is not "
                "known: set the clocks of both right; the next one mends it"
            )
        age = max(-ahead, 0.0)
        limit = _PATIENCE * self.alive.interval / 1000 if max_age is None else max_age
        if limit and age > limit:
            return (
                f"the last word of its service is {age:,.0f} s old, more than {limit:,.0f}: start `streamtopic "
                "schedule`, or check that this is the right log"
            )
        return None

    def open_release(self, version: int, data: bytes, proof: str) -> Release:
        """Return the version in these bytes. Raises InvalidRelease, and UnknownKey for a proof of an unknown key.

        version: the number that its records have. proof: that is next to them.
        """
        logged = LedgerProof.parse(proof).verify(self.keys)
        entry = logged.entry
        if not isinstance(entry, Envelope) or (entry.model, entry.version) != (self.keys.model, version):
            raise InvalidRelease(f"its proof is not that of version {version} of {self.keys.model}")
        known = self._versions.get(version)
        if known != (logged.index, entry.release) and (known is not None or self._has_read(logged.index, version)):
            raise InvalidRelease(f"another entry than that of its proof counts in the ledger for version {version}")
        if hashlib.sha256(data).hexdigest() != entry.release:
            raise InvalidRelease(f"its bytes are not those of version {version} in the ledger")
        return open_release(data, entry, proof)

    def _has_read(self, index: int, version: int) -> bool:
        """Return whether the version's entry would be known if it stood here."""
        forgotten = len(self._versions) == _VERSIONS and version < min(self._versions)
        missing = any(index in gap for gap in self.gaps)
        return self.start <= index < self.size and not missing and not forgotten

    def draft(self, entries: Sequence[Entry], key: SigningKey) -> bytes:
        """Return the record of a draft after the present tree. key: of the ledger."""
        check_origin(key, self.keys.model)
        if self.origin not in ("", key.name):
            raise SettingsError(f"key {key.name} is not of this ledger, whose name is {self.origin}: name its own key")
        lines = [line_of(entry) for entry in entries]
        grown = self._tree.grown(leaf_hash(line.encode()) for line in lines)
        before = Checkpoint(key.name, self.size, self.root)
        after = Checkpoint(key.name, grown.size, grown.root)
        note = sign_note(f"{_DRAFT}\n{before.text}\n{after.text}", key)
        hashes = [text_of(one) for one in self._tree.hashes]
        return _packed({"draft": note, "entries": lines, "frontier": hashes, "keys": self.keys.note or self.foreign})

    def sign(self, draft: Draft, key: SigningKey) -> str:
        """Return the checkpoint of a draft. draft: `pending`; whoever has a key of the ledger may sign it."""
        return sign_note(Checkpoint(key.name, draft.after.size, draft.after.root).text, key)

    def dump(self) -> bytes:
        """Return all that `restore` needs: about a kilobyte. A draft that waits is not in it, and is read again."""
        edges = [edge for gap in self.gaps for edge in (gap.start, gap.stop)]
        dump = _Dump(
            size=self.size,
            hashes=self._tree.hashes,
            start=self.start,
            tail=self.tail,
            gaps=tuple(edges),
            strays=self.strays,
            checkpoint=self.checkpoint,
            origin=self.origin,
            alive=None if self.alive is None else line_of(self.alive),
            end=None if self.end is None else line_of(self.end),
            versions=tuple(self._versions),
            indexes=tuple(index for index, _ in self._versions.values()),
            digests=tuple(digest for _, digest in self._versions.values()),
            newest=self._newest,
            withdrawn=self._withdrawn.edges,
            keys=self.keys.note,
            foreign=self.foreign,
            revoked=self._revoked,
        )
        return bytes(msgpack.packb(asdict(dump)))

    @classmethod
    def restore(cls, data: bytes, keys: KeyRing) -> "Ledger":
        """Return the ledger as it was at `dump`. Raises InvalidRelease for other bytes."""
        ledger = cls(keys)
        with reading_fields("dump of a ledger"):
            dump = _Dump.read(data)
            ledger._tree = Frontier(dump.size, dump.hashes)
            ledger.start, ledger.tail, ledger.strays = dump.start, dump.tail, dump.strays
            ledger.gaps = list(map(range, dump.gaps[::2], dump.gaps[1::2]))
            ledger.checkpoint, ledger.origin = dump.checkpoint, dump.origin
            ledger.alive, ledger.end = _entry_or_none(Alive, dump.alive), _entry_or_none(End, dump.end)
            known = zip(dump.versions, dump.indexes, dump.digests, strict=True)
            ledger._versions = {version: (index, digest) for version, index, digest in known}
            ledger._newest, ledger._withdrawn, ledger._revoked = dump.newest, Runs(dump.withdrawn), dump.revoked
            # The user may have given the root key since, or have gone back to the one key that signed before.
            for note in filter(None, (dump.keys, dump.foreign)):
                try:
                    keys.take(note)
                except InvalidRelease:
                    ledger.foreign = note
        return ledger


def lines_of(data: bytes | None) -> list[str]:
    """Return the lines of the entries in a draft's record, [] for any other record. Nothing in it is verified."""
    with suppress(InvalidRelease):
        lines = _fields(data).get("entries")
        if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
            return lines
    return []


def page_record(note: str) -> bytes:
    """Return the record of a checkpoint. note: of `Ledger.sign`, with cosignatures of witnesses if there are any."""
    return _packed({"checkpoint": note})


def _entry_or_none(kind: type[_Kind], line: str | None) -> _Kind | None:
    entry = None if line is None else parse_line(line)
    if not isinstance(entry, kind | None):
        raise InvalidRelease("a dump of a ledger holds another entry than it says")
    return entry


def _packed(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _fields(data: bytes | None) -> dict[str, Any]:
    try:
        fields = json.loads(data or b"")
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidRelease("this is not a record of the ledger")
    return fields
