"""Forward deletions from a wrong partition to the partition of their document, each at most once.

Where several keys name one document, a tombstone for each other key that was live is sent the same way, to the same
partition. So is the tombstone of an add that is suppressed, and the record of a suppression in whose place somebody
wrote another one.

The deletion is sent as a plain tombstone without a mark. So nobody can forge one, and a recount of the log gives the
same counts as ingest.

A tombstone that is sent twice would delete a document that was added between the two, from the log as well. So the
commit that moves the offset past a record also keeps a note: the deletion to send, and the end of its home partition at
that time. The tombstone is sent after the commit. A process that finds a note of another process first reads the home
from that end on. Any record of the document there is newer than the deletion and stands in its place: it is the
tombstone itself, or a record that replaced it and made compaction erase it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamtopic.streams import Message, pages

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from streamtopic.state import Forward, PartitionWriter
    from streamtopic.streams import EventLog, Record

__all__ = ["Forwarder"]

CLOCKS_MS = 60_000
"""How far the clocks of two brokers may be apart. Within this time a deletion wins over an add: it must not be lost."""

_AT_ONCE = 1_000


class Forwarder:
    """Sends the deletions that one partition has for others.

    state: the writer of the partition.
    topic: the documents topic.
    """

    def __init__(self, state: PartitionWriter, log: EventLog, topic: str) -> None:
        self._state = state
        self._log = log
        self._topic = topic
        # Notes that this writer has made and not yet acted on. Another process may have acted on any other.
        self._own: set[bytes] = set()
        # Name of a note to the end of its home, open transactions included, when this writer first saw the note.
        self._visible: dict[bytes, int] = {}
        self._notes: list[Forward] | None = None
        self._before: list[Forward] | None = None

    @property
    def waiting(self) -> int:
        """Number of deletions that are not yet in their own partition."""
        if self._notes is None:
            self._notes = self._state.forwards()
        return len(self._notes)

    def read_again(self) -> None:
        """Read the notes from Redis before the next step: a Redis that was set back may have some again."""
        self._notes = self._before = None

    def placed(self, forwards: Sequence[Forward]) -> list[Forward]:
        """Return the notes with the present end of each home; those for the own partition name its offset already."""
        here = self._state.partition
        homes = {forward.home for forward in forwards} - {here}
        ends = {home: self._log.written_end(self._topic, home) for home in homes}
        return [replace(forward, end=ends.get(forward.home, forward.end)) for forward in forwards]

    def noted(self) -> None:
        """Take notice that notes are being committed: whether that succeeds or not, they have to be read again."""
        self._before, self._notes = self._notes, None

    def committed(self, forwards: Sequence[Forward]) -> None:
        """Take notice that these notes were committed by this writer."""
        self._own.update(forward.name for forward in forwards)
        if self._before is not None:
            self._before.extend(forwards)
            self._before, self._notes = None, self._before

    def step(self) -> int:
        """Send the deletions that can be sent now; return how many notes were settled.

        May be repeated after any error.
        """
        if not self.waiting:
            return 0
        # Late notes wait until all is counted: one look at the home's log then serves all of them.
        end = self._log.end(self._topic, self._state.partition)
        behind = self._state.meta.next_offset < end
        # None until the end: after an error the notes are read from Redis again.
        known, self._notes = self._notes or [], None
        notes = [note for note in known if not (behind and note.late)]
        by_home: dict[int, list[Forward]] = {}
        for note in notes:
            by_home.setdefault(note.home, []).append(note)
        settled = set[bytes]()
        for home in sorted(by_home):
            ready = self._ready(home, by_home[home])
            overtaken = self._overtaken(home, ready)
            for start in range(0, len(ready), _AT_ONCE):
                self._settle(home, ready[start : start + _AT_ONCE], overtaken)
            settled.update(note.name for note in ready)
        self._notes = [note for note in known if note.name not in settled]
        return len(settled)

    def _ready(self, home: int, notes: list[Forward]) -> list[Forward]:
        """Return the notes of which it is certain by now whether they are still due."""
        foreign = {note.name for note in notes} - self._own
        doubtful = foreign - self._visible.keys()
        if doubtful:
            # They may have been sent, behind a transaction that is still open.
            written = self._log.written_end(self._topic, home)
            self._visible.update(dict.fromkeys(doubtful, written))
        end = self._log.end(self._topic, home)
        counted = self._state.live_elsewhere(home, ())
        after = -1 if counted is None else counted[0]
        readable = [note for note in notes if self._visible.get(note.name, 0) <= end]
        # Nobody waits for the receipt of a refused change, so it is sent only if the home holds the document. The home
        # knows that once it has counted up to the end that was noted.
        return [note for note in readable if note.asked or after >= note.end]

    def _settle(self, home: int, notes: list[Forward], overtaken: Container[bytes]) -> None:
        """Send the notes that are due, and strike all of them off."""
        refused = [note.document for note in notes if not note.asked]
        counted = self._state.live_elsewhere(home, refused)
        live = frozenset[bytes]() if counted is None else counted[1]
        wanted = [note for note in notes if note.asked or note.document in live]
        due = [note for note in wanted if note.name not in overtaken]
        if due:
            # If sending fails, nobody knows whether they were sent: then the home has to be read first.
            self._own.difference_update(note.name for note in due)
            records = [Message(note.document, note.value or None, note.headers, home) for note in due]
            self._log.append_many(self._topic, records)
        self._state.forwarded(notes)
        for note in notes:
            self._own.discard(note.name)
            self._visible.pop(note.name, None)

    def _overtaken(self, home: int, notes: Sequence[Forward]) -> set[bytes]:
        """Return the names of the notes whose home has a newer record of the same document."""
        wanted: dict[bytes, list[Forward]] = {}
        for note in notes:
            wanted.setdefault(note.document, []).append(note)
        found = set[bytes]()
        for record in self._records(home, notes):
            about = wanted.get(record.key or b"", ())
            found.update(note.name for note in about if _is_newer(record, note))
        return found

    def _records(self, home: int, notes: Sequence[Forward]) -> Iterator[Record]:
        """Yield the records of the home that may be newer than one of these notes."""
        here = home == self._state.partition
        starts = [note.end for note in notes if here or not note.late]
        # Newer records may lie before the end that a late note names, so the broker's times decide.
        late = [] if here else [note.time_ms for note in notes if note.late]
        if late:
            oldest = min(late) + CLOCKS_MS
            starts.append(self._log.offset_at(self._topic, home, oldest))
        if not starts:
            return
        offset = max(min(starts), self._log.begin(self._topic, home))
        end = self._log.end(self._topic, home)
        for page in pages(self._log, self._topic, home, offset, end):
            yield from page


def _is_newer(record: Record, note: Forward) -> bool:
    """Return whether a record of the home came after the deletion of a note."""
    if record.offset >= note.end:
        return True
    # Late notes come from an outage or a recount: their own tombstones may be among these records, too.
    return note.late and record.timestamp_ms > note.time_ms + CLOCKS_MS
