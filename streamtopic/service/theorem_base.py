"""What theorem mode is told, and what it keeps with a base model."""

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from streamtopic.counts import CountSource
from streamtopic.errors import StateCorrupt
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.capacity import ModelConstants, theorem_sigma
from streamtopic.privacy.theorem import BaseFacts, TheoremOptions
from streamtopic.state import StoredBase
from streamtopic.topics.algorithm1 import Statistics
from streamtopic.topics.fit import TopicFit

__all__ = ["TheoremBase", "TheoremRule"]


@dataclass(frozen=True, slots=True)
class TheoremRule:
    """What theorem mode is told. constant: c of Delta; known: constants that are not estimated, as ModelConstants."""

    epsilon: float
    delta: float
    constant: float = 1.0
    known: Mapping[str, float] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """What one version composes with: that of A and R together, each sigma = scale * Delta."""
        one = theorem_sigma(1.0, self.epsilon, self.delta)
        return 1 / Composition.of([(one, 0.0), (one, 0.0)]).mu


@dataclass(frozen=True, slots=True, eq=False)
class TheoremBase:
    """A base model as theorem mode keeps it: T(S) but for counts, and the numbers that its noise follows from.

    length: mean tokens of the vocabulary in a document; capacity: deletions that it bears.
    """

    statistics: Statistics
    facts: BaseFacts
    length: float
    capacity: int

    @classmethod
    def of(cls, fit: TopicFit, source: CountSource, capacity: int) -> Self:
        """Take it from A(S); source: the counts that it was learned from."""
        place = {word: k for k, word in enumerate(source.words)}
        tokens = int(source.tokens[[place[word] for word in fit.words]].sum())
        return cls(Statistics.of(fit), BaseFacts.of(fit), tokens / fit.documents, capacity)

    @classmethod
    def parse(cls, stored: StoredBase) -> Self:
        """Read what Redis keeps of it. Raises StateCorrupt where it was kept in another mode."""
        kept = stored.fields.get("theorem")
        with np.load(io.BytesIO(stored.blob)) as arrays:
            if kept is None or "C" not in arrays:
                raise StateCorrupt("the base model was not kept for theorem mode: run `streamtopic retrain`")
            words, C = tuple(arrays["words"].tolist()), arrays["C"]
        documents = stored.fields["documents"]
        return cls(
            Statistics(words, C, tuple(stored.fields["anchors"]), documents),
            BaseFacts(documents, ModelConstants(**kept["constants"]), kept["q_norm"], kept["rarest"]),
            kept["length"],
            stored.fields["capacity"],
        )

    @property
    def fields(self) -> dict[str, Any]:
        """Return what is kept beside C^S, as msgpack values."""
        facts = self.facts
        constants = asdict(facts.constants)
        return {"constants": constants, "q_norm": facts.q_norm, "rarest": facts.rarest, "length": self.length}

    def options(self, rule: TheoremRule) -> TheoremOptions:
        """Return what noise is calibrated to: m_U = T, and at least 1 since there is no noise for none."""
        return TheoremOptions(
            max(self.capacity, 1), rule.epsilon, rule.delta, rule.constant, self.length, known=rule.known
        )
