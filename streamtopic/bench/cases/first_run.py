"""The first run on a machine: the demo with an empty cache and again, and what its kernels take to compile."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from streamtopic.bench.figures import Figure, cpu_timed, printed_by, timed

__all__ = ["CASES"]


def kernels() -> list[Figure]:
    """Compile all that the demo needs."""
    with tempfile.TemporaryDirectory() as cache:
        # In a process of its own: numba chooses its folder when a kernel is imported, and this one has done that.
        found = json.loads(printed_by(__name__, environment=_with_cache(cache)))
    return [
        Figure("compiling, processor time", found["seconds"], "s", "<= 12"),
        Figure("functions compiled", found["functions"], ""),
    ]


def _with_cache(folder: str) -> dict[str, str]:
    return {**os.environ, "NUMBA_CACHE_DIR": folder}


def _compile_all() -> None:
    """Print how many functions the demo compiles, and the seconds of processor time that it takes, as JSON."""
    from numba.core import event

    from streamtopic.cli import main

    class Listener(event.Listener):
        """Adds up the processor time of compiling; a function is compiled within that of another one."""

        seconds, functions, depth, start = 0.0, 0, 0, 0.0

        def on_start(self, event: Any) -> None:  # noqa: ANN401, ARG002  as numba calls it
            if self.depth == 0:
                self.start = time.thread_time()
            self.depth += 1

        def on_end(self, event: Any) -> None:  # noqa: ANN401, ARG002  as numba calls it
            self.depth -= 1
            self.functions += 1
            if self.depth == 0:
                self.seconds += time.thread_time() - self.start

    listener = Listener()
    with event.install_listener("numba:compile", listener), redirect_stdout(StringIO()):
        main(["demo", "--json"])
    print(json.dumps({"seconds": listener.seconds, "functions": listener.functions}))


def demo() -> list[Figure]:
    """Run the demo with an empty cache, then with the cache that it left."""
    with tempfile.TemporaryDirectory() as cache:
        cold = _demo("cold", cache, "<= 40")
        return cold + _demo("warm", cache, "<= 15")


def _demo(name: str, cache: str, target: str) -> list[Figure]:
    def run() -> str:
        return printed_by("streamtopic", "demo", "--json", environment=_with_cache(cache))

    used, (seconds, _) = cpu_timed(lambda: timed(run))
    return [
        Figure(f"{name}, from start to end", seconds, "s", target),
        Figure(f"{name}, processor time of all its processes", used, "s"),
    ]


CASES = {"kernels": kernels, "demo": demo}


if __name__ == "__main__":
    _compile_all()
