"""Redis users: each role can do its job with its own user, and nothing beyond it."""

from contextlib import contextmanager
from dataclasses import asdict

import pytest

from embedded_service import embedded, silent, two_topics
from streamtopic.client import Receipts
from streamtopic.documents.corpus import Document
from streamtopic.errors import SettingsError, StateError
from streamtopic.service.leading import publish
from streamtopic.service.verify import passed
from streamtopic.state import Connection

PARTITION, MODEL = "{st:default:0}", "{st:default}"


@pytest.fixture(scope="module")
def service(users, tmp_path_factory):
    """Open a service whose Redis is reached as the user of a role, and which leaves the other roles' work to others."""
    folder = tmp_path_factory.mktemp("service")

    @contextmanager
    def opened(role):
        with embedded(folder, topics=2, min_df=1, capacity={}, redis_url=users[role]) as made:
            made.opened.leads = False
            yield made

    return opened


@pytest.fixture(scope="module")
def run(service):
    """Every role has done its job, with a deletion in between; what each found."""
    with service("operator") as operator:
        _ = operator.state
    found = {}
    for deleted in ([], ["d1", "d2"]):
        with service("ingest") as ingest:
            if deleted:
                found["requests"] = ingest.delete(deleted)
            else:
                ingest.add(two_topics(0, 60))
            writer = ingest.open_ingest(0)
            found["counted"] = sum(progress.records for progress in writer.drain())
            writer.sum_if_due()
        with service("operator") as operator:
            operator.state.request("unlearn" if deleted else "retrain")
        with service("schedule") as scheduler:
            found["step"] = scheduler.scheduler.step()
            found["receipts"] = publish(scheduler.publisher)
            found["residue"] = scheduler.leader.clear_residue(whole=True)
            found["published"] = scheduler.publisher.step()
            found["alive"] = scheduler.ledger.ledger.alive
    return found


def test_each_role_can_do_its_job(run, service):
    """Counted, learned, published, receipts issued, all with the rights of deploy/redis-users.acl."""
    assert (run["counted"], run["step"].version, run["receipts"]) == (2, 2, 2)
    assert run["alive"].newest == 2


def test_the_scheduler_sees_to_what_deletions_leave_behind(run, service):
    """It reads, marks and has Redis's file written anew with its own rights, and publishes by the marks."""
    assert (run["residue"], run["published"].erased) == (True, False)
    with service("serve") as serve:
        waiting = serve.status()["residue"]["waiting"]
    assert {stage: one["documents"] for stage, one in waiting.items()} == dict.fromkeys(
        ("state", "log", "file", "backups"), 2
    )
    with service("schedule") as scheduler:
        scheduler.connection.call("BGREWRITEAOF")


def test_what_the_server_reads_of_the_base_model_is_what_it_shows(run, service):
    """No share of a topic, no documents of an anchor, no constant: those are in bytes that it may not read."""
    with service("serve") as serve:
        head = serve.state.base_head()
        shown = {"version", "start", "counted", "anchors", "capacity", "capacity_rule", "guarantee", "rules"}
        assert {name for name, value in asdict(head).items() if value} == shown
        with pytest.raises(SettingsError, match="refuses this user"):
            serve.connection.call("GET", f"{MODEL}:base:model")
    with service("operator") as operator:
        assert operator.status()["capacity"] == head.capacity


def test_the_server_adds_requests_and_moves_none(run, service, users):
    """A request is taken in, the same one again is answered as before, and no lease, document or model is reached."""
    with service("serve") as serve:
        first = serve.door.receive(["d20"], name="over-http")
        assert serve.door.receive(["d20"], name="over-http").salt == first.salt
        assert serve.door.find("over-http").state.value == "waiting"
    with service("operator") as operator:
        operator.door.cancel("over-http")
    for command in (("SET", f"{MODEL}:lease", "x"), ("HDEL", f"{MODEL}:deletions:open", "over-http")):
        with Connection(users["serve"]) as connection, pytest.raises((SettingsError, StateError), match=REFUSED):
            connection.call(*command)


def test_the_operator_can_examine_and_rebuild(run, service):
    """The doctor looks at everything, and a rebuild makes the state anew."""
    with service("operator") as operator:
        assert passed(operator.examine())
        assert operator.rebuild(silent).documents == 58


REFUSED = r"(?i)permission|NOPERM|can't run this command"
DENIED = [
    ("ingest", ("HGETALL", f"{MODEL}:ledger:head")),
    ("ingest", ("HGETALL", f"{MODEL}:links")),
    ("ingest", ("XRANGE", f"{MODEL}:releases", "-", "+")),
    ("ingest", ("SET", f"{MODEL}:lease", "x")),
    ("ingest", ("GET", f"{MODEL}:base:model")),
    ("ingest", ("HGETALL", f"{MODEL}:base")),
    ("ingest", ("HGETALL", f"{MODEL}:counts")),
    ("schedule", ("HSET", f"{PARTITION}:people", "secret", "b")),
    ("schedule", ("HSET", f"{MODEL}:suppressed", "a", "b")),
    ("serve", ("HGETALL", f"{PARTITION}:docs:0")),
    ("serve", ("HGETALL", f"{PARTITION}:changes:1")),
    ("serve", ("GET", f"{PARTITION}:statistics")),
    ("serve", ("HGETALL", f"{MODEL}:counts")),
    ("serve", ("GET", f"{MODEL}:base:model")),
    ("serve", ("SET", f"{MODEL}:request", "retrain:1")),
    ("serve", ("HSET", f"{MODEL}:links", "a", "b")),
    ("serve", ("HSET", f"{MODEL}:ledger:head", "offset", "0")),
    ("serve", ("HSET", f"{PARTITION}:meta", "facts", "0")),
    ("serve", ("EVAL", "return redis.call('DEL', KEYS[1])", "1", f"{PARTITION}:meta")),
    ("serve", ("EVALSHA", "0" * 40, "1", f"{PARTITION}:meta")),
    ("serve", ("EVALSHA", "0" * 40, "1", f"{MODEL}:lease")),
    ("operator", ("SET", "somebody-else", "x")),
    *((role, ("BGREWRITEAOF",)) for role in ("operator", "ingest", "serve")),
    ("serve", ("HSET", f"{MODEL}:residue", "attested:aof", "1")),
    *(
        (role, command)
        for role in ("operator", "ingest", "schedule", "serve")
        for command in (
            ("FLUSHALL",),
            ("CONFIG", "GET", "*"),
            ("KEYS", "*"),
            ("GET", "somebody-else"),
            ("HGETALL", "{st:other}:settings"),
            ("HGETALL", "{st:other:0}:meta"),
            ("HGETALL", "{st:default2}:settings"),
            ("HGETALL", "{st:default2:0}:meta"),
            ("ACL", "LIST"),
            ("SHUTDOWN",),
        )
    ),
]


@pytest.mark.parametrize(
    ("role", "command"), DENIED, ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_no_role_can_do_more(users, role, command):
    """Other roles' keys, other programs' keys and the server itself are out of reach."""
    with Connection(users[role]) as connection, pytest.raises((SettingsError, StateError), match=REFUSED):
        connection.call(*command)


@pytest.mark.parametrize("role", ["operator", "ingest", "schedule", "serve"])
def test_each_role_may_ask_where_keys_are(users, role):
    """On a Redis Cluster nothing works without. A server that is none says so, in place of refusing the user."""
    for command in (("CLUSTER", "SLOTS"), ("ASKING",)):
        with Connection(users[role]) as connection, pytest.raises(StateError, match="cluster support disabled"):
            connection.call(*command)
    with Connection(users[role]) as connection:
        assert connection.call("COMMAND")


def test_nobody_comes_in_without_a_password(users):
    """The default user is off."""
    address = users["ingest"].partition("@")[2]
    scheme = users["ingest"].partition(":")[0]
    with Connection(f"{scheme}://{address}") as connection, pytest.raises(SettingsError):
        connection.ping()


def counted(service):
    """Count what is in the log."""
    with service("ingest") as ingest:
        writer = ingest.open_ingest(0)
        while writer.lag:
            list(writer.drain())


def test_a_person_is_forgotten_with_these_rights(run, service):
    """Serve takes the request in, ingest keeps the index, the scheduler carries it out and writes the receipt."""
    with service("operator") as operator:
        texts = {"p1": "apple iron", "p2": "banana tin"}
        operator.add([Document(name, text, subjects=("person",)) for name, text in texts.items()])
    counted(service)
    with service("serve") as serve:
        received = serve.door.receive((), subjects=["person"], name="of-a-portal")
        assert serve.door.receive((), subjects=["person"], name="of-a-portal").salt == received.salt
    with service("schedule") as scheduler:
        assert scheduler.leader.move_requests()["sent"] == 1
    counted(service)
    with service("operator") as operator:
        operator.state.request("unlearn")
    with service("schedule") as scheduler:
        assert scheduler.leader.move_requests()["counted"] == 1
        assert scheduler.scheduler.step().version is not None
        publish(scheduler.publisher)
        receipts = Receipts(scheduler.log, model="default", public_key=scheduler.public_key)
        assert receipts.covering("of-a-portal", salt=received.salt).documents == 2
        assert scheduler.leader.move_requests()["completed"] == 1
        assert scheduler.connection.call("HGETALL", f"{PARTITION}:people").keys() == {b"secret", b"through"}
    with service("serve") as serve:
        assert serve.status()["documents"] == 58
        assert serve.door.find("of-a-portal").state.value == "completed"
