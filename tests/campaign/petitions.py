"""People who ask for deletions through the door, with the commands of the service, and hold it to what they were told.

A request waits for its hold, or is paused by the brake. That it was approved or cancelled is in Redis alone, so a Redis
that was set back may have forgotten that. Whoever cancelled a request then cancels it again, as docs/requests.md says.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from campaign.cluster import BRAKE_SHARE
from campaign.people_checks import Place, deletions_of, said_of
from streamtopic.errors import ComponentUnreachable, StateError
from streamtopic.state import Connection
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests, RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from campaign.cluster import Cluster
    from campaign.oracle import Deletion, Oracle
    from campaign.witness import Witness

__all__ = ["Petition", "Petitioner", "check_petitions"]

# Of the petitions: those for a person, those that are cancelled, and of the paused ones those that are approved.
_OF_A_PERSON, _RECALLED, _APPROVED = 0.4, 0.3, 0.6
# Commands of a round, and those of them that the brake stops.
_AT_ONCE = 2
_WAVE = 0.15
_FEW = 4
_LOOK_SECONDS = 1.0


@dataclass(slots=True)
class Petition:
    """A request that the service has confirmed.

    name, salt: of the request.
    documents: ids that it names.
    subject: the person in the place of documents, or "".
    forgotten: how often Redis may have forgotten something when the request was confirmed.
    recalled: the same when its cancellation was confirmed; None if it was not.
    tried: whether somebody has tried to cancel it, perhaps without an answer.
    """

    name: str
    salt: str
    documents: frozenset[str]
    subject: str
    forgotten: int
    recalled: int | None = None
    tried: bool = False


class Petitioner:
    """Asks for deletions, cancels and approves.

    cluster: whose commands are called; they reach Redis through the proxy.
    rng: draws requests.
    documents, people: return ids and people that may be there.
    left: told of the documents that were asked for, so that others take them for deleted.
    forgotten: returns how often Redis may have forgotten what it had confirmed.

    petitions: confirmed requests.
    cancelled: number of those that were cancelled.
    """

    def __init__(
        self,
        cluster: Cluster,
        rng: Random,
        documents: Callable[[], Sequence[str]],
        people: Callable[[], Sequence[str]],
        left: Callable[[Sequence[str]], None],
        forgotten: Callable[[], int],
    ) -> None:
        self.petitions: dict[str, Petition] = {}
        self.cancelled = 0
        self._cluster = cluster
        self._rng = rng
        self._documents = documents
        self._people = people
        self._left = left
        self._forgotten = forgotten
        self._connection = Connection(cluster.redis.url)
        self._requests = DeletionRequests(self._connection, cluster.names.model)
        self._looked = 0.0

    @property
    def recalled(self) -> frozenset[str]:
        """Ids of the requests that somebody has tried to cancel."""
        return frozenset(petition.name for petition in self.petitions.values() if petition.tried)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def work(self, seconds: float) -> None:
        """Ask for some deletions, and cancel some of them within these seconds."""
        made: list[Petition] = []
        for _ in range(_AT_ONCE):
            known, people = self._documents(), self._people()
            wave = int(BRAKE_SHARE * len(known)) + 5
            size = wave if self._rng.random() < _WAVE else self._rng.randrange(1, _FEW)
            subjects = [self._rng.choice(people)] if people and self._rng.random() < _OF_A_PERSON else []
            made += self._ask(self._rng.sample(known, min(size, len(known))), subjects)
        time.sleep(self._rng.uniform(0, seconds))
        for petition in made:
            if self._rng.random() < _RECALLED:
                self._recall(petition)

    def tend(self) -> None:
        """Approve or cancel what the brake has paused, and cancel again what Redis has forgotten to be cancelled."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            found = self._requests.open()
        except (ComponentUnreachable, StateError):
            # It may be one of the faults; the next look sees it.
            return
        paused = [request.id for request in found if request.state is RequestState.PAUSED]
        # Nobody cancels what others have asked for: it must have a receipt.
        approved = [
            name
            for name in paused
            if name not in self.petitions or (self._rng.random() < _APPROVED and not self._is_recalled(name))
        ]
        if approved:
            self._cluster.ask("deletions", "approve", *approved)
        waiting = [one.id for one in found if one.state is RequestState.WAITING and self._is_recalled(one.id)]
        for name in [*waiting, *paused]:
            if name not in approved:
                self._recall(self.petitions[name])

    def unrest(self) -> list[str]:
        """Return which requests have not ended. Raises ComponentUnreachable, StateError."""
        return [f"request {request.id} is {request.state.value}" for request in self._requests.open()]

    def ended(self) -> dict[str, DeletionRequest]:
        """Return the requests that have ended by their ids. Raises ComponentUnreachable, StateError."""
        return {request.id: request for request in self._requests.ended()}

    def _is_recalled(self, name: str) -> bool:
        petition = self.petitions.get(name)
        return petition is not None and petition.recalled is not None

    def _ask(self, documents: Sequence[str], subjects: Sequence[str]) -> list[Petition]:
        """Ask for deletions with one command, which makes a request for the documents and one for each person."""
        people = [word for subject in subjects for word in ("--subject", subject)]
        before = self._forgotten()
        answer = self._cluster.ask("delete", "--json", *documents, *people)
        if answer.returncode:
            # Nobody was told a request id. What was taken in nevertheless is carried out like any other request.
            return []
        told: dict[str, Any] = json.loads(answer.stdout)
        named = [*((frozenset[str](), subject) for subject in subjects)]
        named += [(frozenset(documents), "")] if documents else []
        made = [
            Petition(one["id"], one["salt"], ids, subject, before)
            for one, (ids, subject) in zip(told["requests"], named, strict=True)
        ]
        self.petitions |= {petition.name: petition for petition in made}
        self._left(documents)
        return made

    def _recall(self, petition: Petition) -> None:
        """Cancel a request. It is not cancelled where its deletes are on their way, or where nobody answers."""
        before = self._forgotten()
        petition.tried = True
        if self._cluster.ask("deletions", "cancel", petition.name).returncode == 0:
            self.cancelled += petition.recalled is None
            petition.recalled = before


def check_petitions(petitioner: Petitioner, oracle: Oracle, witness: Witness, forgotten: int) -> list[str]:
    """Check that each request did what it says: all of its deletes are in the log, or none if it was cancelled.

    forgotten: how often Redis may have forgotten something by now.

    Raises ComponentUnreachable, StateError.
    """
    ended, deletions = petitioner.ended(), deletions_of(oracle)
    findings = []
    for petition in petitioner.petitions.values():
        own = deletions.get(petition.name, {})
        found = _differences(petition, own.values())
        request = ended.get(petition.name)
        has_receipt = said_of(petition.name, petition.salt.encode()) in witness.covering
        if has_receipt or (request is not None and request.state is RequestState.COMPLETED):
            found += _completed(petition, own.values(), forgotten, has_receipt=has_receipt)
        elif petition.forgotten == forgotten:
            # Redis that was set back may hold a request again, which is then cancelled too late, or without its ids.
            found += _cancelled(petition, own, request)
        findings += [f"request {petition.name} {what}" for what in found]
    return findings


def _differences(petition: Petition, own: Iterable[Deletion]) -> list[str]:
    """Return what the deletes of a request are that its requester did not ask for."""
    found = []
    if not petition.subject and any(deletion.document.decode() not in petition.documents for deletion in own):
        found.append("deleted documents that it does not name")
    if any(deletion.salt != petition.salt.encode() for deletion in own):
        found.append("has deletes with another salt than its requester was told")
    return found


def _completed(petition: Petition, own: Iterable[Deletion], forgotten: int, *, has_receipt: bool) -> list[str]:
    """Return the faults of a request that is completed, or has its receipt."""
    found = []
    if not has_receipt:
        found.append("is completed, and has no receipt")
    if not petition.subject and {deletion.document.decode() for deletion in own} != petition.documents:
        found.append("is completed, and not all of its deletes are in the log")
    if petition.recalled == forgotten:
        found.append("was cancelled, and is completed")
    return found


def _cancelled(petition: Petition, own: Mapping[Place, Deletion], request: DeletionRequest | None) -> list[str]:
    """Return the faults of a request that has no receipt, so it must say that it is cancelled."""
    found = []
    if request is None or request.state is not RequestState.CANCELLED:
        found.append("has no receipt, and is not cancelled")
    if own:
        found.append("is cancelled, and its deletes are in the log")
    if not petition.tried:
        found.append("is cancelled, and nobody has cancelled it")
    return found
