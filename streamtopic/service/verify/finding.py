"""Findings: one check each, with its outcome and the remedy; and everything that a verification reads."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streamtopic.documents.suppression import SuppressionKey
    from streamtopic.errors import SettingsError
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.service.schedule.payload import TaskOptions
    from streamtopic.signed import Envelope, KeyRing
    from streamtopic.state import ModelState, Reader
    from streamtopic.streams import EventLog

__all__ = ["Finding", "Sources", "as_json", "doubt", "fails", "holds", "passed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    passed: None if the check could not be made, or if something that works is worth a look; `detail` says why.
    remedy: the next thing to do, unless the check passed.
    """

    name: str
    passed: bool | None
    detail: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """A line for a person: the facts, and what to do about them."""
        return f"{self.detail}: {self.remedy}" if self.remedy else self.detail


def holds(name: str, detail: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(name, True, detail)  # noqa: FBT003  the outcome is this function's name


def fails(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that failed."""
    return Finding(name, False, detail, remedy)  # noqa: FBT003  as above


def doubt(name: str, detail: str, remedy: str) -> Finding:
    """Return the finding of a check that could not be made, or that found what is worth a look."""
    return Finding(name, None, detail, remedy)


def passed(findings: Iterable[Finding]) -> bool:
    """Whether no check failed; a check that could not be made has not failed."""
    return all(finding.passed is not False for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON values: name, passed, detail and remedy of each."""
    return [asdict(finding) for finding in findings]


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that a verification reads. It does not need a running service.

    log: the event log.
    state: the model's keys in Redis.
    reader: the counts in Redis.
    keys: public keys of the ledger.
    model: name of the model.
    modeller: the mode in which models are made, as the settings say now; it makes versions again.
    tasks: downstream tasks.
    noise_key: the secret from which noise is drawn, or the error why it is not here.
    partitioner: name of the hash by which keys belong to partitions.
    epsilon_budget: for all versions of a base model together, for the report.
    clock: returns seconds since 1970.
    suppression: key of the model's suppressions, None without one.
    """

    log: EventLog
    state: ModelState
    reader: Reader
    keys: KeyRing
    model: str
    modeller: Modeller
    tasks: TaskOptions
    # An error and not None: a verification without the key says why it could not compare.
    noise_key: NoiseKey | SettingsError
    partitioner: str
    epsilon_budget: float
    clock: Callable[[], float]
    suppression: SuppressionKey | None = None

    @property
    def names(self) -> TopicNames:
        """Names of the model's topics."""
        return TopicNames(self.model)

    def cut(self, envelope: Envelope) -> Mapping[int, int]:
        """Return a version's cut, partition to offset; empty if documents were moved to other partitions since."""
        return {} if envelope.version <= self.state.moved() else envelope.cut
