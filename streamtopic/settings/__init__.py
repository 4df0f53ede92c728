"""Settings of the program: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

fields     every setting, validated one by one
loading    where values come from, and what is wrong with them in words
"""

from streamtopic.settings.fields import FILE_NAME, PREFIX, SECRETS, Settings
from streamtopic.settings.loading import load, write

__all__ = ["FILE_NAME", "PREFIX", "SECRETS", "Settings", "load", "write"]
