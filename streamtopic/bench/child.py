"""A case of a benchmark in its own process: `python -m streamtopic.bench.child NAME CASE [OPTION=VALUE ...]`."""

import json
import sys

from streamtopic.bench.runner import measure
from streamtopic.errors import StreamtopicError


def _main(name: str, case: str, *options: str) -> int:
    given = {option: value for option, _, value in (text.partition("=") for text in options)}
    try:
        measured = measure(name, case, given)
    except StreamtopicError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return error.exit_status
    sys.stdout.write(json.dumps(measured) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
