"""Which of several models to take, and why, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Candidate", "Suggestion", "recommend"]

NEAR = 0.1
"""A score within this share of the best is as good: measures of topics are not sharper than that."""

LASTING = 0.8
"""Least share of top words that must outlast a forget set."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was found for one number of topics, under two thresholds (see LearnerOptions).

    words: of the vocabulary. coherence: mean NPMI, from -1 to 1; diversity, kept, steady: shares (see `suggest`), the
    last two None where nothing was forgotten. least_share: of the smallest topic. certificate: bound on the distance
    to the exact optimum. top_words: ten of each topic. reason: why there is no model; then all else is empty.
    """

    topics: int
    max_df: float
    anchor_min_df: float
    words: int = 0
    coherence: float = 0.0
    diversity: float = 0.0
    kept: float | None = None
    steady: float | None = None
    least_share: float = 0.0
    certificate: float = 0.0
    top_words: tuple[tuple[str, ...], ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """Coherence times diversity; coherence alone where it is negative, which being all alike would improve."""
        return self.coherence * self.diversity if self.coherence > 0 else self.coherence

    @property
    def lasting(self) -> bool:
        """Whether enough of its words outlast a forget set; also where that was not tried."""
        return self.kept is None or self.kept >= LASTING

    def as_json(self) -> dict[str, Any]:
        """Return what was measured as JSON has it, without the words."""
        fields = {name: value for name, value in asdict(self).items() if name != "top_words"}
        return {**fields, "score": self.score} if not self.reason else {k: fields[k] for k in (*_LIMITS, "reason")}


_LIMITS = ("topics", "max_df", "anchor_min_df")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """All candidates by number of topics, the recommended one (None: there is none) and the reason in words.

    variants: the recommended number under other thresholds, where they were tried.
    """

    candidates: tuple[Candidate, ...]
    recommended: Candidate | None
    reason: str
    variants: tuple[Candidate, ...] = ()

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as `suggest --json` prints it."""
        best = self.recommended
        return {
            "recommended": None if best is None else best.topics,
            "reason": self.reason,
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "variants": [variant.as_json() for variant in self.variants],
            "topics": [] if best is None else [list(words) for words in best.top_words],
        }


def recommend(candidates: Sequence[Candidate]) -> Suggestion:
    """Take the greatest number of topics whose score is within a tenth of the best, among lasting candidates.

    Where no candidate lasts, the one that keeps most words.
    """
    made = [candidate for candidate in candidates if not candidate.reason]
    if not made:
        why = candidates[0].reason if candidates else "no number of topics was tried"
        return Suggestion(tuple(candidates), None, f"no model can be made: {why}")
    lasting = [candidate for candidate in made if candidate.lasting]
    if not lasting:
        most = max(made, key=lambda candidate: (candidate.kept or 0.0, candidate.score))
        return Suggestion(tuple(candidates), most, _fleeting(most))
    best = max(lasting, key=lambda candidate: candidate.score)
    near = [candidate for candidate in lasting if candidate.score >= (1 - NEAR) * best.score]
    chosen = max(near, key=lambda candidate: candidate.topics) if best.score > 0 else best
    return Suggestion(tuple(candidates), chosen, _reason(chosen, best, made))


def _reason(chosen: Candidate, best: Candidate, made: Sequence[Candidate]) -> str:
    if chosen is best:
        said = [f"{_topics(chosen)}: the best score, {chosen.score:.2f} (coherence times diversity)"]
    else:
        near = f"is within a tenth of the best, {best.score:.2f} at {best.topics}"
        said = [f"{_topics(chosen)}: the most whose score, {chosen.score:.2f} (coherence times diversity), {near}"]
    better = [candidate for candidate in made if not candidate.lasting and candidate.score > best.score]
    if better:
        said.append(f"{_listed(better)} scored higher, but too few of the top words outlast the forget sets")
    if chosen.kept is not None and chosen.steady is not None:
        said.append(f"after a forget set {chosen.kept:.0%} of the top words are still there")
        said.append(_retrains(chosen.steady))
    return "; ".join(said)


def _fleeting(most: Candidate) -> str:
    return (
        f"{_topics(most)} keep the most top words, {most.kept or 0.0:.0%}, after a forget set; none of the numbers "
        "tried keeps four fifths: add documents or ask fewer topics"
    )


def _retrains(steady: float) -> str:
    if steady == 1:
        return "no forget set tried changes the anchors, so an update serves them all"
    if steady == 0:
        return "each forget set tried changes an anchor, so expect a retrain for a deletion of that size"
    return f"{steady:.0%} of the forget sets leave the anchors in place, the others cost a retrain"


def _topics(candidate: Candidate) -> str:
    return "1 topic" if candidate.topics == 1 else f"{candidate.topics} topics"


def _listed(candidates: Sequence[Candidate]) -> str:
    return ", ".join(str(candidate.topics) for candidate in candidates)
