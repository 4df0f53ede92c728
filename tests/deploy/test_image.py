"""What the container installs is locked and fits the project. CI builds and starts it as well: .ci/image.py."""

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
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


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


@pytest.mark.parametrize(
    ("name", "extras"),
    [("requirements.lock", ["serve"]), ("ci.lock", ["bench", "demo", "kafka-local", "test", "dev", "docs"])],
)
def test_the_lock_fits_what_the_project_asks_for(name, extras):
    """Each dependency is locked, at a version that pyproject.toml allows; `sh deploy/lock.sh` makes it so."""
    pins = locked(name)
    for requirement in wanted(extras):
        package = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert package in pins, f"{package} is not in {name}: run sh deploy/lock.sh"
        assert all(version in requirement.specifier for version, _, _ in pins[package]), package


@pytest.mark.skipif(HADOLINT is None, reason="Containerfile: needs hadolint")
def test_the_linter_of_containers_has_nothing_to_say():
    """No warning, and no rule is silenced."""
    done = subprocess.run([HADOLINT, str(DEPLOY / "Containerfile")], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint ignore" not in FILE
