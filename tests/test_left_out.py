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


def test_what_is_left_out_is_said_and_fails_a_run_whose_list_lacks_it(run, tmp_path):
    """One line names each part with what it needs, whole files included; other workers than this process report too."""
    (tmp_path / "test_whole.py").write_text(WHOLE, "utf-8")
    status, said = run("2", allowed=["corpora: "])
    assert status == 1, said
    assert "CI does not allow: pages: needs a browser" in said
    left_out = "left out: corpora (a file), pages (a browser), peers (a library); `.ci/run` installs what they need"
    assert left_out in said.splitlines()


@pytest.mark.parametrize("allowed", [None, ["corpora: ", "pages: "]], ids=["no list", "a list"])
def test_a_run_passes_without_a_list_and_with_one_that_names_every_reason(run, allowed):
    """So README's command passes on a machine with nothing but Python."""
    status, said = run("0", allowed=allowed)
    assert status == 0, said


def test_the_list_of_ci_is_short():
    """Five reasons at most, none of them empty, which would allow everything."""
    allowed = ALLOWED.read_text("utf-8").splitlines()
    assert 0 < len(allowed) <= 5
    assert all(allowed)
