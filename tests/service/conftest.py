"""Where tests of the service find what they share."""

import sys
from pathlib import Path

import pytest

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


@pytest.fixture
def key(tmp_path):
    """A file with a noise key that is always the same."""
    path = tmp_path / "noise.key"
    path.write_text(bytes(range(32)).hex())
    path.chmod(0o600)
    return path
