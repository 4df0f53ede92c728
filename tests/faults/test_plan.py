"""Faults drawn from a seed."""

import random

import pytest

from campaign.inject import Injector
from campaign.plan import EVERY_KIND, SHARDED_KINDS, draw


def test_the_same_seed_draws_the_same_faults():
    """A campaign can be run again, fault by fault."""
    first, again, other = (draw(random.Random(seed), 20, 6.0) for seed in (1, 1, 2))
    assert first == again != other


def test_faults_begin_within_their_round_in_order():
    """Delays lie in the window and grow."""
    delays = [fault.delay for fault in draw(random.Random(3), 50, 6.0)]
    assert delays == sorted(delays)
    assert 0 <= delays[0] <= delays[-1] <= 6


@pytest.mark.parametrize("kinds", [EVERY_KIND, SHARDED_KINDS])
def test_every_kind_is_drawn_and_can_be_done(kinds):
    """No kind is left out of a long campaign, and each names a deed or a process and what happens to it."""
    assert {fault.kind for fault in draw(random.Random(4), 500, 6.0, kinds)} == set(kinds)
    for kind in kinds:
        deed, _, target = kind.partition(" ")
        named = hasattr(Injector, "_" + kind.replace(" ", "_"))
        assert named or (deed in {"kill", "suspend"} and target in {"ingest", "schedule"})


def test_a_campaign_can_be_limited_to_some_kinds():
    """Shares decide which kinds are drawn."""
    kinds = {fault.kind for fault in draw(random.Random(5), 50, 6.0, {"kill redis": 1, "lose replies": 2})}
    assert kinds == {"kill redis", "lose replies"}
