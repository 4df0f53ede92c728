"""The local Kafka where nothing that it needs is there."""

import importlib.util

import pytest

from streamtopic.errors import ComponentUnreachable
from streamtopic.local import LocalKafka
from streamtopic.local.local_kafka import find_java

pytestmark = pytest.mark.slow


def test_without_java_it_says_how_to_get_one(monkeypatch):
    """Neither wheel nor PATH has one: the message has the command that helps."""
    monkeypatch.setenv("PATH", "")
    assert find_java().parts[-3:] == ("java-runtime", "bin", "java")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ComponentUnreachable, match="pip install 'streamtopic"):
        LocalKafka().start()
