"""Alert rules on what was scraped: promtool replays it, and tells which alerts fire."""

import re
import shutil

import pytest

from campaign.alarms import RULES, Replay, replayed, silent
from campaign.drills import EVERY_DRILL, Drills
from campaign.monitor import Scrape
from campaign.rounds import MAY_FIRE

REFUSED = ("streamtopic_interruptions_total", (("reason", "refused"),))
ALIVE = ("streamtopic_alive_timestamp_seconds", ())
LEADS = ("streamtopic_leader", ())
HIDDEN = ("streamtopic_lag_records", (("partition", "0"), ("kind", "hidden")))


@pytest.fixture
def tool():
    """Prometheus' own tool for rules."""
    found = shutil.which("promtool")
    if found is None or not RULES.exists():
        pytest.skip("promtool is not installed: it comes with Debian's package `prometheus`")
    return found


def _replay(shown, *, must=(), may=(), pace=1.0):
    # What a service without a fault shows beside it.
    rest = {LEADS: 1.0, ALIVE: 1_002.0}
    shown = [None if values is None else rest | values for values in shown]
    scrapes = [Scrape(15.0 / pace * number, values) for number, values in enumerate(shown)]
    may = None if may is None else frozenset(may)
    return Replay("a test", {"schedule-0": scrapes}, 15.0 / pace, 1_000.0, pace, frozenset(must), may)


def test_an_alert_that_must_fire_and_does_is_no_finding(tool, tmp_path):
    """A counter that grows fires its alert, and a process that only works fires none."""
    grows = [{REFUSED: float(number > 3)} for number in range(10)]
    assert silent([_replay(grows, must=["StreamtopicRefused"])], tmp_path, tool) == []
    assert silent([_replay([{REFUSED: 1.0}] * 10)], tmp_path, tool) == []


def test_an_alert_that_is_missing_or_too_many_is_a_finding(tool, tmp_path):
    """Neither a silent alert passes nor one of another class."""
    grows = [{REFUSED: float(number > 3)} for number in range(10)]
    (missed,) = silent([_replay([{REFUSED: 0.0}] * 10, must=["StreamtopicRefused"])], tmp_path, tool)
    assert "StreamtopicRefused" in missed
    (foreign,) = silent([_replay(grows, must=["StreamtopicRefused", "StreamtopicDown"])], tmp_path, tool)
    assert "StreamtopicDown" in foreign
    (foreign,) = silent([_replay(grows)], tmp_path, tool)
    assert "StreamtopicRefused" in foreign
    assert silent([_replay(grows, may=["StreamtopicRefused"])], tmp_path, tool) == []
    assert silent([_replay(grows, may=None)], tmp_path, tool) == []


def test_a_process_that_does_not_answer_is_down(tool, tmp_path):
    """Its series end, so that nothing that it showed last goes on to alarm."""
    gone = [{HIDDEN: 5.0}] * 4 + [None] * 40
    # Its other series are those of a scheduler that leads.
    must = ["StreamtopicDown", "StreamtopicNoLeader"]
    assert silent([_replay(gone, must=must)], tmp_path, tool) == []
    stays = [{HIDDEN: 5.0}] * 44
    assert silent([_replay(stays, must=["StreamtopicHiddenRecords"])], tmp_path, tool) == []


def test_what_was_counted_before_a_replay_is_not_news(tool, tmp_path):
    """Refusals that were counted before the replay begins are silent; those of a process that starts in it are not."""
    shown = [{REFUSED: 2.0}] * 4 + [None] * 3 + [{REFUSED: 1.0}] * 4
    assert silent([_replay(shown[:4])], tmp_path, tool) == []
    assert silent([_replay(shown, must=["StreamtopicRefused"])], tmp_path, tool) == []


def test_drills_can_be_done_and_name_alerts_that_there_are():
    """An alert that was renamed would never be missed, and a campaign would allow what nobody can fire."""
    rules = set(re.findall(r"alert: (\w+)", RULES.read_text("utf-8")))
    assert rules >= MAY_FIRE
    for name, drill in EVERY_DRILL.items():
        assert drill.must
        assert rules >= drill.must | drill.may, name
        assert hasattr(Drills, "_" + name.replace(" ", "_"))


def test_times_are_those_of_the_replay():
    """Ages stay what they were when seconds are replayed as minutes."""
    replay = _replay([{ALIVE: 1_002.0}, {ALIVE: 1_002.0}, {ALIVE: None}], pace=30.0)
    test = replayed(replay)["tests"][0]
    (values,) = [one["values"] for one in test["input_series"] if one["series"].startswith(ALIVE[0])]
    assert values == "2 16.5 stale"
    assert test["interval"] == "15s"
