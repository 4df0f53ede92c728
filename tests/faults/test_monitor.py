"""Health and metrics of processes, asked all along as a supervisor asks."""

import os
import sys

import pytest

from campaign.monitor import LATEST, SOONEST, Monitor, Red, total
from campaign.processes import Guard, Worker
from servers.ports import quiet_port
from streamtopic.monitoring.endpoint import serving
from streamtopic.monitoring.health import Health
from streamtopic.monitoring.metrics import INTERRUPTIONS, Metrics
from streamtopic.service.watching import Watching
from waiting import until


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """The clock of the health that is asked."""
    return Clock()


@pytest.fixture
def watching(clock):
    """What a scheduler shows."""
    return Watching("schedule", "m", Metrics("schedule", "1"), Health(60.0, ("schedule",), clock))


@pytest.fixture
def worker(tmp_path, watching):
    """A program that runs, and answers at its port."""
    port = quiet_port()
    with Guard() as guard, serving(str(port), watching):
        program = [sys.executable, "-c", "import time; time.sleep(600)"]
        worker = Worker("schedule-0", program, tmp_path / "out", guard, os.environ, port)
        worker.start()
        yield worker
        worker.kill()


def test_a_process_that_stands_still_is_seen_to_turn_red_and_green_again(worker, watching, clock):
    """Each time of red is one finding, as long as it lasts, with what the process said."""
    with Monitor([worker], every=0.02) as monitor:
        until(lambda: monitor.asked["schedule-0"])
        assert monitor.false_alarms() == []
        clock.now = 70.0
        until(lambda: monitor.reds)
        watching.moved("schedule")
        asked = monitor.asked["schedule-0"] + 2
        until(lambda: monitor.asked["schedule-0"] > asked)
        clock.now = 140.0
        until(lambda: len(monitor.reds) == 2)
    assert ["no progress for 70 s" in red.said for red in monitor.reds] == [True, True]
    assert len(monitor.false_alarms()) == 2


def test_a_process_that_does_not_answer_is_no_alarm_and_shows_nothing(worker, watching):
    """Who is killed is missing from the scrapes, and red is said by nobody but the process itself."""
    watching.metrics.add(INTERRUPTIONS, reason="refused")
    with Monitor([worker], every=0.02, scrape_every=0.05) as monitor:
        until(lambda: monitor.scrapes["schedule-0"])
        assert total(monitor.shown(), "streamtopic_interruptions_total") == 1
        assert total(monitor.shown(), "streamtopic_interruptions_total", reason="unreachable") == 0
        worker.kill()
        until(lambda: monitor.scrapes["schedule-0"][-1].values is None)
        assert total(monitor.shown(), "streamtopic_interruptions_total") == 0
    first = monitor.scrapes["schedule-0"][0].values
    assert first["streamtopic_interruptions_total", (("reason", "refused"),)] == 1
    assert monitor.reds == []


def test_a_stall_must_be_said_neither_too_early_nor_too_late(worker):
    """Red within 60 to 75 s of a stall is right; sooner, later and never are findings."""
    monitor = Monitor([worker])
    for after, right in ((SOONEST + 1, True), (SOONEST - 1, False), (LATEST + 5, False), (None, False)):
        monitor.reds = [] if after is None else [Red("schedule-0", 1000 + after, 1090.0, "stands still")]
        assert (monitor.stalled(1000.0, 1090.0) == []) is right
    monitor.reds = [Red("schedule-0", 1000 + SOONEST + 1, 1095.0, "stands still")]
    assert monitor.false_alarms() == []
    monitor.reds.append(Red("schedule-0", 1200.0, 1201.0, "stands still"))
    assert len(monitor.false_alarms()) == 1
