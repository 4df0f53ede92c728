"""Write docs/cli.md and docs/settings.md from the program itself: `python docs/reference.py`."""

import argparse
from pathlib import Path

from pydantic import BaseModel

from streamtopic.cli import build_parser
from streamtopic.settings import PREFIX, SECRETS, Settings


def cli_reference() -> str:
    """Return the page on commands."""
    actions = build_parser()._actions  # noqa: SLF001  argparse lists them nowhere else
    commands = next(action.choices for action in actions if action.metavar == "COMMAND")
    pages = [_command(name, command) for name, command in dict(commands or {}).items()]
    return (
        "# Command line\n\n"
        "Every command takes `--config FILE`, `--set NAME=VALUE` (see [settings](settings.md)), `--debug`,"
        " and `--json`,\nwhich prints JSON in place of text. Commands that work on an instance take `--dir DIR`.\n\n"
        "Exit status: 0 done, 1 a check failed, 2 wrong usage or settings, 3 a component cannot be reached.\n"
        + "".join(pages)
    )


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    usual = {"help", "config", "dir", "set", "json", "debug"}
    lines = [f"\n## {name}\n", f"{parser.description}\n"]
    for action in parser._actions:  # noqa: SLF001  as above
        if action.dest not in usual:
            shown = " ".join(action.option_strings[-1:] + ([str(_metavar(action))] if _metavar(action) else []))
            lines.append(f"- `{shown}`: {(action.help or '').replace('%%', '%')}")
    return "\n".join(lines).rstrip() + "\n"


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    return str(action.metavar or "|".join(map(str, action.choices or [])) or action.dest).replace("%%", "%")


def settings_reference() -> str:
    """Return the page on settings."""
    rows = [
        f"| `{name}` | {_default(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return (
        "# Settings\n\n"
        f"A setting comes from `--set NAME=VALUE`, else from the variable `{PREFIX}NAME` (capitals), else from a file\n"
        f"called like the variable in the folder that `{SECRETS}` names (as containers mount secrets), else from\n"
        "the TOML file that `--config FILE` names, else from the default. `--dir DIR`, or the variable"
        f" `{PREFIX}DIR`,\nstands for `DIR/streamtopic.toml`. Paths in a file are relative to it.\n\n"
        "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _default(value: object) -> str:
    # A table of settings stands in its file, and its fields have defaults of their own.
    table = isinstance(value, BaseModel)
    return "" if value is None or table else f"`{value}`"


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "cli.md").write_text(cli_reference(), encoding="utf-8")
    (here / "settings.md").write_text(settings_reference(), encoding="utf-8")
