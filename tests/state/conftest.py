"""A real Redis for the state tests, and names that no two tests share."""

import itertools
import sys
from pathlib import Path

import pytest

from streamtopic.local import LocalRedis
from streamtopic.state import Connection

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path.append(str(Path(__file__).parent))

_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis_server():
    """A server for all tests of a session."""
    with LocalRedis() as server:
        yield server


@pytest.fixture
def connection(redis_server):
    """A connection of its own for each test."""
    with Connection(redis_server.url) as connection:
        yield connection


@pytest.fixture
def model():
    """A model that no other test uses."""
    return f"m{next(_numbers)}"


@pytest.fixture
def new_model():
    """Names for examples of one property test, each of which needs its own state."""
    return lambda: f"m{next(_numbers)}"
