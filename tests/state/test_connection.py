"""Redis's errors stay behind the state: each becomes one of this package's, with a remedy."""

import inspect

import pytest
import redis

from streamtopic.errors import ComponentUnreachable, StreamtopicError
from streamtopic.local import LocalRedis
from streamtopic.state import Connection
from streamtopic.state.redis_servers import mapped
from waiting import until

ERRORS = [
    error
    for _, error in inspect.getmembers(redis.exceptions, inspect.isclass)
    if issubclass(error, redis.exceptions.RedisError)
]


def _instance(error):
    for arguments in ((), ("text",), ("text", "text"), ("1 host:1",)):
        try:
            return error(*arguments)
        except (TypeError, ValueError, IndexError):
            continue
    pytest.fail(f"cannot make a {error.__name__}")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_of_redis_is_mapped(error, monkeypatch, connection):
    """Whatever redis-py raises, callers see a StreamtopicError that names the address."""
    assert isinstance(mapped(_instance(error), "ADDRESS"), StreamtopicError)
    assert "ADDRESS" in str(mapped(_instance(error), "ADDRESS"))

    def fail(*_):
        raise _instance(error)

    monkeypatch.setattr(connection.client, "execute_command", fail)
    with pytest.raises(StreamtopicError):
        connection.ping()


@pytest.mark.parametrize(
    ("setting", "value", "after", "words"),
    [
        ("maxmemory", "1", "0", "out of memory"),
        ("min-replicas-to-write", "1", "0", "too few replicas"),
        ("replicaof", ("127.0.0.1", "1"), ("no", "one"), "read-only replica"),
    ],
)
def test_a_server_that_takes_no_writes_for_now_is_waited_for(setting, value, after, words):
    """Alone, with others and in a script it is the error of a server that is away, and passes by itself."""
    acts = (
        lambda connection: connection.call("SET", "k", "v"),
        lambda connection: connection.batch([("SET", "k", "v"), ("SET", "k", "w")]),
        lambda connection: connection.script("return redis.call('SET', KEYS[1], 'v')", ["k"], []),
    )
    with LocalRedis() as server, Connection(server.url) as connection:

        def set_to(chosen):
            command = ("CONFIG", "SET", setting, chosen) if isinstance(chosen, str) else ("REPLICAOF", *chosen)
            connection.call(*command)

        set_to(value)
        for act in acts:
            with pytest.raises(ComponentUnreachable, match=words):
                act(connection)
        set_to(after)
        for act in acts:
            act(connection)


def test_a_server_that_cannot_write_to_its_disk_says_so(tmp_path):
    """A write is refused with the remedy, alone and from a script, and is taken once there is room again."""
    folder = tmp_path / "gone"
    folder.mkdir()
    with LocalRedis() as server, Connection(server.url) as connection:
        connection.call("CONFIG", "SET", "save", "3600 1")
        connection.call("CONFIG", "SET", "dir", str(folder))
        folder.rmdir()
        _save(connection)
        for act in (
            lambda: connection.call("SET", "k", "v"),
            lambda: connection.script("return redis.call('SET', KEYS[1], 'v')", ["k"], []),
        ):
            with pytest.raises(ComponentUnreachable, match=r"cannot write to its disk.*make room.*nothing was written"):
                act()
        folder.mkdir()
        connection.call("CONFIG", "SET", "dir", str(folder))
        _save(connection)
        connection.call("SET", "k", "v")
        assert connection.call("GET", "k") == b"v"


def _save(connection):
    """Have a snapshot written, well or not."""
    connection.call("BGSAVE")
    until(lambda: not connection.information()["rdb_bgsave_in_progress"], "the end of a snapshot")
