"""Sets of versions, kept as runs, held against Python's own sets."""

import time

from hypothesis import given
from hypothesis import strategies as st

from streamtopic.signed import Runs

NUMBERS = st.sets(st.integers(1, 60))


@given(one=NUMBERS, two=NUMBERS)
def test_runs_are_a_set(one, two):
    """Members, number, order, equality and union are those of the set of the same numbers."""
    mine = Runs.of(one)
    assert mine == one
    assert (list(mine), len(mine), bool(mine)) == (sorted(one), len(one), bool(one))
    assert [number for number in range(62) if number in mine] == sorted(one)
    for union in (mine | two, two | mine, mine | Runs.of(two), frozenset(two) | mine):
        assert isinstance(union, Runs)
        assert union == one | two
        assert union.edges == Runs.of(one | two).edges
    assert mine & two == one & two
    assert mine == one


@given(numbers=NUMBERS, last=st.integers(0, 70), count=st.integers(1, 20))
def test_gaps_are_the_numbers_that_are_missing(numbers, last, count):
    """From 1 on; the newest of a set are its largest numbers."""
    mine = Runs.of(numbers)
    missing = sorted(set(range(1, last + 1)) - numbers)
    assert list(mine.gaps(last)) == missing
    assert mine.gaps(last).edges == Runs.of(missing).edges
    assert mine.newest(count) == sorted(numbers)[-count:]


def test_a_run_costs_nothing_however_long_it_is():
    """Whoever signs a run of all numbers fills no memory, and years of versions are quick to ask."""
    start = time.process_time()
    whole = Runs((1, 1 << 61)) | {1 << 62} | Runs((5, 9))
    assert len(whole) == (1 << 61) + 1
    assert all(number in whole for number in (1, 1 << 60, 1 << 62))
    assert 0 not in whole
    assert time.process_time() - start < 1
