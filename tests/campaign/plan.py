"""Draws kinds and times of faults from a seed, so that a campaign can be run again."""

from __future__ import annotations

from dataclasses import dataclass

EVERY_KIND = {
    "kill ingest": 5,
    "kill schedule": 6,
    "suspend ingest": 3,
    "suspend schedule": 3,
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
}
"""Kinds of faults with their shares, where Redis is one server.

suspend: SIGSTOP for longer than the others wait, then SIGCONT.
late: a command arrives when its sender is dead and replaced.
lose replies: commands are done, and their senders do not hear of it.
fill redis: there is no memory left for writes.
set redis back: it starts again from an older copy of its data.
redis loses its end: it starts again without the last bytes that it wrote.
"""


_NEW_WITH_SHARDS = {
    "fail over": 2,
    "kill master": 3,
    "forgetful replica": 2,
    "stalled node": 3,
    "move slots": 3,
}
SHARDED_KINDS = {
    **{kind: share for kind, share in EVERY_KIND.items() if kind != "kill redis"},
    **_NEW_WITH_SHARDS,
}
"""Kinds of faults with their shares, where Redis is a cluster. "set redis back" sets all of its nodes back together.

fail over: CLUSTER FAILOVER, in order and without loss.
kill master: its replica takes its place; it comes again as a replica.
forgetful replica: one that has missed the last seconds of its master takes its place.
stalled node: a master stands still, shorter or longer than until it is replaced.
move slots: a slot of a partition, or of the model, moves to another master key by key.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    kind: of EVERY_KIND or SHARDED_KINDS.
    delay: seconds from the start of its round.
    which: any number, which picks a target among several.
    seconds: how long it lasts, from 0 to 1; each kind has its own scale.
    amount: how much of it there is, from 0 to 1; each kind has its own scale.
    """

    kind: str
    delay: float
    which: int
    seconds: float
    amount: float


def draw(rng, number, window, kinds=EVERY_KIND):
    """Return a round of faults in the order in which they begin.

    number: of faults.
    window: seconds within which they begin.
    kinds: kind to share.
    """
    names = rng.choices(list(kinds), list(kinds.values()), k=number)
    faults = [Fault(name, rng.uniform(0, window), rng.randrange(1 << 16), rng.random(), rng.random()) for name in names]
    return sorted(faults, key=lambda fault: fault.delay)
