"""One case of a benchmark in a process of its own: `python -m streamtopic.bench.child NAME CASE`."""

import json
import sys

from streamtopic.bench.runner import measure

if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(*sys.argv[1:3])) + "\n")
