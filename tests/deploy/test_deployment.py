"""What deploy/ says fits the program: command lines, settings, secrets; of compose and of systemd."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from streamtopic import settings as program_settings
from streamtopic.cli import build_parser
from streamtopic.settings import Settings
from streamtopic.signed import PublicKey, SigningKey, load_secret

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"].startswith("streamtopic")}

UNIT = DEPLOY / "systemd" / "streamtopic@.service"
ON_ITS_OWN = ("ingest", "schedule", "serve")


def options(name, file=UNIT):
    """Return the values of an option of the unit of systemd, or of a drop-in, which may stand several times."""
    return re.findall(rf"^{name}=(.*)$", file.read_text("utf-8"), re.MULTILINE)


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


@pytest.mark.parametrize("name", OURS)
def test_command_lines_are_those_of_the_program(name):
    """Each is parsed as the program would, and names a settings file that is mounted there."""
    assert build_parser().parse_args(OURS[name]["command"]).config == Path("/streamtopic.toml")
    keys = {"source": "signing.pub", "target": "/run/secrets/signing.pub"}
    assert OURS[name]["configs"] == ["streamtopic.toml", keys, "ca.pem"]


@pytest.mark.parametrize("part", ON_ITS_OWN)
def test_the_unit_starts_a_part_of_the_program(part):
    """The instance's name is the command, and the rest of the line is parsed as the program would."""
    (line,) = options("ExecStart")
    program, *words = line.replace("%i", part).split()
    assert Path(program).name == "streamtopic"
    assert build_parser().parse_args(words).config == Path("/etc/streamtopic/streamtopic.toml")


def test_the_variables_of_the_unit_are_settings_and_its_files_credentials():
    """Each variable is a setting, and each path below the credentials has the prefix that systemd gives to them."""
    given = dict(entry.split("=", 1) for entry in options("Environment"))
    ours = {name.removeprefix("STREAMTOPIC_").lower() for name in given if name.startswith("STREAMTOPIC_")}
    assert ours - {"secrets_dir"} <= Settings.model_fields.keys()
    assert [entry.partition(":")[0] for entry in options("LoadCredential")] == ["streamtopic", "signing.pub"]
    keys = [
        entry for name in ("keys", "suppression") for entry in options("LoadCredential", UNIT.parent / f"{name}.conf")
    ]
    assert [entry.partition(":")[0] for entry in keys] == ["signing.key", "noise.key", "receipt.key", "suppression.key"]
    assert given["STREAMTOPIC_KEYS"] == given["STREAMTOPIC_SECRETS_DIR"] == "%d"


def test_the_example_settings_load(monkeypatch, tmp_path):
    """Every setting exists and is in range, and paths are where secrets are mounted."""
    (tmp_path / "streamtopic_redis_url").write_text("redis://ingest:pass@redis:6379/0")
    monkeypatch.setenv("STREAMTOPIC_SECRETS_DIR", str(tmp_path))
    loaded = program_settings.load(config=DEPLOY / "streamtopic.example.toml")
    assert loaded.kafka == "kafka:9092"
    assert loaded.redis_url.get_secret_value().startswith("redis://ingest")
    mounted = {f"/run/secrets/{secret['target']}" for service in OURS.values() for secret in service["secrets"]}
    assert {f"{loaded.keys}/{name}" for name in ("signing.key", "noise.key", "receipt.key")} <= mounted


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("ingest", set()),
        ("schedule", {"signing_key", "noise_key", "receipt_key"}),
        ("serve", {"serve_token"}),
    ],
)
def test_each_part_gets_the_keys_that_it_needs_and_no_other(name, needed):
    """Who does not sign cannot sign, who does not draw noise cannot tell what it was."""
    sources = {secret["source"] for secret in OURS[name]["secrets"]}
    assert sources - needed == {f"{name}_url", f"kafka_{name}"}
    assert OURS[name]["environment"]["STREAMTOPIC_KAFKA_SASL_USERNAME"] == name
    assert needed <= sources


def test_secrets_are_made_where_compose_looks_for_them(made):
    """Every file that is mounted exists, only its owner can read what is secret, and the keys load."""
    files = [Path(secret["file"]) for secret in COMPOSE["secrets"].values()]
    files += [Path("secrets/signing.pub"), Path("secrets/ca.pem")]
    assert {file.name for file in files} <= {path.name for path in made.iterdir()}
    for path in made.iterdir():
        public = path.name in {"signing.pub", "ca.pem", "redis-users.acl"}
        assert bool(path.stat().st_mode & 0o077) == public, path.name
    assert SigningKey.load(made / "signing.key").public == PublicKey.load(made / "signing.pub")
    assert load_secret(made / "noise.key") != load_secret(made / "receipt.key")
    urls = {path.stem: path.read_text() for path in made.glob("*.url")}
    form = r"rediss://{}:[0-9a-f]{{48}}@redis:6379/0\?ssl_ca_certs=/ca\.pem"
    assert all(re.fullmatch(form.format(name), url) for name, url in urls.items())
    listed = (made / "redis-users.acl").read_text()
    assert not any(url.split(":")[2].split("@")[0] in listed for url in urls.values())


def test_certificates_are_renewed_and_the_authority_stays(made):
    """The same call again gives a server a new key, which old clients trust; a damaged authority is refused."""
    before = {name: (made / name).read_bytes() for name in ("ca.pem", "ca.key", "kafka.pem")}
    command = ["sh", str(DEPLOY / "certificate.sh"), str(made), "kafka", "kafka", "10.0.0.5"]
    subprocess.run(command, check=True)
    after = {name: (made / name).read_bytes() for name in before}
    assert (before["ca.pem"], before["ca.key"]) == (after["ca.pem"], after["ca.key"])
    assert before["kafka.pem"] != after["kafka.pem"]
    (made / "ca.key").write_bytes(after["kafka.pem"])
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0
    assert (made / "kafka.pem").read_bytes() == after["kafka.pem"]
    (made / "ca.key").write_bytes(after["ca.key"])
