"""Everything that a verification reads: log, state, keys and options. It does not need a running service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.counts import Counts, DocumentBatch
    from streamtopic.documents.suppression import SuppressionKey
    from streamtopic.errors import SettingsError
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.payload import Guarded, PayloadPlan
    from streamtopic.service.schedule.scheduler import SchedulerOptions
    from streamtopic.signed import Envelope, KeyRing
    from streamtopic.state import ModelState, Reader, StoredBase
    from streamtopic.streams import EventLog
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["PaperCheck", "PrivateVersions", "Sources"]


class PaperCheck(Protocol):
    """Checks versions of the paper's mode with the paper's own algorithm.

    It is handed in, so that this folder does not import `service/paper_mode`.
    """

    def again(
        self, version: int, counts: Counts, stored: StoredBase, record: Mapping[str, Any], key: NoiseKey
    ) -> PayloadPlan:
        """Return a version made again. Raises StreamtopicError with the reason why it cannot be made as it was.

        counts: of the remaining documents of the base model.
        stored: the base model in Redis.
        record: of the version, in Redis.
        key: the noise key.
        """


class PrivateVersions(Protocol):
    """Makes versions of private mode again. It is handed in, as `PaperCheck` is."""

    def again(
        self,
        envelope: Envelope,
        documents: Callable[[], tuple[Sequence[str], DocumentBatch]],
        stored: StoredBase,
        versions: Sequence[Envelope],
        key: NoiseKey,
    ) -> PayloadPlan:
        """Return a version made again. Raises StreamtopicError with the reason why it cannot be made as it was.

        envelope: its facts.
        documents: reads those of the log at its cut, over all of their words.
        stored: the base model in Redis.
        versions: all versions of the ledger.
        key: the noise key.
        """


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that a verification reads.

    log: the event log.
    state: the model's keys in Redis.
    reader: the counts in Redis.
    keys: public keys of the ledger.
    options: of model and heads, as the settings say now.
    learner: the choices of the learner.
    guarded: the guarantee to which noise is calibrated.
    paper: checks versions of the paper's mode.
    private: makes versions of private mode again.
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
    options: SchedulerOptions
    learner: LearnerOptions
    guarded: Guarded
    paper: PaperCheck
    private: PrivateVersions
    # An error and not None: a verification without the key says why it could not compare.
    noise_key: NoiseKey | SettingsError
    partitioner: str
    refuted: frozenset[int]
    epsilon_budget: float
    clock: Callable[[], float]
    suppression: SuppressionKey | None = None

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.options.model

    @property
    def names(self) -> TopicNames:
        """Names of the model's topics."""
        return TopicNames(self.model)

    def cut(self, envelope: Envelope) -> Mapping[int, int]:
        """Return a version's cut, partition to offset; empty if documents were moved to other partitions since."""
        return {} if envelope.version <= self.state.moved() else envelope.cut
