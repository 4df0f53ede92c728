"""What the scheduler sees: where the model stands, and what that calls for. Reads only, so `status` uses it as well."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamtopic.privacy.accounting import Composition
from streamtopic.release import Envelope
from streamtopic.service.decide import Decision, Standing, decide
from streamtopic.service.options import SchedulerOptions
from streamtopic.service.standing import Base, LastRelease, read_standing
from streamtopic.state import ModelState, Reader

__all__ = ["Outlook"]


class Outlook:
    """The present state of a model in Redis. clock: seconds since 1970. rivals: see Published."""

    def __init__(
        self,
        reader: Reader,
        state: ModelState,
        options: SchedulerOptions,
        clock: Callable[[], float],
        rivals: Sequence[Envelope] = (),
    ) -> None:
        self._reader = reader
        self._state = state
        self._options = options
        self._clock = clock
        self._rivals = rivals

    def standing(self, requested: str | None = None, failed: str | None = None) -> Standing:
        """Return where the model stands now. failed: why no model can be made of the present documents."""
        base = self.base()
        standing = read_standing(
            self._reader,
            self.last(),
            base,
            next_epsilon=self.spent(base.version if base else None)
            .then(self._options.scale)
            .epsilon(self._options.delta),
            failed=failed,
            requested=requested,
            theorem=self._options.theorem is not None,
        )
        return replace(standing, doubled=self.doubled())

    def doubled(self) -> tuple[int, ...]:
        """Return versions that stand in the log with two contents and are not withdrawn yet."""
        versions = {envelope.version for envelope in self._rivals}
        return tuple(sorted(versions - self._state.withdrawn())) if versions else ()

    def decide(self, standing: Standing) -> Decision:
        """Return what a standing calls for now."""
        return decide(standing, self._options.policy, self.now())

    def spent(self, base_version: int | None) -> Composition:
        """Return the composition of all versions of a base model so far."""
        entries = self._state.spent() if base_version else []
        return Composition.of((e["scale"], e["slack"]) for e in entries if e["base"] == base_version)

    def last(self) -> LastRelease | None:
        """Return the newest version, None before the first."""
        newest = self._state.releases(1)
        return LastRelease.parse(*newest[0]) if newest else None

    def base(self) -> Base | None:
        """Return the base model, None before the first."""
        stored = self._state.base_head()
        return None if stored is None else Base.parse(stored)

    def now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._clock() * 1000)
