"""A small model, as releases carry it."""

import sys
from pathlib import Path

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path += [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "wire")]

from sample_release import key, make

__all__ = ["key", "make"]
