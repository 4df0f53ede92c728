"""What a run of the tests leaves out is said in one line, and in CI it fails the run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = ROOT / ".ci" / "may-be-skipped"
SKIPPED = """
import pytest

def test_that_runs():
    pass

@pytest.mark.skip(reason="pages: needs a browser")
def test_of_a_browser():
    pass

def test_of_a_corpus():
    pytest.skip("corpora: needs a file")
"""
WHOLE = 'import pytest\npytest.skip("peers: needs a library", allow_module_level=True)\n'


@pytest.fixture
def run(tmp_path):
    """Return a function that runs tests, of which some are skipped, and returns status and output."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skipped.py").write_text(SKIPPED, "utf-8")

    def started(workers, *, allowed=None):
        environ = {name: value for name, value in os.environ.items() if name != "MAY_BE_SKIPPED"}
        if allowed is not None:
            (tmp_path / "allowed").write_text("\n".join(allowed), "utf-8")
            environ["MAY_BE_SKIPPED"] = str(tmp_path / "allowed")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers, "--rootdir", "."]
        done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout

    return started


def test_a_run_without_a_list_passes_and_says_what_it_left_out(run, tmp_path):
    """One line names each part with what it needs, whole files included; other workers than this process report too."""
    (tmp_path / "test_whole.py").write_text(WHOLE, "utf-8")
    status, said = run("2")
    assert status == 0, said
    left_out = "left out: corpora (a file), pages (a browser), peers (a library); `.ci/run` installs what they need"
    assert said.splitlines()[-2] == left_out


@pytest.mark.parametrize(
    ("workers", "allowed", "passes"), [("0", ["corpora: ", "pages: "], True), ("2", ["corpora: "], False)]
)
def test_a_reason_that_the_list_lacks_fails_the_run(run, workers, allowed, passes):
    """In one process and with several; the reason is named."""
    status, said = run(workers, allowed=allowed)
    assert (status == 0) == passes, said
    assert ("CI does not allow: pages: needs a browser" in said) != passes


def test_the_list_of_ci_is_short():
    """Five reasons at most, none of them empty, which would allow everything."""
    allowed = ALLOWED.read_text("utf-8").splitlines()
    assert 0 < len(allowed) <= 5
    assert all(allowed)
