"""Settings of the program: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

fields     every setting, validated one by one
tasks      settings of a downstream task
conflicts  what is wrong with several together
loading    where values come from, and what is wrong with them in words
"""

from streamtopic.settings.fields import FILE_NAME, PREFIX, SECRETS, Settings, TaskSettings
from streamtopic.settings.loading import load, refuse_conflicts, write

__all__ = ["FILE_NAME", "PREFIX", "SECRETS", "Settings", "TaskSettings", "load", "refuse_conflicts", "write"]
