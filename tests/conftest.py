"""What all tests share."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch):
    """No test sees settings of whoever runs it."""
    for name in [name for name in os.environ if name.startswith("STREAMTOPIC_")]:
        monkeypatch.delenv(name)
