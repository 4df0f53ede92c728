"""`streamtopic audit`: of a file, of an instance; passes, fails, and says what is wrong."""

import json

import pytest

from streamtopic.privacy.noise import add_noise

SMALL = ["--set", "topics=4", "--set", "max_df=1"]


@pytest.fixture
def quick(monkeypatch):
    """Few draws, for what needs no power, and arguments that ask for them."""
    monkeypatch.setattr("streamtopic.audit.attack._LEAST_DRAWS", 100)
    return [*SMALL, "--draws", "150"]


def test_an_instance_is_audited_as_it_stands(program, instance, on, quick):
    """The counts of an instance are those audited, with its settings, and nothing in it changes."""
    before = on("versions")
    _, out, err = program("audit", "--dir", instance, *quick[-2:], "--set", "epsilon=2", "--json")
    printed = json.loads(out)
    assert err == ""
    assert printed["model"]["documents"] == 597
    assert printed["different"] == []
    assert printed["claim"]["epsilon"] == 2.0
    assert (len(printed["games"]), len(printed["controls"])) == (7, 4)
    assert printed["epsilon_lower"] == max(game["epsilon_lower"] for game in printed["games"])
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
