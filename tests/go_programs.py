"""Programs that others wrote in Go, built for tests and kept in the user's cache."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["built", "installed"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopic-tests" / "go"


def built(folder, to):
    """Return the program that the Go sources in a folder make. to: a folder for it, and for the sums of its modules."""
    copy = shutil.copytree(folder, to / "sources")
    _go("build", "-o", to / "program", ".", cwd=copy, environment={"GOFLAGS": "-mod=mod"})
    return to / "program"


def installed(package):
    """Return the program of a package, `path/of/program@version`."""
    path, _, version = package.partition("@")
    name = path.rpartition("/")[2]
    program = CACHE / f"{name}-{version}"
    if not program.exists():
        # Into a folder of this process: another worker may install the same.
        own = CACHE / f"new-{os.getpid()}"
        own.mkdir(parents=True)
        _go("install", package, environment={"GOBIN": str(own), "GOFLAGS": ""})
        (own / name).rename(program)
        own.rmdir()
    return program


def _go(*arguments, environment, cwd=None):
    go = shutil.which("go")
    if go is None:
        pytest.skip("the ledger and programs of others: needs go")
    done = subprocess.run(
        [go, *map(str, arguments)], check=False, cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
