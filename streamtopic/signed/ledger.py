"""The ledger: every rule by which a reader trusts what it reads. Bytes in, state out; no I/O and no clock.

A ledger is a Merkle tree of entries that only grows. Its records come in pairs: a draft holds new entries, and a
checkpoint after it signs the tree with them. Two writers may draft at once, one of them may have slept for an hour,
and Redis may have been set back: the order of the records alone decides, so that no two checkpoints contradict each
other.

1.  A draft counts only if a key of the ledger has signed it, and if its hashes are those of the tree that it names:
    which entries are new follows from the size that it signs, and all entries from the root.
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.signed.canonical import Base64, Place, Runs, RunsText, Whole, parse, reading, typed, write
from streamtopic.signed.checkpoints import Checkpoint, Frontier, LedgerProof, Logged, leaf_hash
from streamtopic.signed.entries import Alive, End, Entry, Envelope, Keys, line_of, parse_line
from streamtopic.signed.release import Release, open_release
from streamtopic.signed.signing_keys import KeyRing, SigningKey, read_note, sign_note

__all__ = ["Draft", "Ledger", "page_record"]

_DRAFT = "streamtopic draft"
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
class _DraftRecord:
    """A record with new entries.

    draft: signed note with the size of the tree before and the checkpoint after them. entries: their lines.
    frontier: hashes of the tree before.
    keys: the newest list of keys, for readers who begin here; "" without one.
    """

    draft: str
    entries: tuple[str, ...]
    frontier: tuple[Base64, ...]
    keys: str


@dataclass(frozen=True, slots=True)
class _CheckpointRecord:
    """A record that completes a page. checkpoint: signed note."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class Draft:
    """New entries after a tree, which a key of the ledger has signed.

    before, frontier: the tree without and with them.
    after: its checkpoint.
    lines: the entries.
    ring: the keys that count for its checkpoint.
    offset: of its record.
    """

    before: Frontier
    frontier: Frontier
    after: Checkpoint
    lines: tuple[str, ...]
    ring: KeyRing = field(repr=False)
    offset: int


@dataclass(frozen=True, slots=True)
class _Placed:
    """The entry of a version. index: number of entries before it. release: SHA-256 of its bytes."""

    index: Whole
    release: str


@dataclass(eq=False)
class _Kept:
    """What a ledger keeps in a dump.

    tail: whether the first page that is read may be anywhere.
    tree: its frontier.
    gaps: indexes of entries that were not read: those before the first page, and those that the topic lacks.
    strays: number of records that were passed over; a reader who goes on from a dump may count some of them twice.
    checkpoint: the newest one, a signed note; "" before the first.
    origin: name of the ledger, "" before the first page.
    alive: the newest `alive`, None before the first. end: of the model, None without one.
    versions: number to the entry of the newest versions.
    newest: number of the newest version, 0 before the first. withdrawn: versions that must not be used.
    note: of the newest list of keys.
    foreign: a list of keys that a root has signed which is not known here; "" without one.
    revoked: how many revoked keys the entries that were taken take into account.
    """

    tail: bool = False
    tree: Frontier = field(default_factory=Frontier)
    gaps: RunsText = field(default_factory=Runs)
    strays: Whole = 0
    checkpoint: str = ""
    origin: str = ""
    alive: Alive | None = None
    end: End | None = None
    versions: dict[Place, _Placed] = field(default_factory=dict)
    newest: Whole = 0
    withdrawn: RunsText = field(default_factory=Runs)
    note: str = ""
    foreign: str = ""
    revoked: Whole = 0


class Ledger(_Kept):
    """What a reader knows of a ledger; see the module for its rules, and `_Kept` for further attributes.

    keys: that are trusted; newer lists of the ledger are taken in.
    pending: the draft that is the next page, and still lacks its checkpoint.
    page: the page that the last record completed, None if it completed none.
    outdated: whether a list has come that makes entries void which were taken already: read the ledger again.
    """

    def __init__(self, keys: KeyRing, *, tail: bool = False) -> None:
        super().__init__(tail=tail, revoked=len(keys.revoked))
        self.keys = keys
        self.pending: Draft | None = None
        self.page: Draft | None = None
        self.outdated = False
        self._ahead: Draft | None = None

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.tree.size

    @property
    def root(self) -> bytes:
        """Root of the tree."""
        return self.tree.root

    @property
    def missing(self) -> list[str]:
        """Which entries were not read, in words."""
        return [f"{first} to {last}" for first, last in self.gaps.pairs()]

    @property
    def waiting(self) -> list[Draft]:
        """The drafts that still lack their checkpoint: `pending`, and one after a tree that is ahead."""
        return [draft for draft in (self.pending, self._ahead) if draft is not None]

    def index_of(self, version: int) -> int | None:
        """Return the index of a version's entry, None for one that was not read."""
        return self.versions[version].index if version in self.versions else None

    def digest(self, version: int) -> str | None:
        """Return the SHA-256 of a version's bytes, hexadecimal, None for one that was not read."""
        return self.versions[version].release if version in self.versions else None

    def is_void(self, index: int) -> bool:
        """Whether an entry does not count, since a revoked key signed it."""
        return self.keys.void(index) is not None

    def take(self, data: bytes | None, offset: int = 0) -> tuple[Logged, ...]:
        """Take the value of the next record; return the entries that count now, without void ones and unknown kinds.

        offset: of the record.
        """
        self.page = None
        try:
            record = _record(data)
            if isinstance(record, _CheckpointRecord):
                return self._take_checkpoint(record.checkpoint)
            self._take_draft(self._opened(record, offset))
        except (InvalidRelease, UnicodeEncodeError):
            # JSON may hold halves of characters, and no text that is signed or hashed does.
            self.strays += 1
        return ()

    def _take_draft(self, draft: Draft) -> None:
        size = draft.before.size
        if size == self.size and self.pending is None and draft.before.root == self.root:
            self.pending = draft
        elif size > (self.size if self._ahead is None else self._ahead.before.size):
            self._ahead = draft
        else:
            raise InvalidRelease("it is a draft after another tree, or after one that has a next page already")

    def _opened(self, record: _DraftRecord, offset: int) -> Draft:
        """Return a draft whose signature and hashes are right. Raises InvalidRelease."""
        # Also if the draft is passed over: a thief who has a revoked key could lead a reader astray at the tail, if
        # nobody knows yet that it is revoked.
        self._learn(record.keys)
        ring = self.ring_with([parse_line(line) for line in record.entries if line.startswith(_KEYS_LINE)])
        text = read_note(record.draft).text
        after = Checkpoint.parse(text.split("\n", 2)[-1])
        _, signer = ring.open(record.draft, None if self.tail else after.size)
        before = Frontier(after.size - len(record.entries), record.frontier)
        frontier = before.grown(leaf_hash(line.encode()) for line in record.entries)
        # The root commits to all entries, and the note says from which one on they are new.
        whole = bool(record.entries) and frontier.root == after.root and text == _draft_text(before.size, after)
        if not whole or not after.origin == signer.name == (self.origin or signer.name):
            raise InvalidRelease("this is not a draft of the ledger, or its hashes are not those of its entries")
        return Draft(before, frontier, after, record.entries, ring, offset)

    def _take_checkpoint(self, note: str) -> tuple[Logged, ...]:
        claimed = Checkpoint.parse(read_note(note).text)
        draft = next((one for one in self.waiting if one.after == claimed), None)
        if draft is None:
            raise InvalidRelease("it is a checkpoint without its draft")
        Checkpoint.open(note, draft.ring, in_place=not self.tail)
        return self._accept(draft, note)

    def _accept(self, draft: Draft, note: str) -> tuple[Logged, ...]:
        first = draft.before.size
        if first > self.size:
            self.gaps |= Runs((self.size, first - 1))
        self.tree, self.checkpoint, self.origin = draft.frontier, note, draft.after.origin
        self.page, self.pending, ahead = draft, None, self._ahead
        if ahead is not None and ahead.before.size <= self.size:
            self.pending = ahead if (ahead.before.size, ahead.before.root) == (self.size, self.root) else None
            self._ahead = None
        # Before the entries: a list makes entries of its own page count, or void.
        self._learn(draft.ring.note)
        found = []
        for index, line in enumerate(draft.lines, start=first):
            try:
                entry = parse_line(line)
            except InvalidRelease:
                # A newer program wrote it: the tree has it, and this reader cannot use it.
                continue
            if isinstance(entry, Keys) and not self._learn(entry.note):
                self.foreign = entry.note
            if not self.is_void(index):
                self._apply(index, entry)
                found.append(Logged(index, entry, line))
        return tuple(found)

    def _learn(self, note: str) -> bool:
        """Take in a list of keys if it is newer; return whether it is one of this ledger."""
        try:
            self.keys.take(note)
        except InvalidRelease:
            return False
        # Another reader may have the same ring, and may have taken the list in before.
        void = self.keys.revoked[self.revoked :]
        self.revoked = len(self.keys.revoked)
        self.outdated |= any(self.tail or one.first < min(one.size, self.size) for one in void)
        return True

    def _apply(self, index: int, entry: Entry) -> None:
        match entry:
            case Envelope(model=self.keys.model, version=version) if version > self.newest:
                self.versions[version] = _Placed(index, entry.release)
                self.newest = version
                self.withdrawn |= entry.withdrawn
                if len(self.versions) > _VERSIONS:
                    del self.versions[min(self.versions)]
            case Alive():
                self.alive = entry
                self.newest = max(self.newest, entry.newest)
                self.withdrawn |= entry.withdrawn
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
        if newest and newest not in self.withdrawn and missing:
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
        known = self.versions.get(version)
        if known != _Placed(logged.index, entry.release) and (known or self._has_read(logged.index, version)):
            raise InvalidRelease(f"another entry than that of its proof counts in the ledger for version {version}")
        if hashlib.sha256(data).hexdigest() != entry.release:
            raise InvalidRelease(f"its bytes are not those of version {version} in the ledger")
        return open_release(data, entry, proof)

    def _has_read(self, index: int, version: int) -> bool:
        """Return whether the version's entry would be known if it stood here."""
        forgotten = len(self.versions) == _VERSIONS and version < min(self.versions)
        return index < self.size and index not in self.gaps and not forgotten

    def ring_with(self, entries: Iterable[Entry]) -> KeyRing:
        """Return the keys that count for a page with these entries, which may bring newer lists."""
        ring = self.keys
        for note in [entry.note for entry in entries if isinstance(entry, Keys)]:
            # A list of another root says nothing to a reader who has not that root's key.
            with suppress(InvalidRelease):
                ring = ring.with_list(note)
        return ring

    def draft(self, entries: Sequence[Entry], key: SigningKey) -> bytes:
        """Return the record of a draft after the present tree. key: of the ledger."""
        if self.origin not in ("", key.name):
            raise SettingsError(f"key {key.name} is not of this ledger, whose name is {self.origin}: name its own key")
        lines = tuple(map(line_of, entries))
        grown = self.tree.grown(leaf_hash(line.encode()) for line in lines)
        after = Checkpoint(key.name, grown.size, grown.root)
        note = sign_note(_draft_text(self.size, after), key)
        return write(_DraftRecord(note, lines, self.tree.hashes, self.keys.note or self.foreign)).encode()

    def sign(self, draft: Draft, key: SigningKey) -> str:
        """Return the checkpoint of a draft. draft: `pending`; whoever has a key of the ledger may sign it."""
        return sign_note(Checkpoint(key.name, draft.after.size, draft.after.root).text, key)

    def dump(self) -> str:
        """Return all that `restore` needs: about a kilobyte. A draft that waits is not in it, and is read again."""
        self.note = self.keys.note
        return write(self, _Kept)

    @classmethod
    def restore(cls, data: str, keys: KeyRing) -> "Ledger":
        """Return the ledger as it was at `dump`. Raises InvalidRelease for other texts."""
        kept, ledger = parse(_Kept, data, "dump of a ledger"), cls(keys)
        vars(ledger).update(vars(kept), foreign="")
        # The user may have given the root key since, or have gone back to the one key that signed before.
        for note in filter(None, (kept.note, kept.foreign)):
            try:
                keys.take(note)
            except InvalidRelease:
                ledger.foreign = note
        return ledger


def page_record(note: str) -> bytes:
    """Return the record of a checkpoint. note: of `Ledger.sign`, with cosignatures of witnesses if there are any."""
    return write(_CheckpointRecord(note)).encode()


def _draft_text(size: int, after: Checkpoint) -> str:
    """Return the text of a draft's note. size: entries of the tree before it. after: the tree with its own."""
    return f"{_DRAFT}\n{size}\n{after.text}"


def _record(data: bytes | None) -> _DraftRecord | _CheckpointRecord:
    with reading("record of the ledger"):
        record: _DraftRecord | _CheckpointRecord = typed(_DraftRecord | _CheckpointRecord, data or b"")
    return record
