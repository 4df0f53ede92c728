"""Which faults, when: drawn from a seed, so that a campaign can be run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

__all__ = ["EVERY_KIND", "Fault", "draw"]

EVERY_KIND: Mapping[str, float] = {
    "kill ingest": 5,
    "kill schedule": 3,
    "kill publish": 3,
    "suspend ingest": 3,
    "suspend schedule": 2,
    "suspend publish": 1,
    "late commit": 2,
    "late version": 1,
    "lose replies": 6,
    "cut connections": 3,
    "pause redis": 3,
    "fill redis": 1,
    "kill redis": 2,
    "set redis back": 2,
    "redis loses its end": 2,
    "kill kafka": 1,
    "restart kafka": 1,
    "rebalance storm": 2,
    "forged headers": 3,
    "poison records": 3,
    "gzip bomb": 1,
    "open transaction": 3,
    "wrong clocks": 2,
}
"""Kinds of faults with their shares.

suspend: SIGSTOP for longer than the others wait, then SIGCONT. late: a command arrives when its sender is dead and
replaced. lose replies: what was asked was done, unheard. fill: no memory is left for writes. set redis back: it starts
again from an older copy of its data. redis loses its end: some last bytes of what it wrote.
forged headers, poison records, gzip bomb: records of a producer that means harm. open transaction: committed, aborted
or left to the broker. wrong clocks: of a process, and of who sends records meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. delay: seconds from the start of its round; which: picks a target among several; seconds: how long it
    lasts; amount: of whatever the kind counts, from 0 to 1.
    """

    kind: str
    delay: float
    which: int
    seconds: float
    amount: float


def draw(rng: Random, number: int, window: float, kinds: Mapping[str, float] = EVERY_KIND) -> Sequence[Fault]:
    """Draw a round of faults that begin within `window` seconds, in the order in which they begin."""
    names = rng.choices(list(kinds), list(kinds.values()), k=number)
    faults = [Fault(name, rng.uniform(0, window), rng.randrange(1 << 16), rng.random(), rng.random()) for name in names]
    return sorted(faults, key=lambda fault: fault.delay)
