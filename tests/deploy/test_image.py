"""What the container installs is locked, fits the project, and gives a program that runs without build tools."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILE = (DEPLOY / "Containerfile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = ["3.11", "3.12", "3.13"]
LOCKS = ["requirements.lock", "build.lock", "ci.lock"]
HADOLINT = shutil.which("hadolint")
BILL = shutil.which("cyclonedx-py", path=str(Path(sys.executable).parent))
# Wheels are built for the C library of their time; these are the tags that a slim image of today takes.
PLATFORMS = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 27, 28)] + ["--platform=manylinux2014_x86_64"]


def instructions():
    """The words of each instruction of the Containerfile: its name, and the rest on one line."""
    joined = re.sub(r"^#.*\n", "", FILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def locked(name):
    """Normal name of each package of a lock file, to its pins (one for each marker) and the number of hashes."""
    text = (DEPLOY / name).read_text("utf-8")
    entries = re.findall(
        r"^(\S+)==(\S+?)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
    )
    assert len(entries) == len(re.findall(r"^[a-z]", text, re.MULTILINE))
    pins = {}
    for package, version, marker, hashes in entries:
        pins.setdefault(package, []).append((version, marker, hashes.count("--hash")))
    return pins


def wanted(extras):
    """What the project asks for, with these extras."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in PROJECT["optional-dependencies"][extra])]
    return [requirement for requirement in map(Requirement, texts) if requirement.name != "streamtopic"]


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_with_its_hashes(name):
    """A line without a version or a hash would let somebody else choose what is installed."""
    pins = locked(name)
    assert len(pins) >= 5
    assert all(hashes >= 1 for entries in pins.values() for _, _, hashes in entries)
    assert "index" not in (DEPLOY / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "extras"), [("requirements.lock", []), ("ci.lock", ["demo", "kafka-local", "test", "dev", "docs"])]
)
def test_the_lock_fits_what_the_project_asks_for(name, extras):
    """Each dependency is locked, at a version that pyproject.toml allows; `sh deploy/lock.sh` makes it so."""
    pins = locked(name)
    for requirement in wanted(extras):
        package = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert package in pins, f"{package} is not in {name}: run sh deploy/lock.sh"
        assert all(version in requirement.specifier for version, _, _ in pins[package]), package


def test_ci_tests_the_packages_of_the_container():
    """Both have the same version of each package that the container has, and CI installs by hash."""
    ours, tested = locked("requirements.lock"), locked("ci.lock")
    for package, entries in ours.items():
        assert {version for version, _, _ in entries} == {version for version, _, _ in tested[package]}, package
    assert "pip install --require-hashes --only-binary=:all: -r deploy/ci.lock" in (ROOT / ".ci" / "run").read_text(
        "utf-8"
    )


def test_the_container_runs_as_a_user_without_tools():
    """Two stages of one base; the second installs nothing, is not root, and starts the program."""
    names = [name for name, _ in instructions()]
    last = instructions()[len(names) - names[::-1].index("FROM") :]
    assert names.count("FROM") == 2
    assert not re.search(r"pip\S* install|apt-get|curl|wget", " ".join(rest for name, rest in last if name == "RUN"))
    assert [rest for name, rest in last if name == "USER"] == ["1000"]
    assert [rest for name, rest in last if name == "ENTRYPOINT"] == ['["streamtopic"]']
    assert [rest for name, rest in last if name == "COPY"] == ["--from=build /opt/streamtopic /opt/streamtopic"]
    (base,) = [rest for name, rest in instructions() if name == "ARG"]
    assert f"Programming Language :: Python :: {re.search(r'python:([0-9.]+)', base)[1]}" in PROJECT["classifiers"]


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not on PATH")
def test_the_linter_of_containers_has_nothing_to_say():
    """No warning, and no rule is silenced."""
    done = subprocess.run([HADOLINT, str(DEPLOY / "Containerfile")], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint ignore" not in FILE


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of the program, after the steps of the first stage have run, each as it is written."""
    root = tmp_path_factory.mktemp("image")
    source = root / "source"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
    names = [name for name, _ in instructions()]
    for name, rest in instructions()[: len(names) - 1 - names[::-1].index("FROM")]:
        if name == "COPY":
            *copied, to = rest.split()
            for path in copied:
                _copy(ROOT / path, source / to / Path(path).name if to.endswith("/") else source / to)
        elif name == "RUN":
            script = re.sub(r"(?<![\w.])/(build|opt|wheels)\b", rf"{root}/\1", rest)
            _output(["/bin/sh", "-ec", script], environ, source)
    return root / "opt" / "streamtopic"


def _copy(path, to):
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, to)


def _output(command, environ, folder):
    """Run a command that must succeed; what it prints."""
    done = subprocess.run(command, check=False, env=environ, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _packages(installed, folder):
    """Normal name to version of each package that an environment has, as its own Python says."""
    code = "import importlib.metadata as m\nfor d in m.distributions(): print(d.name, d.version)"
    said = _output([str(installed / "bin" / "python"), "-c", code], {}, folder)
    pairs = [line.split() for line in said.splitlines()]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


@pytest.mark.slow
def test_the_steps_of_the_container_give_a_program_that_runs(installed, tmp_path):
    """In a fresh environment, with nothing of this one: versions are the locked ones, and a key can be made."""
    environ = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    _output([str(installed / "bin" / "streamtopic"), "keys", "new", "--to", str(tmp_path / "keys")], environ, tmp_path)
    assert (tmp_path / "keys" / "signing.pem").exists()
    found, pins = _packages(installed, tmp_path), locked("requirements.lock")
    assert found.pop("streamtopic") == PROJECT["version"]
    assert all(version in {pin for pin, _, _ in pins[name]} for name, version in found.items())
    assert not {"pip", "setuptools", "hatchling", "pytest"} & found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_every_supported_python_has_wheels_of_what_is_locked(tmp_path, version):
    """Nothing is compiled at an installation, on any Python that the project names."""
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    command += [f"--python-version={version}", "--implementation=cp", *PLATFORMS, "--target", str(tmp_path)]
    _output([*command, "-r", str(DEPLOY / "requirements.lock")], None, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(BILL is None, reason="cyclonedx-bom is not installed: pip install '.[dev]'")
def test_the_bill_of_materials_lists_what_is_installed(installed, tmp_path):
    """CycloneDX names each package of the container with its version, and nothing else."""
    project, bill = str(ROOT / "pyproject.toml"), tmp_path / "bill.json"
    command = [BILL, "environment", str(installed / "bin" / "python"), "--pyproject", project]
    _output([*command, "--of", "JSON", "-o", str(bill)], None, tmp_path)
    said = json.loads(bill.read_text("utf-8"))
    assert said["metadata"]["component"]["name"] == "streamtopic"
    parts = [*said["components"], said["metadata"]["component"]]
    listed = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part["version"] for part in parts}
    assert listed == _packages(installed, tmp_path)
