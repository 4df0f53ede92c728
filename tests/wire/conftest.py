"""A ledger in memory."""

import pytest

from ledger_maker import LedgerMaker
from memory_log import MemoryLog


@pytest.fixture
def maker():
    """Makes the ledger of the model `news`; `maker.log.values` has its records."""
    return LedgerMaker(MemoryLog())
