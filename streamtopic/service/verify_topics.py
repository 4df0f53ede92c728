"""Checking the topics of a version: the same noise drawn for a model that was learned from the log alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from streamtopic.release import Payload, Release
    from streamtopic.service.publishing import PayloadPlan

__all__ = ["topics_differ"]

# R and shares are computed in double precision, by threads that may add in another order, and R is stored in single.
_ROUNDING = 1e-5


def topics_differ(release: Release, plan: PayloadPlan) -> tuple[str | None, float]:
    """Return in what published topics differ from `plan`, made again from the log (None: nothing), and by how much A.

    Rounding may put a number of A on the next point of the noise's grid; what is computed from A then differs as well,
    so R, shares and top words are compared where A is the same to the bit.
    """
    sent, again = release.payload, plan.payload
    if sent.A is None or again.A is None:
        return "topics are withheld, settings say that they are published: verify with --set publish=tasks", 0.0
    if sent.words != again.words or sent.A.shape != again.A.shape:
        return "a model learned from scratch has other words or topics", 0.0
    gap = float(np.abs(sent.A - again.A).max())
    bound = 2 * plan.noise.grid + 2.0**-23 * float(sent.A.max())
    if not gap <= bound:
        return f"largest difference {gap:.3g} from one learned from scratch", gap
    return (None if gap else _others_differ(sent, again)), gap


def _others_differ(sent: Payload, again: Payload) -> str | None:
    for name in ("R", "shares"):
        one, other = np.asarray(getattr(sent, name), np.float64), np.asarray(getattr(again, name), np.float64)
        if not np.abs(one - other).max() <= _ROUNDING * max(1.0, float(np.abs(other).max())):
            return f"A is that of one learned from scratch, {name} is not"
    return None if sent.top_words == again.top_words else "A is that of one learned from scratch, top words are not"
