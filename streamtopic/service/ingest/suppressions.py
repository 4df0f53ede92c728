"""Refuses the adds of suppressed ids and people, as the requests topic says.

Redis has a copy of the records. So whoever writes over one in the topic changes nothing: it is written again from the
copy, and a copy that is lost is made from the topic.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from streamtopic.documents.events import Delete, Heartbeat
from streamtopic.documents.suppression import Suppression, SuppressionKey, suppressed
from streamtopic.errors import SettingsError
from streamtopic.service.ingest.decode import OwnTombstone
from streamtopic.state import Suppressed
from streamtopic.streams import Message, TopicNames, pages

if TYPE_CHECKING:
    from streamtopic.service.ingest.decode import Decoded, Event
    from streamtopic.state import Connection
    from streamtopic.streams import EventLog, Record

__all__ = ["Suppressions"]

logger = logging.getLogger(__name__)


class Suppressions:
    """Who is suppressed, for all partitions of one process.

    key: of the operator, None in a process without it.
    """

    def __init__(self, connection: Connection, log: EventLog, model: str, key: SuppressionKey | None) -> None:
        self._kept = Suppressed(connection, model)
        self._log = log
        self._names = TopicNames(model)
        self._key = key
        self._said: dict[bytes, Suppression] = {}
        self._held = frozenset[bytes]()
        self._next: int | None = None
        # Partition to the offsets of the adds that were refused last: what has its tombstone stays refused.
        self._refused: dict[int, set[int]] = {}

    def check(self) -> None:
        """Make the key that of the model if it has none. Raises SettingsError if it has another one."""
        have = "" if self._key is None else self._key.fingerprint
        wanted = self._kept.fingerprint(have)
        if wanted != have:
            raise SettingsError(
                f"the model has suppressions of key {wanted}, this process has {have or 'none'}: put "
                "suppression.key into its folder of keys, or restore it from your backup; without it those who were "
                "forgotten could come back"
            )

    def made_ms(self, digests: list[bytes]) -> int:
        """Return when something was said last about these ids and subjects, milliseconds since 1970; 0 for never."""
        self.catch_up()
        return max((self._said[one].made_ms for one in digests if one in self._said), default=0)

    def refuse(self, decoded: Decoded) -> Decoded:
        """Refuse the adds that suppression is about, and mark the tombstones of such adds, which are the service's own.

        The log has the tombstones of all adds that are refused then. Whatever was said before a record was appended
        holds for it. Raises ComponentUnreachable.
        """
        key = self._key
        if key is None:
            return decoded
        self.catch_up()
        records = decoded.records
        # Those that the service wrote after suppressed adds.
        events: dict[int, Event] = {
            k: OwnTombstone()
            for k, one in enumerate(records)
            if key.refused(one.partition, one.value, one.headers) is not None
        }
        partition, start = records[0].partition, records[0].offset
        refused = {offset for offset in self._refused.get(partition, ()) if offset >= start}
        if not (self._held or events or refused):
            return decoded
        others = (k for k in range(len(records)) if k not in events)
        adds = [k for k in others if records[k].offset in refused or self._is_refused(key, decoded, k)]
        new = [records[k] for k in adds if records[k].offset not in refused]
        if new:
            gone = [Message(one.key, None, key.refusal(partition, one.offset), partition) for one in new]
            self._log.append_many(self._names.documents, gone)
        self._refused[partition] = refused | {one.offset for one in new}
        events.update((k, suppressed()) for k in adds)
        return replace(decoded, others={**decoded.others, **events})

    def _is_refused(self, key: SuppressionKey, decoded: Decoded, k: int) -> bool:
        """Return whether a record is about somebody who is suppressed. Nobody's delete is ever refused."""
        document = decoded.documents.ids[k]
        if not (self._held and document) or isinstance(decoded.others.get(k), Delete | Heartbeat):
            return False
        subjects = decoded.subjects.get(k, ())
        return key.of_document(document) in self._held or not self._held.isdisjoint(map(key.of_subject, subjects))

    def catch_up(self) -> None:
        """Read the records that came since the last time, from the beginning of the topic in the first.

        After an error the same records are read again.
        """
        key, end, start = self._key, self._log.end(self._names.requests, 0), self._next
        if key is None or end == start:
            return
        again = dict[bytes, Suppression]()
        if start is None or end < start:
            start = self._log.begin(self._names.requests, 0)
            kept = (key.read(*record) for record in self._kept.records().items())
            self._said |= {said.digest: said for said in kept if said is not None}
            # Those that the topic has still are taken out again.
            again.update(self._said)
        for page in pages(self._log, self._names.requests, 0, start, end):
            for record in page:
                self._take(key, record, again)
        if again:
            extra = {"event": "suppressions_restored", "suppressions": len(again)}
            logger.warning("%d suppressions were written over or lost, and are written again", len(again), extra=extra)
            records = [Message(said.key, key.value(said), partition=0) for said in again.values()]
            self._log.append_many(self._names.requests, records)
        self._held = frozenset(digest for digest, said in self._said.items() if said.suppressed)
        self._next = end

    def _take(self, key: SuppressionKey, record: Record, again: dict[bytes, Suppression]) -> None:
        """Let what a record says hold. again: gets what it was written over, if that holds still."""
        digest = Suppression.digest_in(record.key)
        if not digest:
            return
        said = key.read(record.key, record.value)
        if said is not None and said.outranks(self._said.get(digest)):
            self._said[digest] = said
            self._kept.keep(said.key, key.value(said))
        again.pop(digest, None)
        holds = self._said.get(digest)
        # Compaction keeps this record alone, so the right one has to come after it.
        if holds is not None and said != holds:
            again[digest] = holds
