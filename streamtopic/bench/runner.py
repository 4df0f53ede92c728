"""Run the cases of a benchmark, each in its own process, so that peak memory is the case's own."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from streamtopic.bench import cases
from streamtopic.bench.figures import Figure, peak_bytes
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

__all__ = ["CaseResult", "Option", "Result", "machine", "measure", "names", "run"]

Option: TypeAlias = int | str
"""What a case can be given; of the type of its default."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Figures of one case and the peak resident memory of its process in bytes."""

    case: str
    figures: list[Figure]
    peak_memory: int


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a benchmark on this machine. options: of its cases."""

    benchmark: str
    machine: str
    cases: list[CaseResult]
    options: dict[str, Option]


def names() -> dict[str, str]:
    """Return the benchmarks and what each measures, by name, with its options and their defaults."""
    found = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    return {name.replace("_", "-"): _about(_module(name)) for name in found}


def machine() -> str:
    """Describe this machine in one line."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123  a device file of the kernel, not a path of the user
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {usable} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def run(
    name: str,
    only: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    options: Mapping[str, Option] | None = None,
) -> Result:
    """Run a benchmark, or `only` some of its cases.

    options: for all its cases, in place of the defaults in its OPTIONS; values of numbers may be text. Raises
        `UsageError` for an unknown name or option, a number below 0, or one that a case refuses, `CheckFailed` if a
        case dies.
    """
    module = _find(name)
    known = getattr(module, "OPTIONS", {})
    if unknown := [option for option in options or {} if option not in known]:
        raise UsageError(f"benchmark {name} has no option {unknown[0]}: it has {', '.join(known) or 'none'}")
    if strange := [case for case in only if case not in module.CASES]:
        raise UsageError(f"benchmark {name} has no case {strange[0]}: it has {', '.join(module.CASES)}")
    chosen = [case for case in module.CASES if not only or case in only]
    given = {**known, **{option: _value(option, value, known[option]) for option, value in (options or {}).items()}}
    found = []
    for case in chosen:
        if progress is not None:
            progress(case)
        found.append(_in_process(name, case, given))
    return Result(name, machine(), found, given)


def measure(name: str, case: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Run one case in this very process and return the text that the child prints.

    options: values of numbers may be text.
    """
    module = _find(name)
    known = getattr(module, "OPTIONS", {})
    given = {option: type(known[option])(value) for option, value in options.items()}
    figures = module.CASES[case](**given)
    return {"figures": [asdict(figure) for figure in figures], "peak_memory": peak_bytes(children=True)}


def _in_process(name: str, case: str, options: Mapping[str, Option]) -> CaseResult:
    given = [f"{option}={value}" for option, value in options.items()]
    program = [sys.executable, "-P", "-m", "streamtopic.bench.child", name, case, *given]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  this very program
    found = json.loads((done.stdout.splitlines() or ["{}"])[-1])
    if done.returncode != 0:
        why = found.get("error", f"ended with status {done.returncode}: see its output above")
        fault = UsageError if done.returncode == UsageError.exit_status else CheckFailed
        raise fault(f"benchmark {name}, case {case}: {why}")
    return CaseResult(case, [Figure(**figure) for figure in found["figures"]], found["peak_memory"])


def _find(name: str) -> ModuleType:
    if name not in names():
        raise UsageError(f"there is no benchmark {name}: `streamtopic bench --list` shows them")
    return _module(name.replace("-", "_"))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{cases.__name__}.{name}")


def _value(option: str, given: Option, default: Option) -> Option:
    """Return the value of an option, of the type of its default. Raises UsageError."""
    if isinstance(default, str):
        return str(given)
    number = int(given) if str(given).isdecimal() else -1
    if number < 0:
        raise UsageError(f"{option}={given}: give a whole number from 0")
    return number


def _about(module: ModuleType) -> str:
    said = (module.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    options = ", ".join(f"{name}={default}" for name, default in getattr(module, "OPTIONS", {}).items())
    return f"{said} ({options})" if options else said
