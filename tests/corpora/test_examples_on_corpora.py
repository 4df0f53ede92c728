"""Examples of the documentation on real corpora, where these lie beside the project."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


def printed(script, file, *arguments):
    """Lines that an example prints for a corpus; skips the test where the corpus is missing."""
    path = DATA / file
    if not path.exists():
        pytest.skip(f"corpora: needs {file} in {DATA}")
    command = [sys.executable, ROOT / "docs" / "examples" / script, path, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_reuters_over_time_before_and_after_a_deletion():
    """Shares of all topics are there before and after, and after forgetting they are those of a twin."""
    lines = printed("news_over_time.py", "reuters21578.jsonl.gz", "20")
    months = lines[0].split()[1:]
    assert months[0] == "1987-02"
    assert set(months) >= {"1987-02", "1987-03", "1987-04", "1987-06", "1987-10"}
    shown = [line for line in lines if line.endswith("%")]
    assert len(shown) == 40
    for course in (line.rpartition(": ")[2].split() for line in shown):
        assert len(course) == len(months)
    for month in range(len(months)):
        shares = [float(line.rpartition(": ")[2].split()[month][:-1]) for line in shown[:20]]
        assert sum(shares) == pytest.approx(100, abs=2)
    assert shown[:20] != shown[20:]
    assert float(lines[-1].rpartition(": ")[2]) < 1e-9


@pytest.mark.slow
def test_newsgroups_are_guided_before_and_after_a_deletion():
    """Guided topics hold their seeds, forgetting needs no cold start, and the model is that of a twin."""
    lines = printed("guided.py", "20newsgroups.jsonl.gz", "20", "cars=car,engine", "space=orbit,nasa,shuttle")
    shown = dict(line.split(": ", 1) for line in lines[:20])
    assert list(shown)[-2:] == ["cars", "space"]
    assert {*shown["cars"].split()} >= {"car", "engine"}
    assert {*shown["space"].split()} >= {"orbit", "nasa", "shuttle"}
    assert "10 documents forgotten; cold start: None" in lines
    difference, bound = (float(line.rpartition(": ")[2]) for line in lines[-2:])
    assert difference <= bound < 1e-9
