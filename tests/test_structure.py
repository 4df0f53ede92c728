"""The directions of imports, as the architecture draws them."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import streamtopic

ROOT = Path(streamtopic.__file__).parent
TESTS = Path(__file__).parent
PACKAGE = "streamtopic"

# What a part may import of this package, beside itself and `errors`.
ALLOWED = {
    "errors": set(),
    "tensors": set(),
    "compiled": set(),
    "security": set(),
    "monitoring": {"security"},
    "console": {"security"},
    "words": {"compiled", "counts"},
    "settings": {"words"},
    "counts": {"compiled"},
    "topics": {"compiled", "counts", "tensors"},
    "texts": {"compiled", "counts", "topics", "words"},
    "privacy": {"compiled", "counts", "topics"},
    "paper": {"counts", "topics", "privacy"},
    "audit": {"counts", "topics", "privacy", "paper"},
    "streams": {"security"},
    "documents": {"monitoring", "streams", "words"},
    "state": {"compiled", "counts", "documents", "security", "streams", "words"},
    "local": {"security"},
    "signed": {"security", "streams", "tensors", "topics", "words"},
    "client": {"documents", "monitoring", "signed", "streams", "topics", "words"},
    "pages": {
        "client",
        "console",
        "monitoring",
        "security",
        "service",
        "settings",
        "signed",
        "state",
        "topics",
    },
}
PURE = ("counts", "topics", "privacy", "paper", "audit")
# A pure function of arrays has no business with these.
IMPURE = {"time", "datetime", "os", "socket", "subprocess", "redis", "kafka", "random", "secrets", "io", "tempfile"}
EXCEPTIONS = {
    "streamtopic.topics.reproducible": {"os"},  # counts the cores; the result does not depend on them
}


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join((PACKAGE, *(part for part in parts if part != "__init__"))), path


MODULES = dict(_modules())


def _imports(module):
    return _imported(MODULES[module])


@cache
def _imported(path):
    """Modules named by import statements, wherever they stand: also inside functions and for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module)
            found |= {f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in MODULES}
    return found


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


def _users(folder):
    """Return the parts whose modules import something of a folder."""
    return {_part(m) for m in MODULES if any(name.startswith(f"{folder}.") for name in _imports(m))}


def test_nothing_that_serves_imports_benchmarks():
    """What measures is loaded by no part that serves."""
    assert _users(f"{PACKAGE}.bench") <= {"bench", "commands"}


def test_what_judges_shares_no_code_with_what_counts():
    """What judges in the campaign of faults has nothing of the program, and the rest of it nothing of the service."""
    campaign = {path.stem: _imported(path) for path in (TESTS / "campaign").glob("*.py")}
    for module in ("oracle", "reading", "ledger_book", "checks", "people_checks"):
        assert not any(name.startswith(PACKAGE) for name in campaign[module])
    used = {name for names in campaign.values() for name in names if name.startswith(f"{PACKAGE}.")}
    assert {_part(name) for name in used} <= {"client", "errors", "local", "signed", "state", "streams"}


@pytest.mark.parametrize("module", [module for module in MODULES if _part(module) in PURE])
def test_numerical_parts_are_pure(module):
    """No clock, no global randomness, no files in what turns arrays into arrays."""
    assert not {name.split(".")[0] for name in _imports(module)} & IMPURE - EXCEPTIONS.get(module, set())


def _cycle(graph):
    """Return one cycle of a graph of names, empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_there_are_no_import_cycles():
    """No module knows one that knows it, over any number of steps; lazy and type-only imports count, in each folder."""
    graph = {module: {name for name in _imports(module) if name in MODULES and name != module} for module in MODULES}
    for module, path in MODULES.items():
        if path.name == "__init__.py":
            # A package's table of contents names its own modules, and these name each other, not the table.
            graph[module] = {name for name in graph[module] if not name.startswith(f"{module}.")}
    assert not _cycle(graph), " -> ".join(_cycle(graph))


# Rooms and files of the service, each before those that may import it. So parts are made in one place, `assembly`, of
# what `opened` opens, and get what they need by name: nothing that is made knows its maker.
SERVICE = [
    {"log_history", "finding"},
    {"instance"},
    # Watching is told of what ingest counts, in ingest's own words.
    {"watching", "ingest"},
    {"publish"},
    {"opened"},
    {"sending"},
    {"schedule"},
    {"verify"},
    {"theorem_mode", "private_mode"},
    {"requests"},
    {"assembly"},
    {"inspection"},
    {"leading", "upkeep"},
    {"processes"},
]


def _room(module):
    """Return the folder or file of the service that a module is in."""
    return module.split(".")[2]


def test_the_parts_of_the_service_import_in_one_direction():
    """Verification knows neither the service nor the paper, and who publishes knows nobody who decides."""
    place = {room: level for level, rooms in enumerate(SERVICE) for room in rooms}
    service = [module for module in MODULES if module.startswith(f"{PACKAGE}.service.")]
    assert {_room(module) for module in service} == place.keys()
    for module in service:
        used = {_room(name) for name in _imports(module) if name.startswith(f"{PACKAGE}.service.")}
        assert not {room for room in used if place[room] > place[_room(module)]}, module


def test_no_program_is_looked_for_in_the_current_folder():
    """What this program starts with its own Python is itself, not another copy that lies where it was called (-P)."""
    for path in ROOT.rglob("*.py"):
        begun = re.findall(r"sys\.executable,(.{5})", path.read_text(encoding="utf-8"))
        assert set(begun) <= {' "-P"'}, path


def test_every_folder_of_tests_is_collected():
    """A test file whose name pytest does not look for would never run."""
    for path in TESTS.rglob("*.py"):
        assert path.name.startswith(("test_", "conftest")) or "def test_" not in path.read_text(encoding="utf-8"), path


SERVERS = {"redis", "kafka"}
COMPILED = {"numba", "scipy.sparse.linalg", "sklearn"}


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        (
            "import streamtopic.cli",
            {"numpy", "scipy", "pydantic", "tqdm", "cryptography", "jinja2", *SERVERS, *COMPILED},
        ),
        ("import streamtopic.client", {"redis", "streamtopic.service", *COMPILED}),
        ("from streamtopic.topics.inference import fold_in", COMPILED),
        ("from streamtopic.privacy.noise import release_matrix", COMPILED),
    ],
)
def test_light_parts_stay_light(statement, heavy):
    """Help is quick, and who receives, infers or asks for noise loads no compiler and no solver of eigenvalues."""
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & heavy


@pytest.mark.parametrize("name", ["counts", "audit", "signed"])
def test_no_public_name_is_that_of_a_module(name):
    """Importing a module sets its name on the package, so a function of that name would be hidden by it."""
    package = importlib.import_module(f"{PACKAGE}.{name}")
    assert not {module.name for module in pkgutil.iter_modules(package.__path__)} & {*package.__all__}
