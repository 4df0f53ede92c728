"""The facts of each page, read from a service. No fact holds a document's id or text."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, SettingsError, UsageError
from streamtopic.report.model_page import map_figure, model_page
from streamtopic.report.model_view import view_of
from streamtopic.service.ingest.rejections import Rejection, rejections, retry
from streamtopic.service.publish.published import heads_of, read_earlier, topics_of
from streamtopic.service.requests.deletion_lookup import receipts_of_request, traces_of_receipt, waiting_deletion
from streamtopic.signed import Envelope, Receipt, SubjectReceipt
from streamtopic.state.deletion_requests import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.service.app import Service
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.deletions import Forget
    from streamtopic.state.residue_ledger import Stage

__all__ = [
    "DeletionsAsked",
    "FoundDeletion",
    "LookedUp",
    "QueuedDeletions",
    "RefusedRecords",
    "ServiceFacts",
    "ShownTopics",
    "approve_requests",
    "cancel_requests",
    "look_up",
    "picture_page",
    "read_asked",
    "read_queued",
    "read_refused",
    "read_request",
    "read_service",
    "read_topics",
    "retry_refused",
]

_SHOWN = 20
_SHOWN_OPEN = 100
# Anybody who may send documents can fill the topic of refused records.
MOST_REFUSED = 5000


@dataclass(frozen=True, slots=True)
class QueuedDeletions:
    """Deletions that are counted out and wait for their receipt.

    number: how many there are, replaced documents included.
    limit: seconds that one may wait for a version without it (`max_forget_lag`).
    now: seconds since 1970.
    oldest: the oldest of them as (partition, entry), oldest first.
    """

    number: int
    limit: float
    now: float
    oldest: tuple[tuple[int, Forget], ...]

    @property
    def age(self) -> float | None:
        """Seconds since the oldest was received, None without one."""
        return self.age_of(self.oldest[0][1]) if self.oldest else None

    @property
    def late(self) -> bool:
        """Whether the oldest has waited longer than it may."""
        return self.age is not None and self.age > self.limit

    def age_of(self, forget: Forget) -> float:
        """Return the seconds since a deletion was received."""
        # The clock of the machine that sent it may be ahead.
        return max(self.now - forget.received_ms / 1000, 0.0)


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Where a service stands.

    status: as `streamtopic status` shows it.
    queued: the deletions that wait.
    versions: oldest first.
    paused: number of requests that the brake has paused; None where this user of Redis may not read them.
    """

    status: Mapping[str, Any]
    queued: QueuedDeletions
    versions: Sequence[Mapping[str, Any]]
    paused: int | None


@dataclass(frozen=True, slots=True)
class DeletionsAsked:
    """The requests for deletions, without what they name.

    now_ms: milliseconds since 1970.
    states: state to the number of requests in it.
    open: those that have not ended, the paused first, then the oldest first; as many as are shown.
    ended: the last to end, newest first.
    """

    now_ms: int
    states: Mapping[RequestState, int]
    open: Sequence[DeletionRequest]
    ended: Sequence[DeletionRequest]

    @property
    def number(self) -> int:
        """Number of requests that have not ended."""
        return sum(number for state, number in self.states.items() if not state.ended)

    @property
    def paused(self) -> int:
        """Number of requests that the brake has paused."""
        return self.states.get(RequestState.PAUSED, 0)


@dataclass(frozen=True, slots=True)
class ShownTopics:
    """The topics of a version.

    version: its number.
    topics: as `topics --json` shows them, the largest first; empty where they are withheld.
    heads: as `topics --json` shows them.
    map: the map of topics, None where they are withheld.
    """

    version: int
    topics: Sequence[Mapping[str, Any]]
    heads: Mapping[str, Any]
    map: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RefusedRecords:
    """The refused records, as far as they were read.

    reasons: code to number, the most frequent first.
    newest: the last of them, newest first.
    cut: whether older ones were left out.
    """

    reasons: Mapping[str, int]
    newest: Sequence[Rejection]
    cut: bool


@dataclass(frozen=True, slots=True)
class FoundDeletion:
    """A receipt, as an entry of the ledger.

    receipt: of one deletion, or of all documents of a person.
    index: number of the entry.
    version: the first version without the document; None where there was no document.
    reached: when each trace was gone, None for not yet; empty for a person, whose documents have receipts of their own.
    erased: number of the entry that says that nothing is left, None before it.
    """

    receipt: Receipt | SubjectReceipt
    index: int
    version: Envelope | None
    reached: Mapping[Stage, int | None]
    erased: int | None

    @property
    def single(self) -> bool:
        """Whether it is of one deletion."""
        return isinstance(self.receipt, Receipt)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What is known of a request.

    found: the receipts of the request, in the order of the ledger.
    waiting: whether it is counted and waits for its receipt; `received` and `applied` say since when.
    unlinked: why receipts could not be searched by the request id alone, "" where they could.
    """

    found: Sequence[FoundDeletion] = ()
    waiting: Forget | None = None
    unlinked: str = ""


def read_service(service: Service) -> ServiceFacts:
    """Return where a service stands. Raises StateMissing before all partitions are counted."""
    return ServiceFacts(service.status(), read_queued(service), service.versions(), _paused(service))


def _paused(service: Service) -> int | None:
    try:
        return len(service.door.paused())
    except SettingsError:
        # A dashboard's own user that was made before this right existed still reads everything else.
        return None


def read_queued(service: Service) -> QueuedDeletions:
    """Return the deletions that wait for their receipt."""
    number = 0
    entries: list[tuple[int, Forget]] = []
    for partition in service.reader.positions():
        stream = service.reader.forgets(partition)
        number += len(stream)
        entries += [(partition, forget) for forget in stream.read(0, _SHOWN)]
    entries.sort(key=lambda entry: entry[1].received_ms)
    return QueuedDeletions(number, service.settings.max_forget_lag, service.clock(), tuple(entries[:_SHOWN]))


def read_asked(service: Service) -> DeletionsAsked:
    """Return the requests for deletions. Raises SettingsError where this user of Redis may not read them."""
    requests = service.door.requests
    still, over = requests.open(), requests.ended()
    states = Counter(request.state for request in [*still, *over])
    # A stable order: requests of the same kind stay oldest first.
    still.sort(key=lambda request: request.state is not RequestState.PAUSED)
    over.sort(key=lambda request: -request.changed_ms)
    return DeletionsAsked(int(1000 * service.clock()), states, still[:_SHOWN_OPEN], over[:_SHOWN])


def read_request(service: Service, name: str) -> list[DeletionRequest]:
    """Return the request with an id, or all that are paused where the id is empty. Raises UsageError without one."""
    if not name:
        found = service.door.paused()
    else:
        request = service.door.requests.get(name)
        found = [request] if request is not None and request.recallable else []
    if not found:
        raise UsageError("there is nothing to decide any more: the requests have moved on, or were never here")
    return found


def approve_requests(service: Service, names: Sequence[str]) -> Mapping[str, int]:
    """Let requests through the brake, as `streamtopic deletions approve` does."""
    return _decide(service.door.approve, names)


def cancel_requests(service: Service, names: Sequence[str]) -> Mapping[str, int]:
    """Cancel requests, as `streamtopic deletions cancel` does."""
    return _decide(service.door.cancel, names)


def _decide(decide: Callable[[str], DeletionRequest], names: Sequence[str]) -> Mapping[str, int]:
    """Decide about requests; return how many were decided, for how many documents, and how many had moved on.

    Raises SettingsError where this user of Redis may not change requests.
    """
    changed = []
    for name in names:
        try:
            changed.append(decide(name))
        except SettingsError:
            raise
        except UsageError:
            # It was sent, or decided by somebody else, since the page was shown.
            continue
    documents = sum(request.known for request in changed)
    return {"requests": len(changed), "documents": documents, "moved_on": len(names) - len(changed)}


def read_topics(service: Service, version: int | None) -> ShownTopics:
    """Return the topics of a version, the newest for None. Raises UsageError where there is none that stands."""
    release = service.release(version)
    heads = heads_of(release, 10)
    if release.payload.A is None:
        return ShownTopics(release.version, (), heads, None)
    topics = sorted(topics_of(release, 10), key=lambda topic: -topic["share"])
    return ShownTopics(release.version, topics, heads, map_figure(view_of(release)))


def picture_page(service: Service, version: int) -> str:
    """Return the page of a version's pictures, as `streamtopic export` writes it. Raises as `read_topics`."""
    release = service.release(version)
    standing, withdrawn = read_earlier(service.log, service.state, service.keys, version)
    try:
        return model_page(release, standing, withdrawn)
    except InvalidRelease as error:
        # It was withdrawn after it was found to stand.
        raise UsageError(str(error)) from None


def read_refused(service: Service) -> RefusedRecords:
    """Return the refused records by reason."""
    topic = service.names.rejected
    counted = Counter[str]()
    last: deque[Rejection] = deque(maxlen=_SHOWN)
    for rejection in rejections(service.log, service.names, MOST_REFUSED):
        counted[rejection.reason] += 1
        last.append(rejection)
    cut = service.log.end(topic, 0) - service.log.begin(topic, 0) > MOST_REFUSED
    return RefusedRecords(dict(counted.most_common()), tuple(reversed(last)), cut)


def retry_refused(service: Service) -> Mapping[str, int]:
    """Append the refused records again that are accepted now, as `streamtopic rejected retry` does."""
    return retry(service.log, service.names, service.settings.partitioner, service.dialect)


def look_up(service: Service, name: str, salt: str | None) -> LookedUp:
    """Return the facts about the deletions with a request id or receipt id.

    salt: the requester's own; None without one.
    """
    unlinked = ""
    try:
        known = receipts_of_request(service, name, salt)
    except SettingsError as error:
        # A dashboard's own user may not read the keys that tie receipts to request ids.
        known = []
        unlinked = str(error)
    found = []
    for logged in known:
        if isinstance(logged.entry, Receipt | SubjectReceipt):
            version = _version_of(service, logged.entry)
            found.append(FoundDeletion(logged.entry, logged.index, version, *traces_of_receipt(service, logged)))
    waiting = None if found else waiting_deletion(service, name)
    return LookedUp(tuple(found), None if waiting is None else waiting[1], unlinked)


def _version_of(service: Service, receipt: Receipt | SubjectReceipt) -> Envelope | None:
    """Return the version that a receipt names, as the ledger has it."""
    name = f"version/{receipt.version}"
    entries = [logged.entry for logged in service.ledger.find([name]).get(name, ())]
    return next((entry for entry in entries if isinstance(entry, Envelope)), None)
