"""An embedded instance for tests that are about something else than its settings."""

from streamtopic.service.app import Service
from streamtopic.settings import load

PLAIN = {"topics": 3, "max_forget_lag": 0.0, "capacity": {"rule": "fixed", "documents": 1000}, "max_df": 1.0}


def embedded(folder, **more):
    """Return an instance in a folder that serves deletions at once, as updates; more: other settings, or the same."""
    return Service(load({"dir": folder, **PLAIN, **more}))
