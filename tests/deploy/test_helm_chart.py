"""The Helm chart renders objects that Kubernetes takes, with settings that exist and rights that each part needs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from streamtopic.cli import build_parser
from streamtopic.settings import Settings, load

CHART = Path(__file__).parents[2] / "deploy" / "helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
WATCHED = ["ingest", "schedule"]
PARTS = [*WATCHED, "serve"]
CHOSEN = [
    "image.repository=registry.example/streamtopic",
    "settings.kafka=kafka-1:9093\\,kafka-2:9093",
]
# The oldest and the newest Kubernetes whose objects the chart is held against.
KUBERNETES = ["1.30", "1.37"]

HELM = shutil.which("helm")


def helm(*options, chosen=CHOSEN, files=()):
    """Run `helm template`; (status, objects, standard error)."""
    if HELM is None:
        pytest.skip("Helm chart: needs helm")
    words = [word for value in [*chosen, *options] for word in ("--set", value)]
    words += [word for file in files for word in ("--values", str(file))]
    done = subprocess.run([HELM, "template", "news", str(CHART), *words], check=False, capture_output=True, text=True)
    return done.returncode, [thing for thing in yaml.safe_load_all(done.stdout) if thing], done.stderr


@pytest.fixture(scope="module")
def objects():
    """Everything that an installation makes, ServiceMonitor included; (kind, name) to object."""
    status, made, error = helm("serviceMonitor.enabled=true", "parts.ingest.settings.kafka_sasl_username=ingest")
    assert status == 0, error
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in made}


def pods(objects):
    """Command to pod of each part and of init."""
    made = [thing["spec"]["template"]["spec"] for (kind, _), thing in objects.items() if kind in {"Deployment", "Job"}]
    return {pod["containers"][0]["name"]: pod for pod in made}


def test_the_values_name_settings_that_exist():
    """A setting that the program does not know would be refused when its pod starts."""
    given = VALUES["settings"] | VALUES["init"]["settings"]
    for part in VALUES["parts"].values():
        given |= part["settings"]
    assert given.keys() <= Settings.model_fields.keys()
    written = re.findall(r"STREAMTOPIC_([A-Z_]+)", (CHART / "templates" / "_helpers.tpl").read_text("utf-8"))
    own = {"secrets_dir", ""}
    assert {name.lower().rstrip("_") for name in written} - own <= Settings.model_fields.keys()
    assert list(VALUES["parts"]) == PARTS


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_what_is_rendered(objects, version):
    """Each object passes the strict schema of its kind: no field is unknown, none is missing."""
    validate = pytest.importorskip("kubernetes_validate", reason="Helm chart: needs kubernetes-validate")
    checked = [thing for (kind, _), thing in objects.items() if kind != "ServiceMonitor"]
    assert len(checked) == 8
    for thing in checked:
        validate.validate(thing, version, strict=True)


def test_parts_run_the_commands_of_the_program(objects):
    """Each container's arguments are parsed as the program would parse them."""
    found = pods(objects)
    assert sorted(found) == sorted([*PARTS, "init"])
    for name, pod in found.items():
        (container,) = pod["containers"]
        assert build_parser().parse_args(container["args"])
        assert container["args"][0] == name


def test_no_pod_can_write_or_gain_rights(objects):
    """Not root, a root filesystem to read only, no capability, no token of the cluster, and limits on memory."""
    for pod in pods(objects).values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_secrets_are_named_and_never_rendered(objects):
    """Each part mounts a Secret of its own, with a mode that the program takes; no object of the chart is a Secret."""
    assert not [kind for kind, _ in objects if kind == "Secret"]
    named = {}
    for name, pod in pods(objects).items():
        (secret,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        named[name] = secret["secretName"]
        assert secret["defaultMode"] == 0o440
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert len(set(named.values())) == len(named)


def test_probes_ask_the_endpoint_that_the_part_opens(objects):
    """/livez and /readyz at the port of metrics_address; init has none, and serve answers at its own port."""
    for name, pod in pods(objects).items():
        (container,) = pod["containers"]
        if name not in WATCHED:
            assert ("livenessProbe" in container) == (name == "serve")
            continue
        (port,) = container["ports"]
        given = {entry["name"]: entry["value"] for entry in container["env"]}
        assert given["STREAMTOPIC_METRICS_ADDRESS"] == f"0.0.0.0:{port['containerPort']}"
        asked = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert {probe: get["path"] for probe, get in asked.items()} == {
            "startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz",
        }  # fmt: skip
        assert {get["port"] for get in asked.values()} == {port["name"]}


def test_settings_reach_the_program_as_it_reads_them(objects, monkeypatch):
    """The variables of a pod load as settings: large numbers too, and paths are where things are mounted."""
    status, made, error = helm("settings.delete_retention=25920000", "settings.delta=1e-7", "settings.self_check=off")
    assert status == 0, error
    (data,) = [thing["data"] for thing in made if thing["metadata"]["name"] == "news"]
    for name, value in data.items():
        if name != "STREAMTOPIC_SECRETS_DIR":
            monkeypatch.setenv(name, value)
    loaded = load()
    assert (loaded.delete_retention, loaded.delta, loaded.partitions) == (25_920_000.0, 1e-7, 8)
    assert loaded.kafka == "kafka-1:9093,kafka-2:9093"
    mounts = {mount["mountPath"] for pod in pods(objects).values() for mount in pod["containers"][0]["volumeMounts"]}
    assert str(loaded.keys) in mounts
    assert data["STREAMTOPIC_SECRETS_DIR"] in mounts
    names = {entry["name"] for entry in pods(objects)["ingest"]["containers"][0]["env"]}
    assert "STREAMTOPIC_KAFKA_SASL_USERNAME" in names


@pytest.mark.parametrize("missing", range(len(CHOSEN)))
def test_what_must_be_chosen_is_asked_for_by_name(missing):
    """An installation without it is refused before anything is made, and the message names the value."""
    chosen = [value for place, value in enumerate(CHOSEN) if place != missing]
    status, _, error = helm(chosen=chosen)
    assert status != 0
    assert CHOSEN[missing].partition("=")[0] in error


@pytest.mark.parametrize(
    ("value", "place", "fault"),
    [
        ("settings.topics=nope", "settings.topics", "Expected: integer"),
        ("settings.topcis=50", "settings", "topcis is not allowed"),
        ("settings.redis_url=redis://redis:6379", "settings", "redis_url is not allowed"),
        ("parts.ingest.replicas=two", "parts.ingest.replicas", "Expected: integer"),
        ("parts.ingets.replicas=3", "parts", "ingets is not allowed"),
        ("parts.ingest.secret=", "parts.ingest.secret", "length"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_made(value, place, fault):
    """The program would refuse it when its pod starts, or nobody would read it. A secret belongs in a Secret."""
    status, made, error = helm(value)
    assert (status, made) == (1, [])
    assert f"- {place}: " in error
    assert fault in error
