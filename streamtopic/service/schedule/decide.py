"""Decide the scheduler's next action: a pure function of the situation, the settings and the time."""

import math
from dataclasses import dataclass

from streamtopic.settings import Settings

__all__ = [
    "BY_HAND",
    "LONGEST_HOLD_MS",
    "Decision",
    "Retrain",
    "Situation",
    "Unlearn",
    "Wait",
    "decide",
    "decision_text",
    "held",
]


BY_HAND = "asked for by hand"
"""The reason of an action that an operator asked for."""

UNLEARN_AT = 0.8
"""Share of the deletion capacity from which on the forget set causes an update: before that, deletions wait for others
as long as `max_forget_lag` lets them, and the rest leaves room for those that come while the update is made."""
UPDATE_STEP = 0.1
"""Past it, the further share of the capacity that causes one more update: two more before a retrain is due."""

LONGEST_HOLD_MS = 300_000
"""The longest that a request holds a version back, so that its documents leave in one version."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that a decision depends on, besides the settings and the clock.

    documents: number of live documents.
    base_documents: documents that the base model was trained on; None before the first base model.
    model_documents: documents of the last published version.
    forget_set: documents of the base model that were deleted since.
    published_forget_set: the forget set of the last version.
    unserved: deletions that no version reflects yet.
    oldest_unserved_ms: when the oldest of these was received, milliseconds since 1970.
    new_documents: documents added since the last version.
    capacity: deletions that the base model bears, infinite if an update rests on the counts alone.
    next_epsilon: the cumulative epsilon if one more version of this base model is released.
    failed: why the last attempt on the same documents made no model; None if there was no such attempt.
    requested: the operator's request, `unlearn` or `retrain`.
    behind: why the counts are older than the last version; None if they are not.
    lost: why an update must not start from the kept base model; None if it may.
    unsent: the newest version, if its bytes were lost before they were sent.
    base_only: whether an update covers the base model's documents only.
    periods: whether each base model spends a budget again, so that only an operator begins one after the first.
    forgetting_ms: for how long a request whose deletions are not all counted has held versions back, milliseconds; None
        if there is no such request.
    holding_ms: for how long there always was one, milliseconds.
    """

    documents: int
    base_documents: int | None = None
    model_documents: int = 0
    forget_set: int = 0
    published_forget_set: int = 0
    unserved: int = 0
    oldest_unserved_ms: int | None = None
    new_documents: int = 0
    capacity: float = 0
    next_epsilon: float = 0.0
    failed: str | None = None
    requested: str | None = None
    behind: str | None = None
    lost: str | None = None
    unsent: tuple[int, ...] = ()
    base_only: bool = False
    periods: bool = False
    forgetting_ms: int | None = None
    holding_ms: int = 0


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


def decide(situation: Situation, settings: Settings, now_ms: int) -> Decision:
    """Return the next action, with its reason in words for an operator."""
    return held(situation, settings) or _first(situation) or _later(situation, settings, now_ms)


def held(situation: Situation, settings: Settings) -> Wait | None:
    """Return why a version has to wait for the rest of what a request deletes, None if it need not."""
    if situation.forgetting_ms is None or situation.requested is not None:
        return None
    # Whoever may ask may do so at any time. So neither one request nor many in a row hold a deletion back for longer
    # than `max_forget_lag`, or than one request may take.
    longest = max(int(settings.max_forget_lag * 1000), LONGEST_HOLD_MS)
    if situation.forgetting_ms >= LONGEST_HOLD_MS or situation.holding_ms >= longest:
        return None
    return Wait("the documents of a request are being deleted; they leave in one version")


def _first(situation: Situation) -> Decision | None:
    """Decide where deletions do not matter: no documents, no model yet, or a request for a new one."""
    # Counts from before the newest version would give a model of fewer documents under a newer number.
    if situation.behind is not None:
        return Wait(situation.behind)
    if situation.documents == 0 and situation.base_documents is None:
        return Wait("no documents yet")
    # The same documents would fail again; an operator may have changed a setting, so a request is tried.
    if situation.failed is not None and situation.requested is None:
        return Wait(f"no model can be made of the present documents: {situation.failed}")
    if situation.requested == "retrain":
        return Retrain(BY_HAND)
    if situation.lost is not None:
        return _anew(situation.lost, situation)
    return Retrain("no base model yet") if situation.base_documents is None else None


def _anew(reason: str, situation: Situation) -> Decision:
    """Return a retrain, or the wait for an operator who may begin one."""
    if situation.periods:
        return Wait(f"{reason}. `streamtopic unlearn --retrain` begins a period, with a budget of its own")
    return Retrain(reason)


def _later(situation: Situation, settings: Settings, now_ms: int) -> Decision:
    """Decide whether there is a cause to act, and whether an update may still stand on the base model."""
    cause = _cause(situation, settings, now_ms)
    if cause is None:
        return Wait(_quiet(situation, settings))
    if situation.forget_set > situation.capacity:
        forgotten = situation.forget_set
        capacity = situation.capacity
        return Retrain(f"the forget set of {forgotten} exceeds the deletion capacity of {capacity}")
    if situation.next_epsilon > settings.epsilon_budget:
        return Retrain(
            f"one more release would spend epsilon {situation.next_epsilon:.2f} of {settings.epsilon_budget:g} "
            "on this base"
        )
    # New documents need a retrain then, and a retrain serves the deletions as well.
    if situation.base_only and _grown(situation, settings):
        return Retrain(f"{cause}; an update covers the base model's documents only")
    return Unlearn(cause)


def _cause(situation: Situation, settings: Settings, now_ms: int) -> str | None:
    """Return why an action is due now, or None."""
    if situation.requested == "unlearn":
        return BY_HAND
    if situation.unsent:
        return f"the bytes of version {situation.unsent[0]} were lost before they were sent: it needs a successor"
    if situation.forget_set > situation.capacity and situation.unserved:
        return "capacity exceeded"
    if situation.unserved:
        cause = _deletions(situation, settings, now_ms)
        if cause is not None:
            return cause
    if _grown(situation, settings):
        return f"{situation.new_documents} new documents since a version of {situation.model_documents}"
    return None


def _grown(situation: Situation, settings: Settings) -> bool:
    """Return whether new documents are many enough for a new version."""
    return 0 < situation.new_documents >= settings.update_after * situation.model_documents


def _deletions(situation: Situation, settings: Settings, now_ms: int) -> str | None:
    """Return why the deletions that wait cause an update now, or None."""
    near = UNLEARN_AT * situation.capacity
    # Once for a base model: the next version has published a forget set of at least `near`.
    if situation.forget_set >= near and situation.published_forget_set < near:
        return f"the forget set of {situation.forget_set} reached {UNLEARN_AT:.0%} of {situation.capacity}"
    # Near capacity each further share of it causes one update, so that single deletions do not cause one each.
    if situation.forget_set >= near and situation.unserved >= max(1.0, UPDATE_STEP * situation.capacity):
        return f"{situation.unserved} more deletions while capacity is near"
    received = now_ms if situation.oldest_unserved_ms is None else situation.oldest_unserved_ms
    waited = now_ms - received
    longest = int(settings.max_forget_lag * 1000)
    if waited < longest:
        return None
    if not longest:
        return "a deletion has come, and none has to wait"
    return f"a deletion has waited {_seconds(waited)} s, and {_seconds(longest)} s are the most"


def _seconds(milliseconds: float) -> str:
    """Write milliseconds in seconds: whole ones, or the first digits of less than ten."""
    seconds = milliseconds / 1000
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _quiet(situation: Situation, settings: Settings) -> str:
    """Return why there is nothing to do yet."""
    if situation.unserved:
        waiting = f"{situation.unserved} deletions wait, none longer than {_seconds(1000 * settings.max_forget_lag)} s"
        bears = "" if math.isinf(situation.capacity) else f"; forget set {situation.forget_set} of {situation.capacity}"
        return waiting + bears
    if not situation.new_documents:
        return "the published version holds exactly the live documents"
    new = situation.new_documents
    documents = situation.model_documents
    return f"{new} new documents, fewer than {settings.update_after:.0%} of {documents}"
