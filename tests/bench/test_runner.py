"""The runner: folders that cases share."""

from pathlib import Path

from streamtopic import bench
from streamtopic.bench import runner
from streamtopic.bench.figures import Figure


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
