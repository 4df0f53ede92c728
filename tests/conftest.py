"""What all tests share."""

import os
from functools import cache

import pytest
from hypothesis import settings

# On a busy machine an example takes any time: a test fails for what it finds, not for the clock.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")

# Tests start the program that they import, the installed one. A copy in the current folder would be compiled anew.
os.environ["PYTHONSAFEPATH"] = "1"

# Each worker has a broker and a Redis of its own: about a gigabyte.
MOST_WORKERS = 4
# A broker with the users of deploy/ takes more than half a minute to set up.
DEPLOYED_BROKER = "deployed_kafka"


def pytest_configure(config):
    """Compile before the workers start: else each of them does it, and each program that they start."""
    several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not several or config.option.collectonly:
        return
    from streamtopic.service.first_run import CompilingAhead, cache_folder

    if cache_folder() is not None:
        with CompilingAhead() as compiling:
            compiling.start()
            compiling.wait(lambda *_: None)


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


def pytest_collection_modifyitems(items):
    """Put files with slow tests first: a worker that gets one last keeps the others waiting."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


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
    """One Kafka broker for all tests of a session; each test uses topics of its own.

    Where no broker can be had, its tests are skipped, except where CI says that nothing may be.
    """
    from streamtopic.errors import ComponentUnreachable
    from streamtopic.local import LocalKafka

    server = LocalKafka()
    try:
        server.start()
    except ComponentUnreachable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def payloads():
    """Return a function: payload bytes of each version that a service has in its releases topic."""
    from streamtopic.signed import Assembled, Assembler, unseal

    def read(service):
        assembler, found, topic = Assembler(), {}, service.names.releases
        for record in service.log.read(topic, 0, service.log.begin(topic, 0), 10_000):
            if isinstance(whole := assembler.take(record), Assembled):
                found[whole.version] = unseal("release", whole.data, service.public_key)["payload"]
        return found

    return read
