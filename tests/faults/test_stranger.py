"""The foreign producer of a campaign."""

import threading

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from campaign import stranger


def test_nobody_waits_for_a_transaction_that_never_ends(monkeypatch):
    """Where kafka-python gets no answer, the campaign goes on; what it raises is raised."""
    monkeypatch.setattr(stranger, "_PATIENCE_MS", 50)
    never = threading.Event()
    with pytest.raises(KafkaTimeoutError):
        stranger._bounded(never.wait)
    never.set()

    def refused():
        raise KafkaError("fenced")

    with pytest.raises(KafkaError, match="fenced"):
        stranger._bounded(refused)
    assert stranger._bounded(lambda: None) is None
