"""Lua scripts are files of the package: each is loaded, and each says what it takes and what it answers."""

from importlib.resources import files

import pytest

from streamtopic.state import connection as scripts

FOLDER = files("streamtopic.state") / "lua"
NAMES = sorted(path.name.removesuffix(".lua") for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_script_has_a_header_and_is_loaded_under_its_name(name):
    """A file holds one script, with its keys, arguments and answers above it."""
    text = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    header = text.split("\n\n")[0].splitlines()
    assert all(line.startswith("-- ") for line in header)
    assert [any(line.startswith(f"-- {part}") for line in header) for part in ("KEYS", "ARGV", "Answers")] == [True] * 3
    assert getattr(scripts, name.upper()).endswith(text)
