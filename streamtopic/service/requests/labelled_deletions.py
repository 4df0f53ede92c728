"""Find all documents that carry a label now, so that they can be deleted together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.documents.events import DAY
from streamtopic.errors import UsageError
from streamtopic.state.documents import read_documents

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamtopic.state import Reader
    from streamtopic.state.documents import StoredDocuments

__all__ = ["documents_with_label"]

_SHOWN = 20


def documents_with_label(reader: Reader, task: str, name: str) -> list[str]:
    """Return the ids of the live documents of a class, in the order of their ids, from all partitions.

    task: name of the label.
    name: class of the label.

    Raises UsageError for a task or a class that no live document has, StateError, ComponentUnreachable.
    """
    found = _read(reader, {task})
    pairs = zip(found.ids, found.labels, strict=True)
    documents = [document.decode() for document, labels in pairs if labels.get(task) == name]
    if documents:
        return documents
    classes = {labels[task] for labels in found.labels if task in labels and task != DAY}
    if classes:
        raise UsageError(f"no live document has class {name!r} of task {task!r}: its classes are {_listed(classes)}")
    tasks = {one for labels in _read(reader, ()).labels for one in labels}
    if tasks - {DAY}:
        raise UsageError(f"no live document has a label of task {task!r}: there are labels of {_listed(tasks - {DAY})}")
    raise UsageError("no live document has a label: delete by ids, or add documents with labels")


def _read(reader: Reader, tasks: Collection[str]) -> StoredDocuments:
    """Return the documents with a label of these tasks; all documents where it names none."""
    return reader.read(lambda counts: read_documents(counts, (), labelled=tasks))


def _listed(names: Collection[str]) -> str:
    """Return names in words, the first of many."""
    first = sorted(names)[:_SHOWN]
    more = len(names) - len(first)
    return ", ".join(map(repr, first)) + (f" and {more} more" if more else "")
