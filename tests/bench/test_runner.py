"""The runner: folders that cases share, and pictures of what was found."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamtopic import bench
from streamtopic.bench import runner
from streamtopic.bench.cases import peers
from streamtopic.bench.figures import Figure
from streamtopic.cli import main
from streamtopic.errors import UsageError


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


def test_every_picture_is_drawn_of_what_ran(monkeypatch):
    """A benchmark that draws can draw one case, as `--case` asks for, or cases that found nothing."""
    monkeypatch.setattr(runner, "_in_process", lambda _, case, __: runner.CaseResult(case, [], 0))
    drawn = [name for name in bench.names() if bench.draws(name)]
    assert "updates" in drawn
    for name in drawn:
        module = runner._find(name)
        one = bench.run(name, [next(iter(module.CASES))])
        root = ET.fromstring(bench.picture(one))  # noqa: S314  drawn by the line above
        assert root.tag.endswith("svg")


def test_the_picture_is_written_by_the_command(monkeypatch, tmp_path, capsys):
    """`--svg FILE` writes it beside what is printed."""
    monkeypatch.setattr(runner, "_in_process", lambda _, case, __: runner.CaseResult(case, [], 0))
    path = tmp_path / "updates.svg"
    assert main(["bench", "updates", "--svg", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmark"] == "updates"
    ET.parse(path)  # noqa: S314  as above


def test_an_option_that_a_benchmark_has_not_is_refused():
    """`--largest` is for updates only."""
    with pytest.raises(UsageError, match="noise has no option largest"):
        bench.run("noise", options={"largest": 3})


def test_some_cases_can_be_chosen(monkeypatch):
    """Cases asked for run in the benchmark's order, held against each other where what others need is among them."""
    monkeypatch.setattr(runner, "_in_process", lambda _, case, __: runner.CaseResult(case, [], 0))
    monkeypatch.setattr(peers, "ratios", lambda found: [Figure(" ".join(found), 1.0, "x")])
    both = bench.run("peers", ["sklearn-nmf", "streamtopic"])
    assert [case.case for case in both.cases] == ["streamtopic", "sklearn-nmf"]
    assert [figure.name for figure in both.ratios] == ["streamtopic sklearn-nmf"]
    assert not bench.run("peers", ["sklearn-nmf"]).ratios
    with pytest.raises(UsageError, match="no case sideways: it has streamtopic"):
        bench.run("peers", ["streamtopic", "sideways"])
