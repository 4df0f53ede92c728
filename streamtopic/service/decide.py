"""What the scheduler does next: one pure function of where things stand."""

from dataclasses import dataclass

__all__ = ["Decision", "Policy", "Retrain", "Standing", "Unlearn", "Wait", "decide", "decision_text"]


@dataclass(frozen=True, slots=True)
class Policy:
    """When to act. Shares are of the deletion capacity, except update_after, of the model's documents.

    unlearn_at: an update once the forget set reaches this share; batch: past that, one for every further share;
    max_forget_lag_ms: longest wait of a deletion; update_after: new documents that cause an update; epsilon_budget:
    most cumulative epsilon since the base model.
    """

    unlearn_at: float = 0.8
    batch: float = 0.1
    max_forget_lag_ms: int = 3_600_000
    update_after: float = 0.05
    epsilon_budget: float = 8.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where things stand.

    documents: live ones; base_documents: those the base model was trained on, None before the first; model_documents:
    those of the last published version; forget_set: base documents gone since; published_forget_set: the same as of
    the last version; unserved: deletions that no version reflects; oldest_unserved_ms: time of the oldest of them;
    new_documents: added since the last version; capacity: deletions the base model bears; next_epsilon: cumulative
    epsilon if one more version is released on this base; failed: why the last attempt on these very documents made no
    model; requested: what an operator asked for; behind: why counts are not yet where the last version was; lost: why
    the base model is not the last version's; doubled: versions that stand in the log with two contents; base_only:
    whether an update covers the base model's documents only, as in theorem mode.
    """

    documents: int
    base_documents: int | None = None
    model_documents: int = 0
    forget_set: int = 0
    published_forget_set: int = 0
    unserved: int = 0
    oldest_unserved_ms: int | None = None
    new_documents: int = 0
    capacity: int = 0
    next_epsilon: float = 0.0
    failed: str | None = None
    requested: str | None = None
    behind: str | None = None
    lost: str | None = None
    doubled: tuple[int, ...] = ()
    base_only: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unlearn:
    """Update the base model to the documents that are live now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retrain:
    """Train a new base model from counts."""

    reason: str


Decision = Wait | Unlearn | Retrain


def decision_text(decision: Decision) -> str:
    """Write a decision with its reason."""
    return f"{type(decision).__name__.lower()}: {decision.reason}"


def decide(standing: Standing, policy: Policy, now_ms: int) -> Decision:
    """Return what to do, with the reason in words for an operator."""
    return _first(standing) or _later(standing, policy, now_ms)


def _first(standing: Standing) -> Decision | None:
    """Decide what needs no look at deletions: nothing to learn from, no model yet, or a wish for a new one."""
    if standing.behind is not None:
        return Wait(standing.behind)
    if standing.documents == 0 and standing.base_documents is None:
        return Wait("no documents yet")
    if standing.failed is not None and standing.requested is None:
        return Wait(f"no model can be made of the present documents: {standing.failed}")
    if standing.requested == "retrain":
        return Retrain("asked for by hand")
    if standing.lost is not None:
        return Retrain(standing.lost)
    return Retrain("no base model yet") if standing.base_documents is None else None


def _later(standing: Standing, policy: Policy, now_ms: int) -> Decision:
    cause = _cause(standing, policy, now_ms)
    if cause is None:
        return Wait(_quiet(standing, policy))
    if standing.forget_set > standing.capacity:
        return Retrain(f"the forget set of {standing.forget_set} exceeds the deletion capacity of {standing.capacity}")
    if standing.next_epsilon > policy.epsilon_budget:
        return Retrain(
            f"one more release would spend epsilon {standing.next_epsilon:.2f} of {policy.epsilon_budget:g} "
            "on this base"
        )
    if standing.base_only and _grown(standing, policy):
        return Retrain(f"{cause}; an update covers the base model's documents only")
    return Unlearn(cause)


def _cause(standing: Standing, policy: Policy, now_ms: int) -> str | None:
    """Return why something must happen now, or None."""
    if standing.requested == "unlearn":
        return "asked for by hand"
    if standing.doubled:
        return f"version {standing.doubled[0]} was published with two contents: it needs a successor"
    if standing.forget_set > standing.capacity and standing.unserved:
        return "capacity exceeded"
    if standing.unserved:
        cause = _deletions(standing, policy, now_ms)
        if cause is not None:
            return cause
    if _grown(standing, policy):
        return f"{standing.new_documents} new documents since a version of {standing.model_documents}"
    return None


def _grown(standing: Standing, policy: Policy) -> bool:
    return 0 < standing.new_documents >= policy.update_after * standing.model_documents


def _deletions(standing: Standing, policy: Policy, now_ms: int) -> str | None:
    near = policy.unlearn_at * standing.capacity
    if standing.forget_set >= near and standing.published_forget_set < near:
        return f"the forget set of {standing.forget_set} reached {policy.unlearn_at:.0%} of {standing.capacity}"
    if standing.forget_set >= near and standing.unserved >= max(1.0, policy.batch * standing.capacity):
        return f"{standing.unserved} more deletions while capacity is near"
    waited = now_ms - (standing.oldest_unserved_ms if standing.oldest_unserved_ms is not None else now_ms)
    if waited >= policy.max_forget_lag_ms:
        return f"a deletion has waited {waited / 1000:.0f} s of at most {policy.max_forget_lag_ms / 1000:.0f} s"
    return None


def _quiet(standing: Standing, policy: Policy) -> str:
    if standing.unserved:
        return (
            f"{standing.unserved} deletions wait, none longer than {policy.max_forget_lag_ms / 1000:.0f} s; "
            f"forget set {standing.forget_set} of {standing.capacity}"
        )
    if not standing.new_documents:
        return "the published version holds exactly the live documents"
    return f"{standing.new_documents} new documents, fewer than {policy.update_after:.0%} of {standing.model_documents}"
