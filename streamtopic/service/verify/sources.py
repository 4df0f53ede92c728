"""Everything that a verification reads: log, state, keys and options. It does not need a running service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.documents.suppression import SuppressionKey
    from streamtopic.errors import SettingsError
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.service.schedule.payload import TaskOptions
    from streamtopic.signed import Envelope, KeyRing
    from streamtopic.state import ModelState, Reader
    from streamtopic.streams import EventLog

__all__ = ["Sources"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that a verification reads.

    log: the event log.
    state: the model's keys in Redis.
    reader: the counts in Redis.
    keys: public keys of the ledger.
    model: name of the model.
    modeller: the mode in which models are made, as the settings say now; it makes versions again.
    tasks: downstream tasks.
    noise_key: the secret from which noise is drawn, or the error why it is not here.
    partitioner: name of the hash by which keys belong to partitions.
    refuted: versions that failed the service's own check.
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
    refuted: frozenset[int]
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
