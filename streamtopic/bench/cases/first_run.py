"""The first run on a machine: the demo with an empty cache and again, and what each kernel takes to compile."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from streamtopic.bench.figures import Figure
from streamtopic.errors import CheckFailed

__all__ = ["CASES"]

_SHOWN = 30


_COMPILE = "from streamtopic.bench.cases.first_run import compile_all; compile_all()"


def kernels() -> list[Figure]:
    """Compile all that the demo needs, and show the kernels that take longest, without those they call."""
    with tempfile.TemporaryDirectory() as cache:
        # In a process of its own: numba chooses its folder when a kernel is imported, and this one has done that.
        done = subprocess.run(  # noqa: S603  this very program
            [sys.executable, "-P", "-c", _COMPILE],
            env={**os.environ, "NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            check=False,
        )
    if done.returncode != 0:
        raise CheckFailed(f"compiling ended with status {done.returncode}: run `streamtopic demo` to see why")
    found: dict[str, tuple[int, float]] = json.loads(done.stdout)
    longest = sorted(found.items(), key=lambda item: -item[1][1])[:_SHOWN]
    return [
        Figure("compiling, processor time", sum(seconds for _, seconds in found.values()), "s", "<= 12"),
        Figure("functions compiled", sum(times for times, _ in found.values()), ""),
        *(Figure(f"{name} x {times}", seconds, "s") for name, (times, seconds) in longest),
    ]


def compile_all() -> None:
    """Print what the demo compiles: for each function how often, and the seconds of processor time, as JSON."""
    from numba.core import event

    from streamtopic.cli import main

    listener = _listener()
    with event.install_listener("numba:compile", listener), redirect_stdout(StringIO()):
        main(["demo", "--json"])
    found = {name: (times, listener.seconds[name]) for name, times in listener.times.items()}
    sys.stdout.write(json.dumps(found))


def _listener() -> Any:  # noqa: ANN401  its class needs numba, which must not be imported before the folder is set
    from numba.core import event

    class _Listener(event.Listener):
        """Adds up the processor time of each function; compiling holds a lock, so that starts and ends are nested."""

        def __init__(self) -> None:
            self.seconds = defaultdict[str, float](float)
            self.times = Counter[str]()
            self._open: list[tuple[float, float]] = []

        def on_start(self, event: Any) -> None:  # noqa: ANN401, ARG002  as numba calls it
            self._open.append((time.thread_time(), 0.0))

        def on_end(self, event: Any) -> None:  # noqa: ANN401  as numba calls it
            start, inner = self._open.pop()
            spent = time.thread_time() - start
            if self._open:
                outer, others = self._open[-1]
                self._open[-1] = outer, others + spent
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__}.{function.__qualname__}".removeprefix("streamtopic.")
            self.seconds[name] += spent - inner
            self.times[name] += 1

    return _Listener()


def demo() -> list[Figure]:
    """Run the demo with an empty cache, then with the cache that it left."""
    with tempfile.TemporaryDirectory() as cache:
        cold = _demo("cold", cache, "<= 40")
        return cold + _demo("warm", cache, "<= 15")


def _demo(name: str, cache: str, target: str) -> list[Figure]:
    program = [sys.executable, "-P", "-m", "streamtopic", "demo", "--json"]
    before, start = _processor_time(), time.perf_counter()
    done = subprocess.run(  # noqa: S603  this very program
        program, env={**os.environ, "NUMBA_CACHE_DIR": cache}, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise CheckFailed(f"the demo ended with status {done.returncode}: run `streamtopic demo` to see why")
    seconds = time.perf_counter() - start
    return [
        Figure(f"{name}, from start to end", seconds, "s", target),
        Figure(f"{name}, processor time of all its processes", _processor_time() - before, "s"),
    ]


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CASES = {"kernels": kernels, "demo": demo}
