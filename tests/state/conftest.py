"""A real Redis for the state tests, and names that no two tests share."""

import itertools
import sys
from pathlib import Path

import pytest

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

_numbers = itertools.count()


@pytest.fixture
def model():
    """A model that no other test uses."""
    return f"m{next(_numbers)}"


@pytest.fixture
def new_model():
    """Names for examples of one property test, each of which needs its own state."""
    return lambda: f"m{next(_numbers)}"
