"""The unit of systemd starts what the program knows, shut in as far as it goes."""

import re
from pathlib import Path

import pytest

from streamtopic.cli import build_parser
from streamtopic.settings import Settings

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "streamtopic@.service"
PARTS = ["ingest", "schedule", "serve"]


def options(name, file=UNIT):
    """Return the values of an option of the unit, or of a drop-in, which may stand several times."""
    return re.findall(rf"^{name}=(.*)$", file.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("part", PARTS)
def test_it_starts_a_part_of_the_program(part):
    """The instance's name is the command, and the rest of the line is parsed as the program would."""
    (line,) = options("ExecStart")
    program, *words = line.replace("%i", part).split()
    assert Path(program).name == "streamtopic"
    args = build_parser().parse_args(words)
    assert args.config == Path("/etc/streamtopic/streamtopic.toml")


def test_its_variables_are_settings_and_its_files_credentials():
    """Each variable is a setting, and each path below the credentials has the prefix that systemd gives to them."""
    given = dict(entry.split("=", 1) for entry in options("Environment"))
    ours = {name.removeprefix("STREAMTOPIC_").lower() for name in given if name.startswith("STREAMTOPIC_")}
    assert ours - {"secrets_dir"} <= Settings.model_fields.keys()
    whole, public = options("LoadCredential")
    assert whole.startswith("streamtopic:")
    assert public.startswith("signing.pub:")
    keys = [
        entry for name in ("keys.conf", "suppression.conf") for entry in options("LoadCredential", UNIT.with_name(name))
    ]
    assert [entry.partition(":")[0] for entry in keys] == ["signing.key", "noise.key", "receipt.key", "suppression.key"]
    assert given["STREAMTOPIC_KEYS"] == "%d"
    assert given["STREAMTOPIC_SECRETS_DIR"] == "%d"
