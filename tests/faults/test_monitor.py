"""Health of processes, asked all along as a supervisor asks."""

import os
import sys

import pytest

from campaign.monitor import Monitor
from campaign.processes import Guard, Worker
from servers.ports import quiet_port
from streamtopic.monitoring.health import Health
from streamtopic.monitoring.http_server import serving
from streamtopic.monitoring.metrics import Metrics
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
    return Watching("schedule", Metrics("schedule", "1"), Health(60.0, ("schedule",), clock))


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


def test_a_process_that_does_not_answer_is_no_alarm(worker):
    """Red is said by nobody but the process itself."""
    with Monitor([worker], every=0.02) as monitor:
        until(lambda: monitor.asked["schedule-0"])
        worker.kill()
    assert monitor.reds == []
