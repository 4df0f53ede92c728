"""What all tests share."""

import gc
import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example takes any time: a test fails for what it finds, not for the clock. Examples are the same
# in each run, so that chance makes no run red; `--hypothesis-profile=search` draws others.
TIMELESS = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("search", **TIMELESS)
settings.register_profile("same", derandomize=True, **TIMELESS)
settings.load_profile("same")

# Tests start the program that they import, the installed one. A copy in the current folder would be compiled anew.
os.environ["PYTHONSAFEPATH"] = "1"

# Each worker has a broker and a Redis of its own: about a gigabyte.
MOST_WORKERS = 4
# A broker with the users of deploy/ takes more than half a minute to set up.
DEPLOYED_BROKER = "deployed_kafka"
# Names a file of patterns, one a line: a test that is skipped for another reason fails the whole run.
MAY_BE_SKIPPED = "MAY_BE_SKIPPED"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Share the tests out by files; a run of one file stays in this process, where pdb works.

    One worker more than cores: for a quarter of its time a worker waits for brokers, leases and processes.
    """
    paths = {name.partition("::")[0] for name in config.option.file_or_dir}
    if len(paths) == 1 and paths.pop().endswith(".py"):
        return 0
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the files that share the deployed broker to one worker, so that it is set up once."""
    from xdist.scheduler import LoadFileScheduling

    @cache
    def shares_broker(file):
        return DEPLOYED_BROKER in (config.rootpath / file).read_text("utf-8")

    class ByFileOrBroker(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return DEPLOYED_BROKER if shares_broker(file) else file

    return ByFileOrBroker(config, log) if config.option.dist == "loadfile" else None


def _why_skipped(config):
    """Return the reason of each test or file that was skipped, from all workers."""
    reports = config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", ())
    return [report.longrepr[2].removeprefix("Skipped: ") for report in reports]


def _forbidden(reasons):
    """Return the reasons that the file of CI does not name; none if there is no such file."""
    if MAY_BE_SKIPPED not in os.environ:
        return []
    allowed = Path(os.environ[MAY_BE_SKIPPED]).read_text("utf-8").splitlines()
    return sorted({reason for reason in reasons if not any(re.match(pattern, reason) for pattern in allowed)})


def pytest_sessionfinish(session):
    """Fail a run in CI that has left out tests."""
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and session.exitstatus == pytest.ExitCode.OK and _forbidden(_why_skipped(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """Say at the end, in one line, what was left out because this machine lacks a program, a package or a file."""
    yield
    reasons = _why_skipped(config)
    for reason in _forbidden(reasons):
        terminalreporter.write_line(f"skipped, which CI does not allow: {reason}", red=True)
    lacking = {}
    for what, tool in (found.groups() for reason in reasons if (found := re.match(r"(.+): needs (.+)", reason))):
        lacking.setdefault(what, set()).add(tool)
    if lacking:
        parts = [f"{what} ({', '.join(sorted(tools))})" for what, tools in sorted(lacking.items())]
        terminalreporter.write_line(f"left out: {', '.join(parts)}; `.ci/run` installs what they need")


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open():
    """Collect garbage after each file: what a test left open fails here, and not in a file that chance chooses."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch):
    """No test sees settings of whoever runs it."""
    for name in [name for name in os.environ if name.startswith("STREAMTOPIC_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server():
    """One Redis for all tests of a session; each test uses keys of its own."""
    from streamtopic.local import LocalRedis

    with LocalRedis() as server:
        yield server


@pytest.fixture
def connection(redis_server):
    """A connection of its own for each test."""
    from streamtopic.state import Connection

    with Connection(redis_server.url) as connection:
        yield connection


@pytest.fixture(scope="session")
def kafka_server():
    """One Kafka broker for all tests of a session; each test uses topics of its own."""
    from servers.kafka_broker import KafkaBroker
    from streamtopic.errors import ComponentUnreachable

    server = KafkaBroker()
    try:
        server.start()
    except ComponentUnreachable as error:
        pytest.skip(f"Kafka: needs a broker; {error}")
    with server:
        yield server


@pytest.fixture
def kafka_log(kafka_server):
    """A log of the broker."""
    from streamtopic.streams import KafkaOptions
    from streamtopic.streams.kafka_log import KafkaLog

    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        yield log


@pytest.fixture(scope="session")
def payloads():
    """Return a function: the bytes of each version that a service has sent to its releases topic."""
    from streamtopic.signed import version_of

    def read(service):
        found, topic = {}, service.names.releases
        for record in service.log.read(topic, 0, service.log.begin(topic, 0), 10_000):
            if record.value is not None and not record.key.endswith(b"/proof"):
                found.setdefault(version_of(record.key), {})[int(record.key.partition(b"/")[2])] = record.value
        return {version: b"".join(one for _, one in sorted(chunks.items())) for version, chunks in found.items()}

    return read
