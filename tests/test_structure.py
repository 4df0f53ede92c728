"""The directions of imports, as the architecture draws them."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import streamtopic

ROOT = Path(streamtopic.__file__).parent
PACKAGE = "streamtopic"

# What a part may import of this package, beside itself and `errors`.
ALLOWED = {
    "errors": set(),
    "text": set(),
    "counts": set(),
    "topics": {"counts"},
    "privacy": {"counts", "topics"},
    "streams": set(),
    "events": {"text", "streams"},
    "signing": set(),
    "state": {"counts", "events", "text"},
    "local": set(),
    "release": {"signing", "text", "topics", "streams"},
    "receipts": {"signing", "streams"},
    "client": {"events", "release", "receipts", "signing", "streams", "text", "topics"},
    "pictures": {"release", "topics"},
    "plots": {"pictures", "release", "topics"},
    "corpus": set(),
    "docstrings": {"corpus"},
    "settings": set(),
    "console": set(),
    "faults": {"client", "local", "receipts", "release", "signing", "state", "streams"},
}
PURE = ("counts", "topics", "privacy")
# A pure function of arrays has no business with these.
IMPURE = {"time", "datetime", "os", "socket", "subprocess", "redis", "kafka", "random", "secrets", "io", "tempfile"}
EXCEPTIONS = {
    "streamtopic.privacy.keystream": {"secrets"},  # makes new keys; noise itself comes from the key
    "streamtopic.topics.threads": {"os"},  # counts the cores; the result does not depend on them
}


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join((PACKAGE, *(part for part in parts if part != "__init__"))), path


MODULES = dict(_modules())


@cache
def _imports(module, *, only_at_import=False):
    """Modules named by import statements; `only_at_import` leaves out those inside functions and for type checkers."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    found = set()
    nodes = list(_top_level(tree)) if only_at_import else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found.add(node.module)
            found |= {f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in MODULES}
    return found


def _top_level(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _top_level(child)


def _part(module):
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_lies_below_it(part):
    """Imports follow the data: each part knows only the parts that it is drawn above."""
    for module in MODULES:
        if _part(module) == part:
            used = {_part(name) for name in _imports(module) if name.startswith(f"{PACKAGE}.")}
            extra = used - ALLOWED[part] - {part, "errors"}
            assert not extra, f"{module} imports {extra}"


def test_only_benchmarks_import_the_campaign_of_faults():
    """What does harm on purpose is loaded by nothing that serves; what judges shares no code with what counts."""
    users = {_part(m) for m in MODULES if any(_part(name) == "faults" for name in _imports(m) if PACKAGE in name)}
    assert users <= {"faults", "bench"}
    judges = {f"{PACKAGE}.faults.oracle", f"{PACKAGE}.faults.reading"}
    assert all(_part(name) in {"", "faults"} for m in judges for name in _imports(m) if name.startswith(PACKAGE))


def test_nothing_below_the_service_imports_it():
    """Only the service, the commands and the benchmarks know the service."""
    users = {_part(m) for m in MODULES if any(_part(name) == "service" for name in _imports(m) if PACKAGE in name)}
    assert users <= {"service", "commands", "bench", "dashboard"}


@pytest.mark.parametrize("module", [module for module in MODULES if _part(module) in PURE])
def test_numerical_parts_are_pure(module):
    """No clock, no global randomness, no files in what turns arrays into arrays."""
    assert not {name.split(".")[0] for name in _imports(module)} & IMPURE - EXCEPTIONS.get(module, set())


def test_there_are_no_import_cycles():
    """Modules can be loaded in some order without half-made ones."""
    graph = {
        module: {name for name in _imports(module, only_at_import=True) if name in MODULES and name != module}
        for module in MODULES
    }
    for module, used in graph.items():
        # a package that gathers the names of its own modules is no cycle: they name modules, not the package
        used -= {module.rpartition(".")[0]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {' -> '.join(error.args[1])}")


def _loaded_by(statement):
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import streamtopic", "import streamtopic.cli"])
def test_the_program_starts_without_heavy_modules(statement):
    """Help is quick because nothing numerical and no server library is loaded for it."""
    heavy = {"numpy", "scipy", "numba", "sklearn", "redis", "kafka", "pydantic", "tqdm", "cryptography"}
    assert not _loaded_by(statement) & heavy


@pytest.mark.skipif("streamtopic.client" not in MODULES, reason="there is no client in this tree")
def test_a_subscriber_loads_neither_the_learner_nor_the_service():
    """What other services import stays small: no compiler, no eigenvalue solvers, no Redis."""
    loaded = _loaded_by("import streamtopic.client")
    assert not loaded & {"numba", "scipy.sparse.linalg", "sklearn", "redis", "streamtopic.service", "pydantic"}


def test_every_folder_of_tests_is_collected():
    """A test file whose name pytest does not look for would never run."""
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        assert path.name.startswith(("test_", "conftest")) or "def test_" not in path.read_text(encoding="utf-8"), path
