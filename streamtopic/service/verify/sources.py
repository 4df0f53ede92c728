"""All that a verification reads: log, state, keys and options; so it needs no service that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamtopic.service.published import read_release
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.counts import Counts
    from streamtopic.errors import SettingsError
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.payload import Guarded, PayloadPlan
    from streamtopic.service.schedule.scheduler import SchedulerOptions
    from streamtopic.signed import KeyRing, Release
    from streamtopic.state import ModelState, Reader, StoredBase
    from streamtopic.streams import EventLog
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["PaperCheck", "Sources"]


class PaperCheck(Protocol):
    """Holds versions of the paper's mode against the paper's own algorithm: handed in, for `verify` knows only this."""

    @property
    def expected(self) -> bool:
        """Whether the settings ask for versions of this mode."""

    def differs(
        self, release: Release, counts: Counts, stored: StoredBase, record: Mapping[str, Any], key: NoiseKey
    ) -> tuple[str | None, PayloadPlan | None]:
        """Say how a version differs from the same made again (None: not at all), and return the latter.

        counts: of the base model's documents that are left. stored: all that Redis keeps of the base model.
        record: of the version. key: that noise is drawn from.
        """

    def kept_differs(self, stored: StoredBase, fit: TopicFit, counts: Counts) -> str | None:
        """Say how the facts kept beside a base model differ from those of one learned cold; None: not at all."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is verified, and with what.

    log: the event log.
    state, reader: the model's keys and the counts in Redis.
    keys: public keys that releases and receipts verify with.
    options: of model and heads, as the settings say now.
    learner: the choices of the learner.
    guarded: the guarantee that noise is calibrated to.
    paper: the check of versions that were made in the paper's mode.
    noise_key: the secret that noise is drawn from, or the error that says why it is not here.
    partitioner: name of the hash by which keys belong to partitions.
    refuted: versions that the service's own check did not bear out.
    epsilon_budget: of all versions of a base model together, for the report.
    clock: seconds since 1970.
    """

    log: EventLog
    state: ModelState
    reader: Reader
    keys: KeyRing
    options: SchedulerOptions
    learner: LearnerOptions
    guarded: Guarded
    paper: PaperCheck
    noise_key: NoiseKey | SettingsError
    partitioner: str
    refuted: frozenset[int]
    epsilon_budget: float
    clock: Callable[[], float]

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.options.model

    @property
    def names(self) -> TopicNames:
        """Names of the model's topics."""
        return TopicNames(self.model)

    def release(self, version: int) -> Release:
        """Return a published version. Raises as `read_release`."""
        return read_release(self.log, self.state, self.keys, version)
