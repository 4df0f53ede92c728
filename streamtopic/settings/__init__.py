"""Settings of the program: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

fields     every setting, validated one by one; downstream tasks among them
loading    reads values from their sources, explains wrong values, refuses settings that contradict each other
"""

from streamtopic.settings.fields import FILE_NAME, PREFIX, SECRETS, Settings, TaskSettings
from streamtopic.settings.loading import load, refuse_conflicts, write

__all__ = ["FILE_NAME", "PREFIX", "SECRETS", "Settings", "TaskSettings", "load", "refuse_conflicts", "write"]
