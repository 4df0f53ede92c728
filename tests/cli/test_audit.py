"""`streamtopic audit`: of a file, of an instance; passes, fails, and says what is wrong."""

import json

import pytest

from streamtopic.privacy.noise import add_noise

SMALL = ["--set", "topics=4", "--set", "max_df=1"]
GAMES = {
    "unlearned or retrained, whole model",
    "versions of private mode",
    "edge, in two numbers",
    "edge, in numbers that are 0",
    "edge, two versions",
    "two heads of withheld topics",
    "topics and covariance of theorem mode",
}


@pytest.fixture
def quick(monkeypatch):
    """Few draws, for what needs no power, and arguments that ask for them."""
    monkeypatch.setattr("streamtopic.audit.attack._LEAST_DRAWS", 100)
    return [*SMALL, "--draws", "150"]


def test_an_audit_of_a_file_passes(program, sample_file):
    """JSON holds claim, games and controls; no game exceeds its claim, and every fault is found."""
    status, out, _ = program("audit", "--documents", sample_file, *SMALL, "--draws", "600", "--json")
    printed = json.loads(out)
    assert (status, printed["passed"], printed["missed"], printed["different"]) == (0, True, [], [])
    assert printed["claim"]["epsilon"] == 1.0
    assert printed["claim"]["sigma"] == pytest.approx(8.449e-7, rel=1e-3)
    assert printed["model"]["topics"] == 4
    assert {game["name"] for game in printed["games"]} == GAMES
    assert all(game["epsilon_lower"] <= game["claim"] for game in printed["games"])
    assert printed["epsilon_lower"] == max(game["epsilon_lower"] for game in printed["games"])
    assert len(printed["controls"]) == 4
    assert all(control["epsilon_lower"] > control["claim"] for control in printed["controls"])


def test_an_instance_is_audited_as_it_stands(program, instance, on, quick):
    """The counts of an instance are those audited, with its settings, and nothing in it changes."""
    before = on("versions")
    _, out, err = program("audit", "--dir", instance, *quick[-2:], "--set", "epsilon=2", "--json")
    printed = json.loads(out)
    assert err == ""
    assert printed["model"]["documents"] == 597
    assert printed["different"] == []
    assert printed["claim"]["epsilon"] == 2.0
    assert on("versions") == before
    assert on("verify")["passed"] is True


def test_broken_noise_fails_the_audit(program, sample_file, quick, monkeypatch):
    """Noise of a fifth of its size ends in status 1 and a line that names game, finding and claim."""

    def fifth(values, plan, seed):
        return values + (add_noise(values, plan, seed) - values) / 5

    monkeypatch.setattr("streamtopic.privacy.noise.add_noise", fifth)
    status, out, _ = program("audit", "--documents", sample_file, *quick)
    assert status == 1
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("FAILED: ")
    assert "edge, two versions: " in last
    assert "claimed" in last
