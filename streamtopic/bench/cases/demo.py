"""The demo on the installed docstrings: seconds of each stage, peak memory of this program."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

from streamtopic.bench.figures import Figure
from streamtopic.errors import CheckFailed

__all__ = ["CASES"]


def docstrings() -> list[Figure]:
    """Run `streamtopic demo --json` in this process."""
    from streamtopic.cli import main

    output = io.StringIO()
    with redirect_stdout(output):
        status = main(["demo", "--json"])
    if status != 0:
        raise CheckFailed(f"the demo ended with status {status}: run `streamtopic demo` to see why")
    found = json.loads(output.getvalue())
    total = found["seconds"].pop("total")
    stages = [Figure(name, seconds, "s") for name, seconds in found["seconds"].items()]
    explained = sum(figure.value for figure in stages) / total
    return [
        Figure("documents", found["documents"], "documents"),
        Figure("vocabulary", found["vocabulary"], "words"),
        *stages,
        Figure("total", total, "s", "< 60"),
        Figure("explained by stages", 100 * explained, "%"),
        Figure("npmi", found["quality"]["npmi"], ""),
        Figure("diversity", found["quality"]["diversity"], ""),
        Figure("twin difference", found["twin"]["max_abs_difference"], "", "<= 1e-12"),
    ]


CASES = {"docstrings": docstrings}
