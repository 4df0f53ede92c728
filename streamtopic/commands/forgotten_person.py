"""A person in the demo: one subject whose documents are forgotten by one request, and the receipt that covers them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamtopic.console import number_of, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.client import Deletion
    from streamtopic.documents.corpus import Corpus, Document
    from streamtopic.service.app import Service

__all__ = ["MADE_UP", "Person", "chosen_person", "covering_receipt", "describe", "with_made_up_person"]

MADE_UP = "Mary Made-Up"
"""The subject of a few docstrings. Docstrings name no person, so the demo says that this one is invented."""

_HANDFUL = range(4, 9)


@dataclass(frozen=True, slots=True)
class Person:
    """A subject, and the documents that the model holds about it."""

    subject: str
    documents: tuple[Document, ...]

    def owns(self, document: Document) -> bool:
        """Whether a document is about this person."""
        return self.subject in document.subjects


def with_made_up_person(corpus: Corpus) -> Corpus:
    """Return docstrings with MADE_UP as the subject of a handful: those of one module or class.

    The corpus is returned as it is where no module and no class has a handful of docstrings.
    """
    sizes = Counter(_place(document) for document in corpus.documents)
    handfuls = [place for place, size in sizes.items() if place and size in _HANDFUL]
    if not handfuls:
        return corpus
    place = min(handfuls, key=_drawn)
    documents = [
        replace(document, subjects=(MADE_UP,)) if _place(document) == place else document
        for document in corpus.documents
    ]
    return replace(corpus, documents=documents)


def chosen_person(documents: Sequence[Document], deleted: int) -> Person | None:
    """Return the subject with the fewest documents; None without subjects, or where too little would be left.

    deleted: number of documents that go as well. With them, less than half of all documents may go.
    """
    sizes = Counter(subject for document in documents for subject in document.subjects)
    if not sizes:
        return None
    subject = min(sizes, key=lambda name: (sizes[name], _drawn(name)))
    if sizes[subject] + deleted > len(documents) // 2:
        return None
    return Person(subject, tuple(document for document in documents if subject in document.subjects))


def covering_receipt(service: Service, person: Person, request: Deletion, version: int) -> dict[str, Any]:
    """Check the receipt that covers all documents of a person; return what `demo --json` says of it.

    request: as `Service.delete_subjects` returned it, with its salt.
    version: the first version without the documents.

    `problem` is None if the receipt names this version and all of the documents.
    """
    from streamtopic.client import Receipts

    receipts = Receipts(service.log, model=service.settings.model, public_key=service.keys)
    covering = receipts.covering(request)
    facts: dict[str, Any] = {
        "subject": person.subject,
        "made_up": person.subject == MADE_UP,
        "documents": len(person.documents),
    }
    if covering is None:
        return facts | {"version": None, "receipt": None, "problem": "no receipt covers the request"}
    problem = None
    if covering.documents != len(person.documents):
        problem = f"the receipt covers {number_of(covering.documents, 'document')}"
    if covering.version != version:
        problem = f"the receipt names version {covering.version}, and version {version} is the first without them"
    return facts | {"version": covering.version, "receipt": covering.id, "problem": problem}


def describe(person: Mapping[str, Any]) -> str:
    """Return one line about a person, from what `covering_receipt` returned."""
    invented = ", a subject that the demo made up" if person["made_up"] else ""
    begin = f"{printable(person['subject'])}{invented}: one request forgot {number_of(person['documents'], 'document')}"
    if person["problem"] is not None:
        return f"{begin}, but {person['problem']}"
    return f"{begin}, and one receipt of version {person['version']} covers them all"


def _place(document: Document) -> str:
    """Return the module or class of a docstring."""
    return document.id.rpartition(".")[0]


def _drawn(name: str) -> bytes:
    """Return a number for a name: the same on every run, and without a pattern."""
    return hashlib.sha256(name.encode()).digest()
