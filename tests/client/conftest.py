"""A log with a ledger and releases, and who writes them."""

import pytest

from ledger_maker import LedgerMaker
from streamtopic.streams import FileLog


@pytest.fixture
def log(tmp_path):
    """A log in files."""
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def maker(log):
    """The service of model `news`."""
    return LedgerMaker(log)
