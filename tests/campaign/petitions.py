"""People who ask for deletions through the door, with the commands of the service, and hold it to what they were told.

A request waits for its hold, or is paused by the brake. Requests are in Redis alone, so a Redis that was set back may
have forgotten one, or that one was cancelled. Whoever asks then asks again, as docs/requests.md says.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from campaign.cluster import BRAKE_SHARE
from campaign.people_checks import Place, deletions_of
from streamtopic.errors import ComponentUnreachable, StateError
from streamtopic.state import Connection
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests, RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from campaign.cluster import Cluster
    from campaign.oracle import Deletion, Oracle, PersonRequest

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
    """Asks for deletions, cancels and approves, and asks again for what Redis has forgotten.

    cluster: whose commands are called; they reach Redis through the proxy.
    rng: draws requests.
    documents, people: return ids and people that may be there.
    left: told of the documents that were asked for, so that others take them for deleted.
    forgotten: returns how often Redis may have forgotten what it had confirmed.

    petitions: confirmed requests that Redis must know.
    asked, cancelled, again: numbers of requests that were confirmed, that were cancelled, and that were lost with Redis
        and asked for again.
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
        self.asked = self.cancelled = self.again = 0
        self._cluster = cluster
        self._rng = rng
        self._documents = documents
        self._people = people
        self._left = left
        self._forgotten = forgotten
        self._connection = Connection(cluster.redis.url)
        self._requests = DeletionRequests(self._connection, cluster.names.model)
        self._looked = 0.0

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
        """Look after requests that do not go on by themselves: those that are paused, and those that are forgotten."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            found = {request.id: request for request in self._requests.open()}
            # In this order: a request that ends meanwhile is found among the ended ones.
            missing = [one for one in self.petitions.values() if one.name not in found]
            lost = [petition for petition in missing if self._requests.get(petition.name) is None]
        except (ComponentUnreachable, StateError):
            # It may be one of the faults; the next look sees it.
            return
        self._decide(found)
        for petition in lost:
            # Where Redis cannot have forgotten it, the checks will say that it is missing.
            if petition.forgotten != self._forgotten():
                del self.petitions[petition.name]
                self.again += 1
                if petition.recalled is None:
                    self._ask(sorted(petition.documents), [petition.subject] if petition.subject else [])

    def unrest(self) -> list[str]:
        """Return which requests have not ended. Raises ComponentUnreachable, StateError."""
        return [f"request {request.id} is {request.state.value}" for request in self._requests.open()]

    def ended(self) -> dict[str, DeletionRequest]:
        """Return the requests that have ended by their ids. Raises ComponentUnreachable, StateError."""
        return {request.id: request for request in self._requests.ended()}

    def _decide(self, found: dict[str, DeletionRequest]) -> None:
        """Approve or cancel what the brake has paused, and cancel again what Redis has forgotten to be cancelled."""
        paused = [request.id for request in found.values() if request.state is RequestState.PAUSED]
        approved = [name for name in paused if self._rng.random() < _APPROVED and not self._is_recalled(name)]
        if approved:
            self._cluster.ask("deletions", "approve", *approved)
        for name in paused:
            # A command that was killed has made requests that nobody knows by name.
            if name not in approved and name in self.petitions:
                self._recall(self.petitions[name])
            elif name not in approved:
                self._cluster.ask("deletions", "cancel", name)
        for request in found.values():
            if request.state is RequestState.WAITING and self._is_recalled(request.id):
                self._recall(self.petitions[request.id])

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
        self.asked += len(made)
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


def check_petitions(petitioner: Petitioner, oracle: Oracle, forgotten: int) -> list[str]:
    """Check that each request did what it says: all of its deletes are in the log, or none if it was cancelled.

    forgotten: how often Redis may have forgotten something by now.

    Raises ComponentUnreachable, StateError.
    """
    ended, deletions = petitioner.ended(), deletions_of(oracle)
    findings = []
    for petition in petitioner.petitions.values():
        found = _differences(petition, deletions.get(petition.name, {}).values())
        request = ended.get(petition.name)
        if request is None:
            found.append("has not ended, or is unknown")
        elif request.state is RequestState.COMPLETED:
            found += _completed(petition, oracle, deletions, forgotten)
        elif petition.forgotten == forgotten:
            # Redis that was set back may hold a request again, which is then cancelled too late, or without its ids.
            found += _cancelled(petition, oracle, deletions)
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


def _completed(
    petition: Petition, oracle: Oracle, deletions: Mapping[str, Mapping[Place, Deletion]], forgotten: int
) -> list[str]:
    """Return the faults of a request that says it is completed."""
    found = []
    named = {deletion.document.decode() for deletion in deletions.get(petition.name, {}).values()}
    every = len(oracle.books)
    ends = [len(asked.closed) for asked in _of_person(petition, oracle) if asked.subject == petition.subject]
    if named != petition.documents if not petition.subject else every not in ends:
        found.append("is completed, and not all of its deletes are in the log")
    if petition.recalled == forgotten:
        found.append("was cancelled, and is completed")
    return found


def _cancelled(petition: Petition, oracle: Oracle, deletions: Mapping[str, Mapping[Place, Deletion]]) -> list[str]:
    """Return the faults of a request that says it is cancelled."""
    found = []
    if petition.name in deletions or _of_person(petition, oracle):
        found.append("is cancelled, and its deletes are in the log")
    if not petition.tried:
        found.append("is cancelled, and nobody has cancelled it")
    return found


def _of_person(petition: Petition, oracle: Oracle) -> list[PersonRequest]:
    """Return the requests to forget a person that have the request id of a petition."""
    return [asked for asked in oracle.people.values() if asked.request == petition.name]
