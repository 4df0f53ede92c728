"""Following the topic of a ledger."""

from collections.abc import Callable, Iterator

from streamtopic.signed.checkpoints import Logged
from streamtopic.signed.ledger import Draft, Ledger
from streamtopic.signed.signing_keys import KeyRing
from streamtopic.streams import EventLog, TopicNames

__all__ = ["LedgerReader"]

# The last word of a service is among the last records, unless somebody has written others after it.
_TAIL_RECORDS = 16


def _ignore(_: Draft) -> None:
    """Take no notice."""


class LedgerReader:
    """Follows a model's ledger; each record is read once.

    keys: the key of the ledger, or the root key; lists in the ledger are taken in.
    tail: whether to begin at the last records: for readers who want to know what holds now, and not what was.
    on_page: told each page that counts, with all its entries.
    ledger: what was read so far.
    offset: where to continue; None before the first read.
    restarts: how often the ledger was read again, since by a newer list of keys entries that were taken are void, or
        pages that were passed over count: what was made of entries before is to be made again, too.
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
        on_page: Callable[[Draft], None] = _ignore,
    ) -> None:
        """Begin at the begin of the topic, at its tail, or at `offset`.

        dump: of the ledger at `offset`; without it the reader knows nothing of what came before.
        """
        self._log = log
        self._topic = TopicNames(model).ledger
        self._keys = keys
        self._tail = tail
        self._on_page = on_page
        self._listed = keys.sequence > 0
        self.ledger = Ledger.restore(dump, keys) if dump else Ledger(keys)
        self.offset = offset
        self.restarts = 0

    @property
    def resume(self) -> int:
        """The offset at which another reader goes on with a dump of this ledger: drafts that wait are read again."""
        return min([*(draft.offset for draft in self.ledger.waiting), self.offset or 0])

    def read(self, until: int | None = None) -> Iterator[Logged]:
        """Yield each entry that counts now, up to the end of the log.

        until: an offset at which it is enough, for whoever knows that there is a record before it.

        Raises ComponentUnreachable, StateMismatch if the topic ends before the place that was reached.
        """
        if self._log.partitions(self._topic) == 0:
            return
        if self.offset is None:
            self.offset = self._log.begin(self._topic, 0)
            if self._tail:
                yield from self._from_tail()
                return
        yield from self._onwards(until)

    def catch_up(self) -> list[Logged]:
        """Read to the end of the topic; return the entries that count now. Raises as `read`."""
        return list(self.read())

    def _onwards(self, until: int | None = None) -> Iterator[Logged]:
        while self.offset is not None and (records := self._log.read(self._topic, 0, self.offset)):
            for record in records:
                found = self.ledger.take(record.value, record.offset)
                if self.ledger.page is not None:
                    self._on_page(self.ledger.page)
                self.offset = record.next_offset
                yield from found
            # Before its first list a reader with the root key does not know the keys of the pages that are before it.
            unread = 0 in self.ledger.gaps and not (self._tail or self._listed) and self._keys.sequence > 0
            if self.ledger.outdated or unread:
                self._begin_anew()
                if self._tail:
                    yield from self._from_tail()
                    return
            elif until is not None and self.offset >= until:
                return

    def _begin_anew(self) -> None:
        # The lists that make entries void are known from here on.
        self.ledger = Ledger(self._keys)
        self.offset = self._log.begin(self._topic, 0)
        self._listed = True
        self.restarts += 1

    def _from_tail(self) -> Iterator[Logged]:
        """Begin so far back that the last word of the service is read."""
        begin = self._log.begin(self._topic, 0)
        end = self._log.end(self._topic, 0)
        back = _TAIL_RECORDS
        while True:
            start = max(begin, end - back)
            self.ledger = Ledger(self._keys, tail=start > 0)
            self.offset = start
            found = list(self._onwards())
            if self.ledger.alive is not None or start == begin:
                yield from found
                return
            back *= 8
