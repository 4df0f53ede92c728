"""The runner: folders that cases share, and pictures of what was found."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamtopic import bench
from streamtopic.bench import runner
from streamtopic.bench.figures import Figure
from streamtopic.cli import main


def test_a_run_shares_a_folder_that_goes_with_it(monkeypatch):
    """All cases of a run get the same new folder, another run another one, and one that is named is kept."""
    seen = []

    def note(name, case, options):
        assert Path(options["folder"]).is_dir()
        seen.append(options["folder"])
        return runner.CaseResult(case, [Figure(name, 1.0, "")], 0)

    monkeypatch.setattr(runner, "_in_process", note)
    bench.run("updates")
    assert len({*seen}) == 1
    assert not Path(seen[0]).exists()
    bench.run("updates", options={"folder": "."})
    assert seen[-1] == "."


def test_pictures_are_refused_before_anything_is_measured(capsys, tmp_path, monkeypatch):
    """A benchmark without one, an unknown one, or a place that cannot be written: one line, and nothing has run."""
    monkeypatch.setattr(runner, "_in_process", lambda *_: pytest.fail("it ran"))
    for name, path, why in (
        ("noise", tmp_path / "x.svg", "has no picture"),
        ("nonsense", tmp_path / "x.svg", "bench --list"),
        ("updates", tmp_path, "name a file"),
        ("updates", tmp_path / "none" / "x.svg", "name a file"),
    ):
        assert main(["bench", name, "--svg", str(path)]) == 2
        shown = capsys.readouterr().err
        assert why in shown
        assert shown.count("\n") == 1


def test_the_picture_is_written_by_the_command(monkeypatch, tmp_path, capsys):
    """`--svg FILE` writes it beside what is printed."""
    monkeypatch.setattr(runner, "_in_process", lambda _, case, __: runner.CaseResult(case, [], 0))
    path = tmp_path / "updates.svg"
    assert main(["bench", "updates", "--svg", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmark"] == "updates"
    ET.parse(path)  # noqa: S314  as above
