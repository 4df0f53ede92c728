"""Where tests of the service find what they share."""

import sys
from pathlib import Path

# Tests are imported by path (importmode importlib), so what they share is found only if its folder is named.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
