"""Writing the ledger: pages are appended by the order of the log, and the index in Redis follows.

A page is a draft, and after it the checkpoint that signs it (signed/ledger.py has the rules). A writer appends a draft
after the ledger as it has read it, and reads on: the first draft in the topic is the next page, whoever wrote it. Only
then is the checkpoint signed, so two writers, or one that slept while Redis was set back, never sign two histories.

The index in Redis:

    ledger:head          the ledger as it was read, and the offset at which to go on
    ledger:tiles         8 bytes for each 256 entries: the offset of the draft that holds the first of them
    ledger:nodes         32 bytes for each 256 entries that are complete: the hash of that subtree
    ledger:names:NNNN    sets of numbers, each a part of a name's hash and the index of an entry

Whoever finds it older, since Redis was set back, reads on from `head`. Numbers in small sets take 8 bytes each, so a
million receipts with three names each take about 30 MB.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from streamtopic.errors import SettingsError, StateError, StateMismatch
from streamtopic.signed import Envelope, IndexedLedger, LedgerIndex, line_of, page_record, parse_line
from streamtopic.state.connection import ModelKeys, Stale
from streamtopic.streams import Message, TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streamtopic.service.publish.witnesses import Witnesses
    from streamtopic.signed import Entry, KeyRing, SigningKey
    from streamtopic.state import Connection
    from streamtopic.state.connection import Check, Command
    from streamtopic.streams import EventLog

__all__ = ["LedgerWriter", "RedisIndex", "cut_of", "recorded"]

_LOOK_SECONDS = 60.0
# What a topic must be, so that it loses no record of its kind.
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED = {"cleanup.policy": "compact"}
_PLACE_BYTES = 8
_HASH_BYTES = 32


class RedisIndex(LedgerIndex):
    """The index of one model. What was added since the last write is in memory, and found as well.

    writes: whether this process writes the index. If not, what it reads further stays in memory; a service may write at
        the same time, and what it adds is the same.
    """

    def __init__(self, connection: Connection, model: str, *, writes: bool = True) -> None:
        super().__init__()
        self._connection = connection
        self._keys = ModelKeys(model)
        self._writes = writes
        # The offset that the index in Redis had reached when it was read or written last; -1 for one without a head.
        self._base = -1

    def head(self) -> tuple[str, int] | None:
        """See LedgerIndex. What is in memory goes."""
        super().clear()
        dump, offset = self._connection.call("HMGET", self._named("head"), "dump", "offset")
        self._base = -1 if offset is None else int(offset)
        return None if dump is None else (dump.decode(), self._base)

    def save(self, dump: str, offset: int) -> bool:
        """See LedgerIndex. May be repeated."""
        if not self._writes:
            return True
        head, tiles, nodes = (self._named(name) for name in ("head", "tiles", "nodes"))
        steps: list[Command] = []
        for tile, place in self.places.items():
            steps.append(("SETRANGE", tiles, tile * _PLACE_BYTES, place.to_bytes(_PLACE_BYTES)))
        steps += [("SETRANGE", nodes, tile * _HASH_BYTES, node) for tile, node in self.nodes.items()]
        steps += [("SADD", self._set(number), *members) for number, members in self.names.items()]
        steps.append(("HSET", head, "dump", dump, "offset", offset))
        reached = "" if self._base < 0 else str(self._base)
        # A Redis that was set back lacks what lies between, and would seem to have it under a newer head.
        known: Check = (("HGET", head, "offset"), reached, "the index has moved")
        if isinstance(self._connection.change(steps, guards=[known], done=(("HGET", head, "dump"), dump)), Stale):
            return False
        super().clear()
        self._base = offset
        return True

    def clear(self) -> None:
        """See LedgerIndex. The head goes: all that follows from it is made again."""
        super().clear()
        if self._writes:
            self._connection.call("DEL", self._named("head"))
            self._base = -1

    def members(self, numbers: Sequence[int]) -> list[Iterable[int]] | None:
        """See LedgerIndex. None if the index was set back to before the place from which this one has read on."""
        reached: Command = ("HGET", self._named("head"), "offset")
        sets = [("SMEMBERS", self._set(number)) for number in numbers]
        # At both ends: it may be set back between the two.
        before, *answers, after = self._connection.batch([reached, *sets, reached])
        if min(-1 if offset is None else int(offset) for offset in (before, after)) < self._base:
            return None
        own = super().members(numbers) or []
        return [[*map(int, answer), *added] for answer, added in zip(answers, own, strict=True)]

    def place(self, tile: int) -> int | None:
        """See LedgerIndex."""
        if tile in self.places:
            return self.places[tile]
        first = tile * _PLACE_BYTES
        data = self._connection.call("GETRANGE", self._named("tiles"), first, first + _PLACE_BYTES - 1)
        return int.from_bytes(data) if len(data) == _PLACE_BYTES else None

    def hashes(self, first: int, end: int) -> list[bytes]:
        """See LedgerIndex."""
        data = self._connection.call("GETRANGE", self._named("nodes"), first * _HASH_BYTES, end * _HASH_BYTES - 1)
        found = [bytes(data[at : at + _HASH_BYTES]) for at in range(0, len(data), _HASH_BYTES)]
        return found + super().hashes(first + len(found), end)

    def proved(self) -> int:
        """Return how many keys had been revoked when the proofs of versions were made."""
        return int(self._connection.call("HGET", self._named("head"), "proved") or 0)

    def note_proved(self, revoked: int) -> None:
        """Note that the proofs of versions were made when so many keys had been revoked."""
        self._connection.call("HSET", self._named("head"), "proved", revoked)

    def _set(self, number: int) -> str:
        return self._named(f"names:{number:04x}")

    def _named(self, name: str) -> str:
        return self._keys.named(f"ledger:{name}")


class LedgerWriter(IndexedLedger):
    """The ledger of a model, followed by its index in Redis, and written if there is a signing key.

    signing_key: None for a process that only reads, Redis as well as the ledger.
    witnesses: cosign checkpoints; None for none.
    """

    index: RedisIndex

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
        super().__init__(log, model, keys, RedisIndex(connection, model, writes=signing_key is not None))
        self._names = TopicNames(model)
        self._signing_key = signing_key
        self._witnesses = witnesses
        self._clock = clock
        self._looked = -_LOOK_SECONDS

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
        if key.public not in self.ledger.ring_with(entries).trusted:
            raise SettingsError(
                f"signing key {key.public.key_id} is not among the keys that sign this ledger, or was revoked: put the "
                "key that signs now, which `streamtopic keys rotate` made, in the place of signing.key"
            )
        self._look_at_topics()
        size = self.ledger.size
        if self.ledger.pending is None:
            self._write(self.ledger.draft(entries, key))
        self.complete()
        page = self.page
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
                note = self._witnesses.cosign(note, partial(self.consistency, draft))
            self._write(page_record(note))

    def _write(self, record: bytes) -> None:
        """Append a record to the topic, and read on until it was read."""
        ((_, offset),) = self._log.append_many(self._names.ledger, [Message(None, record, partition=0)])
        # Not to the end of the topic: each request to Kafka is one that a receipt waits for.
        self.catch_up(offset + 1)

    def _look_at_topics(self) -> None:
        now = self._clock()
        if now - self._looked >= _LOOK_SECONDS:
            _refuse_losing(self._log, self._names.ledger, _KEPT)
            _refuse_losing(self._log, self._names.releases, _COMPACTED)
            self._looked = now

    def _key(self) -> SigningKey:
        if self._signing_key is None:
            raise SettingsError("there is no signing.key here: this process may read the ledger, and not write it")
        return self._signing_key


def _refuse_losing(log: EventLog, topic: str, kept: Mapping[str, str]) -> None:
    """Raise StateMismatch where a topic would lose records that must be kept. kept: name to the value that keeps."""
    have = log.settings(topic)
    # A log in files has no settings, and keeps every record.
    losing = [f"{name}={have[name]}" for name, value in kept.items() if have.get(name) not in {None, value}]
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
    """Return, by partition, the offset up to which a recorded version reflects deletions; {} without a record."""
    return {int(partition): int(offset) for partition, offset in record.get("cut", {}).items()}
