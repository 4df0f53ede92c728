"""The chain of receipts and completions: each names its number and the digest of the one before, so that gaps show.

The receipts topic only grows: nothing in it is compacted, replaced or reordered. So its order alone decides which
receipts count: the first signed record for the next place whose previous digest fits. All other records are strays,
whoever wrote them. Every reader passes them over, and their deletions get another receipt in the chain.

Chain           decides which links belong to the chain
ReceiptReader   follows the receipts topic
audit           checks the lines of a file, without the service (export_line: one such line)
"""

import base64
import binascii
import hashlib
import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed.deletion_receipt import (
    COMPLETIONS,
    Completion,
    Link,
    Receipt,
    SubjectReceipt,
    open_any,
)
from streamtopic.signed.signing_keys import Verifier
from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["Audit", "Chain", "ChainHead", "ReceiptReader", "audit", "digest_of", "digests_of", "export_line"]


def digest_of(data: bytes) -> str:
    """Return the digest by which the next link names these sealed bytes: SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest link of a chain.

    sequence: its number; 0 before the first.
    digest: of its sealed bytes; "" before the first.
    """

    sequence: int = 0
    digest: str = ""


class Chain:
    """Decides which receipts and completions of a model belong to the chain; it keeps 16 bytes of each.

    head: the newest link.
    lost: ranges of numbers that the log lacks, after which the chain goes on.
    """

    def __init__(self) -> None:
        self.head = ChainHead()
        self.lost: list[range] = []
        self._places: dict[int, _Places] = {}
        self._waiting: dict[int, list[tuple[Link, str]]] = {}
        self._stray_digests: set[str] = set()

    def __len__(self) -> int:
        """Return the number of receipts in the chain, without completions."""
        receipts = [places for partition, places in self._places.items() if partition != COMPLETIONS]
        return sum(map(len, receipts))

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Whether the delete at this (partition, offset) has its receipt."""
        partition, offset = place
        places = self._places.get(partition)
        return places is not None and places.find(offset) is not None

    @property
    def strays(self) -> int:
        """Number of links that were passed over, because another one has their place."""
        return len(self._stray_digests)

    def between(self, partition: int, begin: int, end: int) -> int:
        """Return how many deletes at offsets from `begin` up to and without `end` have their receipt."""
        places = self._places.get(partition)
        return 0 if places is None else places.between(begin, end)

    def holds(self, link: Link, digest: str) -> bool:
        """Whether the chain holds this link with exactly these bytes."""
        places = self._places.get(link.partition)
        return places is not None and places.find(link.offset) == _short(digest)

    def is_stray(self, digest: str) -> bool:
        """Whether a link with this digest was passed over."""
        return digest in self._stray_digests

    def take(self, link: Link, digest: str) -> list[Link]:
        """Take the next verified link of the log. Returns the links that join the chain now, in its order.

        digest: of the link's sealed bytes.
        """
        # A publisher that was killed sends its bytes again.
        if self.holds(link, digest):
            return []
        # The link before this one is not in the log: records are lost, or a compaction of former times has moved it.
        ahead = link.sequence > self.head.sequence + 1
        if ahead and link.previous not in self._stray_digests:
            waiting = self._waiting.setdefault(link.sequence, [])
            waiting.append((link, digest))
            return []
        if not self._continues(link):
            self._stray_digests.add(digest)
            return []
        self._accept(link, digest)
        return [link, *self._continue()]

    def settle(self) -> list[Link]:
        """Go on past links that are lost, at the end of the log. Returns the links that join the chain now."""
        accepted: list[Link] = []
        while self._waiting:
            number = min(self._waiting)
            if number > self.head.sequence + 1:
                # The first in the log that waits for this number counts; the one before it is known by its digest.
                first, _ = self._waiting[number][0]
                before = ChainHead(number - 1, first.previous)
                self.skip_to(before)
            accepted += self._continue()
        return accepted

    def skip_to(self, head: ChainHead) -> None:
        """Continue from `head` although the log has lost the links up to it."""
        gap = range(self.head.sequence + 1, head.sequence + 1)
        self.lost.append(gap)
        self.head = head

    def _continue(self) -> list[Link]:
        """Accept the links that waited for the one just accepted; their competitors are strays."""
        accepted: list[Link] = []
        for number in sorted(self._waiting):
            if number > self.head.sequence + 1:
                break
            for link, digest in self._waiting.pop(number):
                if self._continues(link):
                    self._accept(link, digest)
                    accepted.append(link)
                elif not self.holds(link, digest):
                    self._stray_digests.add(digest)
        return accepted

    def _continues(self, link: Link) -> bool:
        head = self.head
        follows = link.sequence == head.sequence + 1 and link.previous == head.digest
        # A second receipt of one deletion would count it twice, however well it is chained.
        return follows and (link.partition, link.offset) not in self

    def _accept(self, link: Link, digest: str) -> None:
        places = self._places.setdefault(link.partition, _Places())
        places.add(link.offset, _short(digest))
        self.head = ChainHead(link.sequence, digest)


class _Places:
    """Offsets of one partition's deletions that have a receipt, each with the first eight bytes of its digest.

    Arrays, since the topic keeps its receipts for ever, and Python objects would take several times these 16 bytes.
    """

    def __init__(self) -> None:
        self._offsets = array("q")
        self._digests = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    def find(self, offset: int) -> int | None:
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset:
            return None
        return self._digests[place]

    def between(self, begin: int, end: int) -> int:
        first = bisect_left(self._offsets, begin)
        last = bisect_left(self._offsets, end)
        return max(last - first, 0)

    def add(self, offset: int, digest: int) -> None:
        place = bisect_left(self._offsets, offset)
        self._offsets.insert(place, offset)
        self._digests.insert(place, digest)


def _short(digest: str) -> int:
    # 8 of 32 bytes are enough to tell two signed receipts of one deletion apart.
    return int(digest[:16], 16)


def _ignore(*_: object) -> None:
    """Take no notice."""


def _nothing_new() -> bool:
    return False


class ReceiptReader:
    """Follows a model's receipts topic; each record is read once.

    Anybody who may write to the topic can put anything there. The reader passes over each record that is not a receipt
    or completion of this model signed with `key`.

    note: called with every receipt and its offset.
    learn: called where a record names an unknown key. It takes in newer key lists, and returns whether there were any.
    chain: the chain as far as the topic was read.
    completions: those in the chain, in its order.
    covering: id of each covering receipt of a subject to it and its offset. They stand beside the chain.
    skipped: number of records that are none of these.
    """

    def __init__(
        self,
        log: EventLog,
        model: str,
        key: Verifier,
        note: Callable[[Receipt, int], None] = _ignore,
        learn: Callable[[], bool] = _nothing_new,
    ) -> None:
        self._log = log
        self._model = model
        self._topic = TopicNames(model).receipts
        self._key = key
        self._note = note
        self._learn = learn
        # Offset of the first record that named a key which was not known then.
        self._unknown: int | None = None
        self._offset: int | None = None
        self.chain = Chain()
        self.completions: list[Completion] = []
        self.covering: dict[str, tuple[SubjectReceipt, int]] = {}
        self._covered_ms: dict[str, int] = {}
        self.skipped = 0

    def read(self) -> Iterator[Receipt]:
        """Yield receipts that have joined the chain since the last call, in its order, up to the end of the log.

        Raises ComponentUnreachable.
        """
        if self._log.partitions(self._topic) == 0:
            return
        begin = self._log.begin(self._topic, 0)
        self._offset = begin if self._offset is None else max(self._offset, begin)
        if self._unknown is not None and self._learn():
            self._offset, self._unknown = max(self._unknown, begin), None
        while records := self._log.read(self._topic, 0, self._offset):
            for record in records:
                joined = self._take(record)
                yield from self._receipts(joined)
                self._offset = record.next_offset
        # Only here is it certain that the missing links are lost, and do not come later in the log.
        joined = self.chain.settle()
        yield from self._receipts(joined)

    def catch_up(self) -> int:
        """Read to the end of the log, so that `chain`, `completions` and `covering` are those of now.

        Returns how many receipts have joined the chain since the last call. Raises ComponentUnreachable.
        """
        return sum(1 for _ in self.read())

    def at(self, offset: int) -> Receipt | None:
        """Return the chain's receipt at an offset that was noted, None if the record there is a stray."""
        records = self._log.read(self._topic, 0, offset, 1)
        # A log that has lost the record answers with the next one.
        if not records or records[0].offset != offset:
            return None
        found = self._chained(records[0])
        return found if isinstance(found, Receipt) else None

    def records(self, ids: AbstractSet[bytes] | None = None, start: int = 0) -> Iterator[tuple[Link, Record]]:
        """Yield each link of the chain with its record, from the start of the log up to where `read` has come.

        ids: keys of the wanted records; None for all.
        start: the offset to begin at.
        """
        # A publisher that was killed may have written the same bytes twice.
        seen = set[int]()
        begin = self._log.begin(self._topic, 0)
        offset = max(begin, start)
        while offset < (self._offset or 0) and (records := self._log.read(self._topic, 0, offset)):
            for record in records:
                if ids is not None and record.key not in ids:
                    continue
                link = self._chained(record)
                if link is not None and link.sequence not in seen:
                    seen.add(link.sequence)
                    yield link, record
            offset = records[-1].next_offset

    def covering_records(self) -> Iterator[tuple[SubjectReceipt, Record]]:
        """Yield each covering receipt with its record, in the order of the topic."""
        for receipt, offset in self.covering.values():
            records = self._log.read(self._topic, 0, offset, 1)
            # A log that has lost the record answers with the next one.
            if records and records[0].offset == offset:
                yield receipt, records[0]

    def covered_ms(self, name: str) -> int | None:
        """Return when the newest covering receipt of this id was published, None where none was read.

        In milliseconds since 1970, by the log's clock. A request that was sent again has one for each time.
        """
        return self._covered_ms.get(name)

    def _receipts(self, links: Iterable[Link]) -> Iterator[Receipt]:
        for link in links:
            if isinstance(link, Completion):
                self.completions.append(link)
            else:
                yield link

    def _take(self, record: Record) -> list[Link]:
        try:
            link = self._opened(record)
        except InvalidRelease:
            self.skipped += 1
            return []
        if isinstance(link, SubjectReceipt):
            # A publisher that was killed may sign it again; the first one counts, as in the chain.
            self.covering.setdefault(link.id, (link, record.offset))
            self._covered_ms[link.id] = record.timestamp_ms
            return []
        # A stray is noted as well: it may turn out only later that it does not belong to the chain.
        if isinstance(link, Receipt):
            self._note(link, record.offset)
        digest = digest_of(record.value or b"")
        return self.chain.take(link, digest)

    def _opened(self, record: Record) -> Link | SubjectReceipt:
        while True:
            try:
                return self._open(record)
            except UnknownKey:
                if not self._learn():
                    # Its key may be in a list that comes later. Records are then read again from here; the chain knows
                    # those that it holds, so none counts twice.
                    self._unknown = record.offset if self._unknown is None else self._unknown
                    raise

    def _chained(self, record: Record) -> Link | None:
        """Return the link in a record that was read before, None if it is not in the chain."""
        try:
            link = self._open(record)
        except InvalidRelease:
            return None
        if isinstance(link, SubjectReceipt):
            return None
        digest = digest_of(record.value or b"")
        return link if self.chain.holds(link, digest) else None

    def _open(self, record: Record) -> Link | SubjectReceipt:
        if record.value is None:
            raise InvalidRelease(f"record {record.offset} of {self._topic} is a tombstone, which erases nothing here")
        link = open_any(record.value, self._key)
        # The key of a record is not signed.
        if link.model != self._model or link.id.encode() != record.key:
            raise InvalidRelease(f"receipt {link.id} has another key as a record: somebody has copied it")
        return link


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of checking a file of receipts.

    receipts: number of receipts in the chain.
    completions: number of completions in the chain.
    completed: number of receipts whose deletions these completions cover.
    covering: number of covering receipts of subjects.
    first, last: number of the first and of the last link.
    head: digest of the last link, which proves the whole chain to a reader who knows it.
    problems: (line, problem); line 0 for a problem of the whole file.
    digests: number of each link to its digest. One that a reader wrote down earlier proves the chain up to there.
    """

    receipts: int
    completions: int
    completed: int
    covering: int
    first: int
    last: int
    head: str
    problems: tuple[tuple[int, str], ...]
    digests: Mapping[int, str] = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether every line is signed and the chain is whole from its first receipt."""
        return not self.problems


def export_line(link: Link | SubjectReceipt, data: bytes) -> str:
    """Return the line of a receipt or completion, a JSON object: its number, id, request digest and signed bytes."""
    # Only `signed` is ever checked. The rest is there to find a line with grep.
    signed = base64.b64encode(data).decode()
    request = "" if isinstance(link, Completion) else link.request
    sequence = 0 if isinstance(link, SubjectReceipt) else link.sequence
    fields = {"sequence": sequence, "id": link.id, "request": request, "signed": signed}
    return json.dumps(fields)


def audit(lines: Iterable[str], key: Verifier) -> Audit:
    """Check signatures and chain of exported lines, in any order and with repetitions, without the service."""
    chain = Chain()
    problems = list[tuple[int, str]]()
    accepted = list[Link]()
    covering = dict[str, tuple[int, SubjectReceipt]]()
    models = set[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = _signed(line)
            link = open_any(data, key)
        except InvalidRelease as error:
            problems.append((number, str(error)))
            continue
        models.add(link.model)
        if isinstance(link, SubjectReceipt):
            covering.setdefault(link.id, (number, link))
            continue
        accepted += chain.take(link, digest_of(data))
    accepted += chain.settle()
    problems += [(0, problem) for problem in _problems_of_all(chain, models)]
    digests = digests_of(accepted, chain.head)
    problems += _uncovered(covering.values(), digests)
    completions = [link for link in accepted if isinstance(link, Completion)]
    first = _first(chain) if accepted else 0
    return Audit(
        receipts=len(chain),
        completions=len(completions),
        completed=_completed(chain, completions),
        covering=len(covering),
        first=first,
        last=chain.head.sequence,
        head=chain.head.digest,
        problems=tuple(problems),
        digests=digests,
    )


def digests_of(links: Iterable[Link], head: ChainHead) -> dict[int, str]:
    """Return number to digest of links of a chain, as the link behind each names it.

    links: of the chain.
    head: its newest link.
    """
    found = {link.sequence - 1: link.previous for link in links}
    found[head.sequence] = head.digest
    return found


def _uncovered(covering: Iterable[tuple[int, SubjectReceipt]], digests: Mapping[int, str]) -> list[tuple[int, str]]:
    """Return (line, problem) of each covering receipt whose receipts are not in the chain."""
    found = [(number, receipt.problem(digests)) for number, receipt in covering]
    return [(number, problem) for number, problem in found if problem is not None]


def _first(chain: Chain) -> int:
    for gap in chain.lost:
        if gap.start == 1:
            return gap.stop
    return 1


def _completed(chain: Chain, completions: Iterable[Completion]) -> int:
    """Return how many receipts of the chain are complete, by their offsets.

    A receipt that stands behind a completion counts as well, although the completion does not cover it.
    """
    ends = dict[int, int]()
    for completion in completions:
        for partition, end in completion.ends.items():
            known = ends.get(partition, 0)
            ends[partition] = max(end, known)
    covered = (chain.between(partition, 0, end) for partition, end in ends.items())
    return sum(covered)


def _problems_of_all(chain: Chain, models: set[str]) -> Iterator[str]:
    if len(models) > 1:
        names = ", ".join(sorted(models))
        yield f"receipts of several models: {names}; check each by itself"
    for gap in chain.lost:
        yield f"receipts {gap.start} to {gap.stop - 1} are missing"
    if chain.strays:
        yield f"{chain.strays} receipts compete with others for a place in the chain: do not rely on these"


def _signed(line: str) -> bytes:
    try:
        fields = json.loads(line)
        return base64.b64decode(fields["signed"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise InvalidRelease("the line is not one that `streamtopic receipts export` wrote") from error
