"""Suppression as deploy/ switches it on: its commands, variables and files, beside Kafka and Redis with their users."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from streamtopic.client import DocumentProducer
from streamtopic.documents.suppression import Suppression, SuppressionKey
from streamtopic.errors import StreamtopicError
from streamtopic.signed import load_secret
from streamtopic.streams import open_log
from waiting import PATIENCE, until

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
ADDED = yaml.safe_load((DEPLOY / "compose.suppression.yaml").read_text("utf-8"))
UNIT = (DEPLOY / "systemd" / "streamtopic@.service").read_text("utf-8")
DROP_IN = (DEPLOY / "systemd" / "suppression.conf").read_text("utf-8")
HELM = shutil.which("helm")
# Where containers, units and pods have the files that they are given.
PLACES = re.compile(r"(?<![\w./-])(?=/(?:run/secrets|etc/streamtopic|streamtopic\.toml|signing\.pub|ca\.pem))")
MODEL_NAME = "keptaway"
ASKED = {"SUPPRESSION": "1"}


@dataclass
class Process:
    """What a deployment gives to one process.

    words: its command line, behind the name of the program. environment: its variables. files: place to content.
    """

    words: list
    environment: dict
    files: dict = field(default_factory=dict)


@pytest.fixture
def compose(secrets):
    """Return a function: a service of compose.yaml, with the second file or without it."""

    def made(name, *words, suppression=True):
        second = ADDED["services"].get(name, {}) if suppression else {}
        service = COMPOSE["services"][name]
        sources = COMPOSE["secrets"] | ADDED["secrets"]
        files = {}
        for given in [*service["secrets"], *second.get("secrets", [])]:
            own = Path(sources[given["source"]]["file"]).name
            files[f"/run/secrets/{given['target']}"] = (secrets / own).read_bytes()
        for config in service["configs"]:
            own = Path(COMPOSE["configs"][config]["file"])
            folder = secrets if own.parent.name == "secrets" else DEPLOY
            files[f"/{config}"] = (folder / own.name).read_bytes()
        command = [*words, "--config", "/streamtopic.toml", "--json"] if words else service["command"]
        return Process(command, {**service["environment"], **second.get("environment", {})}, files)

    return made


@pytest.fixture
def systemd(secrets, deployed_kafka):
    """The unit of ingest with its drop-in, as systemd reads both, and the folders that docs/deploy.md names."""
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", UNIT + DROP_IN, re.MULTILINE))
    # Kernels that other tests compiled are good enough.
    del variables["NUMBA_CACHE_DIR"]
    given = {"redis_url": "ingest.url", "suppression.key": "suppression.key"}
    files = {f"/run/secrets/streamtopic_{name}": (secrets / own).read_bytes() for name, own in given.items()}
    files["/run/secrets/streamtopic_kafka_sasl_password"] = deployed_kafka.password("ingest").encode()
    files["/etc/streamtopic/streamtopic.toml"] = (DEPLOY / "streamtopic.example.toml").read_bytes()
    files["/etc/streamtopic/signing.pub"] = (secrets / "signing.pub").read_bytes()
    login = COMPOSE["services"]["ingest"]["environment"]
    variables = {name: value.replace("%d", "/run/secrets") for name, value in variables.items()}
    return Process(shlex.split(line.replace("%i", "ingest"))[1:], {**login, **variables}, files)


@pytest.fixture
def pod(secrets, deployed_kafka):
    """The pod of ingest as the chart makes it with `suppression=true`, and its Secret as docs/deploy.md makes it."""
    chosen = ["image.repository=x", "settings.kafka=kafka:9092", "suppression=true", "publicKey=a key"]
    chosen += ["parts.ingest.settings.kafka_sasl_username=ingest"]
    words = [word for one in chosen for word in ("--set", one)]
    shown = subprocess.run([HELM, "template", "news", str(DEPLOY / "helm"), *words], check=True, capture_output=True)
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(shown.stdout) if one}
    (container,) = objects["Deployment", "news-ingest"]["spec"]["template"]["spec"]["containers"]
    variables = {}
    for source in container["envFrom"]:
        variables |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
    variables |= {one["name"]: one["value"] for one in container["env"]}
    place = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "secrets")
    given = {"streamtopic_redis_url": "ingest.url", "streamtopic_suppression.key": "suppression.key"}
    files = {f"{place}/{name}": (secrets / own).read_bytes() for name, own in given.items()}
    files[f"{place}/streamtopic_kafka_sasl_password"] = deployed_kafka.password("ingest").encode()
    files["/etc/streamtopic/signing.pub"] = (secrets / "signing.pub").read_bytes()
    # TLS at Kafka is a choice of the cluster: extraVolumes and settings.
    login = COMPOSE["services"]["ingest"]["environment"]
    return Process(container["args"], {**login, **variables}, files)


@pytest.fixture
def start(tmp_path, deployed_kafka, give_rules, secrets):
    """Start a process with its files below a folder of its own, and the addresses of this machine."""
    give_rules(MODEL_NAME)
    # A small model, and where its servers are.
    here = {"MODEL": MODEL_NAME, "KAFKA": deployed_kafka.servers, "PARTITIONS": "1", "METRICS_ADDRESS": ""}
    here |= {"TOPICS": "2", "MIN_DF": "1", "MAX_DF": "1.0", "KAFKA_SSL_CAFILE": deployed_kafka.authority}

    def started(process):
        root = tmp_path / f"root-{time.monotonic_ns()}"
        for place, content in process.files.items():
            file = root / place.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(PLACES.sub(str(root), content.decode()).encode() if place.endswith("toml") else content)
            file.chmod(0o600)
        variables = {name: PLACES.sub(str(root), str(value)) for name, value in process.environment.items()}
        variables |= {f"STREAMTOPIC_{name}": value for name, value in here.items()}
        words = [sys.executable, "-m", "streamtopic", *(PLACES.sub(str(root), word) for word in process.words)]
        for password in root.rglob("streamtopic_kafka_sasl_password"):
            # make-secrets.sh made passwords for this Redis; the broker has those of its own run.
            password.write_text(deployed_kafka.password(variables["STREAMTOPIC_KAFKA_SASL_USERNAME"]))
        return subprocess.Popen(
            words, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return started


@pytest.fixture
def operator(start, compose):
    """Run a command as `docker compose run --rm operator` does; its report."""

    def run(*words, status=0):
        found, out, err = _ended(start(compose("operator", *words)))
        assert found == status, err
        return json.loads(out)

    return run


def _ended(process):
    """Wait for a process; its status and what it said."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@contextmanager
def _running(start, way):
    """An ingest that runs meanwhile and ends as a supervisor ends it."""
    with start(way) as part:
        try:
            yield
            part.send_signal(signal.SIGTERM)
            assert _ended(part)[0] == 0
        finally:
            part.kill()


def _await(start, compose, documents=None):
    """Wait until all is counted and so many documents are left, however many for None; the status of the operator."""

    def found():
        # Before the first ingest has begun there is no state, and the command says so.
        _, out, _ = _ended(start(compose("operator", "status")))
        status = json.loads(out) if out else {}
        wanted = status.get("documents") if documents is None else documents
        return status if (status.get("lag"), status.get("documents")) == (0, wanted) else None

    return until(found, f"a state of {documents} documents", 0.5)


def test_what_was_forgotten_stays_away_in_each_deployment(start, compose, systemd, request, operator, deployed_kafka):
    """Compose, systemd and the chart each start an ingest that refuses what is suppressed, until that is lifted."""
    status, _, err = _ended(start(compose("init")))
    assert status == 0, err
    third = request.getfixturevalue("pod") if HELM else compose("ingest")
    with DocumentProducer(deployed_kafka.options("producer"), model=MODEL_NAME) as producer:

        def send(number):
            """Send the document, the one about the person, and a new one behind them."""
            producer.add("letter", text=f"apple banana {number}")
            producer.add("mail", text=f"cherry damson {number}", subjects=["customer-7"])
            producer.add(f"new-{number}", text="elder fig")

        with _running(start, compose("ingest")), _running(start, compose("schedule")):
            send(0)
            _await(start, compose, 3)
            operator("delete", "letter", "--subject", "customer-7", "--suppress")
            assert _await(start, compose, 1)["suppressed"] == 2
            send(1)
            assert _await(start, compose, 2)["outcomes"]["rejected"] == 2
        with _running(start, systemd):
            send(2)
            _await(start, compose, 3)
            assert operator("lift", "--id", "letter")["sent"] == 1
            send(3)
            assert _await(start, compose, 5)["suppressed"] == 1
        with _running(start, third):
            send(4)
            _await(start, compose, 6)
            operator("lift", "--subject", "customer-7")
            operator("delete", "new-5", "--suppress")
            send(5)
            assert _await(start, compose, 7)["suppressed"] == 1


def test_nobody_but_who_counts_and_the_operator_has_the_key(start, compose, operator, deployed_kafka, secrets):
    """Other parts have no key, a stolen one is of no use where Kafka lets nobody write, and ingest needs its own."""
    assert _ended(start(compose("init")))[0] == 0
    with _running(start, compose("ingest")):
        # Before the first ingest has begun there is no state, and the command says so.
        _await(start, compose)
        operator("delete", "letter", "--suppress")
    status, _, err = _ended(start(compose("schedule", "lift", "--id", "letter")))
    assert status == 2
    assert "has no suppressions" in err
    status, _, err = _ended(start(compose("ingest", suppression=False)))
    assert status == 2
    assert "suppression_key" in err
    key = SuppressionKey(load_secret(secrets / "suppression.key"), MODEL_NAME)
    said = Suppression(key.of_document(b"letter"), suppressed=False, made_ms=10**13)
    for role in ("producer", "subscriber"):
        with (
            pytest.raises(StreamtopicError, match="refuses this user"),
            open_log(deployed_kafka.options(role))[0] as log,
        ):
            log.append(f"{MODEL_NAME}.requests", said.key, key.value(said), partition=0)
