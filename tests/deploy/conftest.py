"""Kafka and Redis as deploy/ configures them, with its users, and the secrets that belong to them."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from appending import append
from certificates import issue
from servers.kafka_broker import KafkaBroker
from servers.ports import quiet_port, quiet_ports
from servers.redis_cluster import RedisNode, find_tls_server
from streamtopic.errors import ComponentUnreachable
from streamtopic.local.local_kafka import broker_jars, find_java
from streamtopic.local.local_redis import find_server
from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_log import KafkaLog
from waiting import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
# One broker serves all tests of a session: a topic of another model, and two doors with certificates that are wrong.
TOPICS = ("news.documents", "news.requests", "news.releases", "news.ledger", "news.rejected", "other.documents")
WRONG_DOORS = {"EXPIRED": "expired.pem", "ELSEWHERE": "elsewhere.pem"}


def make_secrets(folder, address, **variables):
    """Run make-secrets.sh for a Redis at an address."""
    run = {**os.environ, "STREAMTOPIC": shlex.join([sys.executable, "-m", "streamtopic"])}
    run |= {"CA_FILE": str(folder / "ca.pem"), **variables}
    script = ["sh", str(DEPLOY / "make-secrets.sh"), str(folder), address]
    subprocess.run(script, env=run, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def tls_server():
    """A redis-server that was built with TLS; tests that need one are skipped where there is none."""
    try:
        return find_tls_server()
    except ComponentUnreachable:
        pytest.skip("TLS of Redis: needs redis-server with TLS")


@pytest.fixture(scope="module")
def secrets(request, tmp_path_factory):
    """The folder that make-secrets.sh makes, for a Redis that runs with its users until the tests of a file end.

    The server has the command line of compose.yaml. Where no server here was built with TLS, it listens without.
    """
    folder = tmp_path_factory.mktemp("users")
    port = quiet_port()
    executable, secured = _redis_server()
    variables = {"MODEL": getattr(request.module, "MODEL_NAME", "default"), "REDIS_VERSION": _version(executable)}
    made = make_secrets(folder / "secrets", f"127.0.0.1:{port}", **variables)
    words = [word.removeprefix("--") for word in SERVICES["redis"]["command"]]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    options |= {"aclfile": made / "redis-users.acl", "bind": "127.0.0.1"}
    if not secured:
        options = {name: value for name, value in options.items() if "tls" not in name}
        for file in made.glob("*.url"):
            file.write_text(file.read_text().replace("rediss:", "redis:").partition("?")[0])
    certificate = made / "redis.pem" if secured else None
    node = RedisNode(folder / "redis", options, port=port, server=executable, certificate=certificate)
    with contextlib.closing(node.start()):
        yield made


def _redis_server():
    """Return a server, and whether it speaks TLS."""
    try:
        return find_tls_server(), True
    except ComponentUnreachable:
        return find_server(), False


def _version(executable):
    """The number before the first dot of the version of a server."""
    said = subprocess.run([str(executable), "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition("v=")[2].partition(".")[0]


@pytest.fixture(scope="module")
def users(secrets):
    """Role to the address of Redis with its user and password."""
    return {path.stem: path.read_text() for path in secrets.glob("*.url")}


@dataclass(frozen=True)
class Deployed:
    """The broker of compose.yaml, with the users of deploy/.

    servers: the door for clients. doors: name of every door to its address. folder: of secrets.
    """

    doors: dict
    folder: Path

    @property
    def servers(self):
        return self.doors["CLIENTS"]

    @property
    def authority(self):
        return str(self.folder / "ca.pem")

    def password(self, role):
        return (self.folder / f"{role}.kafka").read_text()

    def options(self, role, **changes):
        """Return what a role needs to log in."""
        given = {
            "servers": self.servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority,
            "patience": PATIENCE,
        }
        given |= {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": role, "sasl_password": self.password(role)}
        return KafkaOptions(**given | changes)


@pytest.fixture(scope="session")
def deployed_kafka(tmp_path_factory):
    """One broker for a session, with the properties of compose.yaml and the users and rules of its scripts."""
    folder = tmp_path_factory.mktemp("broker")
    made = make_secrets(folder / "secrets", "127.0.0.1:1", MODEL="news")
    (made / "stranger.kafka").write_text("password-stranger", encoding="utf-8")
    issue(made, "expired", "127.0.0.1", days=-1)
    issue(made, "elsewhere", "elsewhere.example")
    names = ("CLIENTS", "ADMIN", "CONTROLLER", *WRONG_DOORS)
    doors = dict(zip(names, (f"127.0.0.1:{port}" for port in quiet_ports(len(names))), strict=True))
    server = KafkaBroker(
        folder / "data", port=int(doors["ADMIN"].partition(":")[2]), properties=_properties(doors, made)
    )
    try:
        server.start()
    except ComponentUnreachable as error:
        pytest.skip(f"Kafka: needs a broker; {error}")
    with server:
        with KafkaLog(KafkaOptions(server.servers)) as log:
            for topic in TOPICS:
                log.create(topic, 1, {"cleanup.policy": "compact"})
                append(log, topic, b"k", b"v")
        _make_users(folder, server, made)
        yield Deployed(doors, made)


@pytest.fixture(scope="session")
def give_rules(deployed_kafka):
    """Return a function that gives another model the rules that the script has made for `news`."""
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)

    def give(model):
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=deployed_kafka.doors["ADMIN"])) as admin:
            rules, _ = admin.describe_acls(every)
            copies = [_for_model(rule, model) for rule in rules if "news" in rule.resource_pattern.resource_name]
            assert len(admin.create_acls(copies)["succeeded"]) == len(copies) > 20

    return give


def _for_model(rule, model):
    pattern = rule.resource_pattern
    name = pattern.resource_name.replace("news", model)
    renamed = ResourcePattern(pattern.resource_type, name, pattern.pattern_type)
    return ACL(rule.principal, rule.host, rule.operation, rule.permission_type, renamed)


def _properties(doors, made):
    """Return what the image of Kafka makes of the variables in compose.yaml, with the places of this machine."""
    signs = {1: ".", 2: "_", 3: "-"}
    found = {}
    for variable, value in SERVICES["kafka"]["environment"].items():
        if variable.startswith("KAFKA_"):
            name = variable.removeprefix("KAFKA_").lower()
            found[re.sub("_+", lambda run: signs[len(run[0])], name)] = str(value)
    listeners = [f"{name}://{place}" for name, place in doors.items()]
    found |= {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(place for place in listeners if not place.startswith("CONTROLLER")),
        "controller.quorum.voters": f"1@{doors['CONTROLLER']}",
        "log.dirs": str(made.parent / "data" / "data"),
        "listener.name.clients.ssl.keystore.location": str(made / "kafka.pem"),
    }
    for name, file in WRONG_DOORS.items():
        found["listener.security.protocol.map"] += f",{name}:SSL"
        found[f"listener.name.{name.lower()}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(made / file)
    return found


def _make_users(folder, server, made):
    """Make users and rules with the scripts of deploy/ and Kafka's own tools."""
    tools, mounted = folder / "bin", folder / "run"
    tools.mkdir()
    mounted.mkdir()
    mains = {"kafka-acls.sh": "org.apache.kafka.tools.AclCommand", "kafka-configs.sh": "kafka.admin.ConfigCommand"}
    for name, main in mains.items():
        command = shlex.join([str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", f"{broker_jars()}/*", main])
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (tools / name).chmod(0o700)
    for file in made.glob("*.kafka"):
        (mounted / f"kafka_{file.stem}").write_text(file.read_text())
    variables = {"KAFKA_BIN": str(tools), "SECRETS": str(mounted), "MODEL": "news"}
    script = ["/bin/sh", str(DEPLOY / "kafka-users.sh"), server.servers]
    done = subprocess.run(script, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
