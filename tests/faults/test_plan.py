"""Faults drawn from a seed."""

import random

import pytest

from campaign.inject import Injector
from campaign.plan import EVERY_KIND, SHARDED_KINDS, draw


def test_the_same_seed_draws_the_same_faults():
    """A campaign can be run again, fault by fault."""
    first, again, other = (draw(random.Random(seed), 20, 6.0) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("kinds", [EVERY_KIND, SHARDED_KINDS])
def test_every_kind_is_drawn_and_can_be_done(kinds):
    """No kind is left out of a long campaign, and each names a deed or a process and what happens to it."""
    assert {fault.kind for fault in draw(random.Random(4), 500, 6.0, kinds)} == set(kinds)
    for kind in kinds:
        deed, _, target = kind.partition(" ")
        named = hasattr(Injector, "_" + kind.replace(" ", "_"))
        assert named or (deed in {"kill", "suspend"} and target in {"ingest", "schedule"})
