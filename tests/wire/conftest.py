"""A ledger in memory."""

import pytest
from sent_records import Sent

from ledger_maker import LedgerMaker


@pytest.fixture
def maker():
    """Makes the ledger of the model `news`; `maker.log.values` has its records."""
    return LedgerMaker(Sent())
