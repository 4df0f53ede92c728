"""Counts of the documents that a log leaves alive, for verification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamtopic.service.assembly import learner_options, task_options
from streamtopic.service.rejections import no_room
from streamtopic.service.retained import documents_in_log
from streamtopic.service.tasks import Labelled
from streamtopic.service.verify_heads import labelled_in_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.counts import Counts
    from streamtopic.service.runner import Service

__all__ = ["Recount", "Recounts", "cut_of"]


@dataclass(frozen=True, slots=True)
class Recount:
    """Counts and labelled documents at a cut. whole: whether the log still holds every record before it."""

    counts: Counts
    labelled: Labelled
    whole: bool

    def over(self, words: Sequence[str]) -> Labelled:
        """Return the labelled documents over a model's words."""
        return Labelled({task: documents.over(words) for task, documents in self.labelled.by_task.items()})


class Recounts:
    """Counts of the documents that the log leaves alive at a cut, each made once."""

    def __init__(self, service: Service, update: Callable[[int, int | None], None]) -> None:
        self._service = service
        self._update = update
        self._made: dict[object, Recount] = {}
        self.options = learner_options(service.settings)
        self.tasks = task_options(service.settings)

    @cached_property
    def refused(self) -> frozenset[tuple[int, int]]:
        """Places of documents whose words found no room: their records are sound, so only the service knows."""
        positions = self._service.reader.positions().values()
        if not any(meta.totals.get("rejected_words") for meta in positions):
            return frozenset()
        return no_room(self._service.log, self._service.names)

    def of(self, record: Mapping[str, Any]) -> Recount:
        """Return those that a version covers: under the theorem, of its base model's documents those that are left."""
        cut, base = cut_of(record), None
        if record.get("guarantee") == "theorem" and record["kind"] == "unlearn":
            base = dict(self._service.state.releases()).get(record["base"])
        return self.at(cut) if base is None else self.at(cut, cut_of(base))

    def at(self, cut: Mapping[int, int], added: Mapping[int, int] | None = None) -> Recount:
        """Return those at a cut; added: only of documents that were added before these offsets."""
        key = tuple(sorted(cut.items())), tuple(sorted((added or {}).items()))
        if key not in self._made:
            service = self._service
            found = documents_in_log(service.log, service.names.documents, cut, self._update, self.refused)
            found = found if added is None else found.added_before(added)
            labelled = labelled_in_log(found.alive, found.labels, found.numbering, self.tasks)
            self._made[key] = Recount(found.recount(self.options.weighting), labelled, found.whole)
        return self._made[key]


def cut_of(record: Mapping[str, Any]) -> dict[int, int]:
    """Return a version's cut: partition to the offset up to which its records are in it."""
    return {int(partition): offset for partition, offset in record["cut"].items()}
