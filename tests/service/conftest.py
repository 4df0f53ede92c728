"""Where tests of the service find what they share."""

import pytest


@pytest.fixture
def key(tmp_path):
    """A file with a noise key that is always the same."""
    path = tmp_path / "noise.key"
    path.write_text(bytes(range(32)).hex())
    path.chmod(0o600)
    return path
