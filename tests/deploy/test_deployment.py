"""What deploy/ says fits the program: command lines, settings, extras, secrets."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from streamtopic import settings as program_settings
from streamtopic.cli import build_parser
from streamtopic.signed import PublicKey, SigningKey, load_secret

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"].startswith("streamtopic")}
THEIRS = COMPOSE["services"].keys() - OURS.keys()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What make-secrets.sh makes."""
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    run = {**os.environ, "STREAMTOPIC": shlex.join([sys.executable, "-m", "streamtopic"])}
    command = ["sh", str(DEPLOY / "make-secrets.sh"), str(folder), "redis:6379"]
    subprocess.run(command, env=run, check=True, capture_output=True)
    again = subprocess.run(command, env=run, check=False, capture_output=True, text=True)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    return folder


def test_every_part_of_the_service_runs():
    """Kafka, Redis, init and the three parts; two of those that can share or stand by."""
    assert set(OURS) == {"init", "ingest", "schedule", "publish", "operator"}
    assert sorted(THEIRS) == ["kafka", "kafka-users", "redis"]
    assert {name: service.get("deploy", {}).get("replicas", 1) for name, service in OURS.items()} == {
        "init": 1, "ingest": 2, "schedule": 2, "publish": 1, "operator": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_command_lines_are_those_of_the_program(name):
    """Each is parsed as the program would, and names a settings file that is mounted there."""
    args = build_parser().parse_args(OURS[name]["command"])
    assert args.config == Path("/streamtopic.toml")
    assert {"streamtopic.toml", "signing.pub"} == set(OURS[name]["configs"])


@pytest.mark.parametrize("name", ["ingest", "schedule", "publish"])
def test_parts_are_watched_where_compose_asks_them(name):
    """Each part answers on the private network only, at the port that its health check asks."""
    address = OURS[name]["environment"]["STREAMTOPIC_METRICS_ADDRESS"]
    assert f":{address.rpartition(':')[2]}/livez" in OURS[name]["healthcheck"]["test"][-1]
    assert "ports" not in OURS[name]


def test_kafka_lets_nobody_in_without_a_password():
    """Clients log in by SCRAM, rules decide, and the doors without a password open inside of the container only."""
    given = COMPOSE["services"]["kafka"]["environment"]
    doors = dict(door.split("://") for door in given["KAFKA_LISTENERS"].split(","))
    protocols = dict(pair.split(":") for pair in given["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    open_doors = {name for name, protocol in protocols.items() if not protocol.startswith("SASL_")}
    assert all(doors[name].startswith("127.0.0.1:") for name in open_doors)
    assert protocols["CLIENTS"].startswith("SASL_")
    assert given["KAFKA_AUTHORIZER_CLASS_NAME"].endswith("StandardAuthorizer")
    assert "KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND" not in given
    wanted = {secret.removeprefix("kafka_") for secret in COMPOSE["services"]["kafka-users"]["secrets"]}
    rules = (DEPLOY / "kafka-acls.sh").read_text(encoding="utf-8")
    assert all(f"User:{role}" in rules for role in wanted)


def test_redis_keeps_what_it_is_told():
    """It appends to its file, evicts nothing, and knows its users from a secret."""
    words = COMPOSE["services"]["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert (options["--appendonly"], options["--maxmemory-policy"]) == ("yes", "noeviction")
    assert options["--aclfile"] == "/run/secrets/redis_users"


def test_the_example_settings_load(monkeypatch, tmp_path):
    """Every setting exists and is in range, and paths are where secrets are mounted."""
    (tmp_path / "streamtopic_redis_url").write_text("redis://ingest:pass@redis:6379/0")
    monkeypatch.setenv("STREAMTOPIC_SECRETS_DIR", str(tmp_path))
    loaded = program_settings.load(config=DEPLOY / "streamtopic.example.toml")
    assert loaded.kafka == "kafka:9092"
    assert loaded.redis_url.get_secret_value().startswith("redis://ingest")
    mounted = {f"/run/secrets/{secret['target']}" for service in OURS.values() for secret in service["secrets"]}
    assert {str(loaded.signing_key), str(loaded.noise_key), str(loaded.receipt_key)} <= mounted
    assert str(loaded.public_key) == "/signing.pub"


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("ingest", set()),
        ("schedule", {"signing_key", "noise_key"}),
        ("publish", {"signing_key", "receipt_key"}),
    ],
)
def test_each_part_gets_the_keys_that_it_needs_and_no_other(name, needed):
    """Who does not sign cannot sign, who does not draw noise cannot tell what it was."""
    sources = {secret["source"] for secret in OURS[name]["secrets"]}
    at_redis = {"schedule": "scheduler", "publish": "publisher"}.get(name, name)
    assert sources - needed == {f"{at_redis}_url", f"kafka_{name}"}
    assert OURS[name]["environment"]["STREAMTOPIC_KAFKA_SASL_USERNAME"] == name
    assert needed <= sources


def test_secrets_are_made_where_compose_looks_for_them(made):
    """Every file that is mounted exists, only its owner can read what is secret, and the keys load."""
    files = [Path(secret["file"]) for secret in COMPOSE["secrets"].values()] + [Path("secrets/signing.pub")]
    assert {file.name for file in files} <= {path.name for path in made.iterdir()}
    for path in made.iterdir():
        public = path.name in {"signing.pub", "redis-users.acl"}
        assert bool(path.stat().st_mode & 0o077) == public, path.name
    assert SigningKey.load(made / "signing.pem").public == PublicKey.load(made / "signing.pub")
    assert load_secret(made / "noise.key") != load_secret(made / "receipt.key")
    urls = {path.stem: path.read_text() for path in made.glob("*.url")}
    assert all(re.fullmatch(rf"redis://{name}:[0-9a-f]{{48}}@redis:6379/0", url) for name, url in urls.items())
    listed = (made / "redis-users.acl").read_text()
    assert not any(url.split(":")[2].split("@")[0] in listed for url in urls.values())


def test_the_container_installs_extras_that_exist():
    """Every file that it copies is there, and every extra is one of the package's."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"pip install --no-cache-dir '?/source(?:\[([a-z,-]+)\])?'?$", text, re.MULTILINE)
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])
    (copied,) = re.findall(r"^COPY ([^-\n]+) /source/$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for name in copied.split())
    python = re.findall(r"^FROM python:(\d\.\d+)", text, re.MULTILINE)
    assert len(set(python)) == 1
    assert f"Programming Language :: Python :: {python[0]}" in project["classifiers"]
    assert 'ENTRYPOINT ["streamtopic"]' in text
