"""Deletions that came to another partition than their document's: each is sent to that one, at most once.

What is sent is a tombstone like any other: no header says what it means, so nobody can forge one, and a recount of the
log gives what ingest gives. A tombstone that is sent twice would take away what was added between the two, from the log
as well. So the commit that moves the offset past a record also notes what is to be sent for it, and where its home
ended by then. It is sent after the commit. Whoever finds a note that somebody else has left looks at the home from
there on: any record of the document is newer than the deletion and has taken its place, be it the tombstone itself, or
one that replaced it and made compaction erase it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from streamtopic.streams import Message, pages

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from streamtopic.state import Forward, PartitionWriter
    from streamtopic.streams import EventLog, Record

__all__ = ["Forwarder"]

CLOCKS_MS = 60_000
"""How far the clocks of two brokers may be apart: within it, a deletion takes away rather than being lost."""

_AT_ONCE = 1_000


class Forwarder:
    """Sends what one partition has for others. state: the partition, of which this is the writer."""

    def __init__(self, state: PartitionWriter, log: EventLog, topic: str) -> None:
        self._state = state
        self._log = log
        self._topic = topic
        # Notes that this writer has made and not yet acted on; all others may have been acted on by somebody.
        self._own: set[int] = set()
        self._visible: dict[int, int] = {}
        self._notes: list[Forward] | None = None
        self._before: list[Forward] | None = None

    @property
    def waiting(self) -> int:
        """Deletions that are not yet where they belong."""
        if self._notes is None:
            self._notes = self._state.forwards()
        return len(self._notes)

    def placed(self, forwards: Sequence[Forward]) -> list[Forward]:
        """Return what is to be noted, with the end of each home as it is now."""
        homes = {forward.home for forward in forwards}
        ends = {home: self._log.written_end(self._topic, home) for home in homes}
        return [replace(forward, end=ends[forward.home]) for forward in forwards]

    def noted(self) -> None:
        """Take notice that notes are being committed: whatever comes of it, all of them have to be read again."""
        self._before, self._notes = self._notes, None

    def committed(self, forwards: Sequence[Forward]) -> None:
        """Take notice that these notes are this writer's own."""
        self._own.update(forward.offset for forward in forwards)
        if self._before is not None:
            self._before.extend(forwards)
            self._before, self._notes = None, self._before

    def step(self) -> int:
        """Send what can be sent now; how many notes were dealt with. May be repeated after any error."""
        if not self.waiting:
            return 0
        # One look at the home's log will do for all that are late.
        behind = self._state.meta.next_offset < self._log.end(self._topic, self._state.partition)
        known, self._notes = self._notes or [], None
        notes = [note for note in known if not (behind and note.late)]
        struck = set[int]()
        for home, some in groupby(sorted(notes, key=lambda note: note.home), key=lambda note: note.home):
            ready = self._ready(home, list(some))
            overtaken = self._overtaken(home, ready)
            for start in range(0, len(ready), _AT_ONCE):
                self._deal(home, ready[start : start + _AT_ONCE], overtaken)
            struck.update(note.offset for note in ready)
        self._notes = [note for note in known if note.offset not in struck]
        return len(struck)

    def _ready(self, home: int, notes: list[Forward]) -> list[Forward]:
        """Return those of which it can be said whether they are still due."""
        doubtful = [n.offset for n in notes if n.offset not in self._own and n.offset not in self._visible]
        if doubtful:
            # They may have been sent, behind a transaction that is still open.
            self._visible.update(dict.fromkeys(doubtful, self._log.written_end(self._topic, home)))
        end = self._log.end(self._topic, home)
        counted = self._state.live_elsewhere(home, ())
        after = -1 if counted is None else counted[0]
        readable = [note for note in notes if self._visible.get(note.offset, 0) <= end]
        # Nobody waits for a receipt of a change that was refused: it is sent only to where there is such a document.
        return [note for note in readable if note.asked or after >= note.end]

    def _deal(self, home: int, notes: list[Forward], overtaken: Container[int]) -> None:
        """Send those of these notes that are due, and strike them off."""
        counted = self._state.live_elsewhere(home, [note.document for note in notes if not note.asked])
        live = frozenset[bytes]() if counted is None else counted[1]
        due = [note for note in notes if note.offset not in overtaken and (note.asked or note.document in live)]
        if due:
            # If this fails, they may have been sent or not.
            self._own.difference_update(note.offset for note in due)
            self._log.append_many(self._topic, [Message(n.document, None, n.headers, home) for n in due])
        self._state.forwarded(notes)
        for note in notes:
            self._own.discard(note.offset)
            self._visible.pop(note.offset, None)

    def _overtaken(self, home: int, notes: Sequence[Forward]) -> set[int]:
        """Return the offsets of those whose home has a newer record of the same document."""
        wanted: dict[bytes, list[Forward]] = {}
        for note in notes:
            wanted.setdefault(note.document, []).append(note)
        found = set[int]()
        for record in self._records(home, notes):
            about = wanted.get(record.key or b"", ())
            found.update(note.offset for note in about if _is_newer(record, note))
        return found

    def _records(self, home: int, notes: Sequence[Forward]) -> Iterator[Record]:
        """Yield the records of the home that may be newer than one of these."""
        starts = [note.end for note in notes if not note.late]
        if late := [note.time_ms for note in notes if note.late]:
            starts.append(self._log.offset_at(self._topic, home, min(late) + CLOCKS_MS))
        if not starts:
            return
        offset = max(min(starts), self._log.begin(self._topic, home))
        end = self._log.end(self._topic, home)
        for page in pages(self._log, self._topic, home, offset, end):
            yield from page


def _is_newer(record: Record, note: Forward) -> bool:
    if record.offset >= note.end:
        return True
    # A note is late after an outage, or where everything is counted anew: its own tombstone may be among these, too.
    return note.late and record.timestamp_ms > note.time_ms + CLOCKS_MS
