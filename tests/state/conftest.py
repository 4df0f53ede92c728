"""A real Redis for the state tests, and names that no two tests share."""

import itertools

import pytest
from state_reference import Run

_numbers = itertools.count()


@pytest.fixture
def model():
    """A model that no other test uses."""
    return f"m{next(_numbers)}"


@pytest.fixture
def run(connection, model):
    """A partition with two documents of two commits."""
    run = Run(connection, model)
    for number in range(2):
        run.add(number, ((3, {"x": 2, f"w{number}": 1}),))
        run.flush()
    return run


@pytest.fixture
def new_model():
    """Names for examples of one property test, each of which needs its own state."""
    return lambda: f"m{next(_numbers)}"
