"""Write docs/cli.md, docs/settings.md and the schema of the chart's values from the program itself.

python docs/reference.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamtopic.cli import build_parser
from streamtopic.settings import PREFIX, SECRETS, TABLES, Settings

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "values.schema.json"
PARTS = ("ingest", "schedule")
PLAIN = {"string", "integer", "number", "boolean", "null"}
CHECKS = {
    "type",
    "enum",
    "const",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
}
NUMBER = r"^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$"


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
    rows = []
    for name, field in Settings.model_fields.items():
        rows.append(_row(name, field))
        if name in TABLES:
            # A task has a name of its own between the two.
            table = f"{name}.NAME" if name == "tasks" else name
            rows += [_row(f"{table}.{own}", one) for own, one in TABLES[name].model_fields.items()]
    return (
        "# Settings\n\n"
        f"A setting comes from `--set NAME=VALUE`, else from the variable `{PREFIX}NAME` (capitals), else from a file\n"
        f"called like the variable in the folder that `{SECRETS}` names (as containers mount secrets), else from\n"
        "the TOML file that `--config FILE` names, else from the default. `--dir DIR`, or the variable"
        f" `{PREFIX}DIR`,\nmeans `DIR/streamtopic.toml`. Paths in a file are relative to it.\n\n"
        "`TABLE.FIELD` is a field of a table `[TABLE]` in the file, `--set TABLE.FIELD=VALUE` and the variable"
        f" `{PREFIX}TABLE__FIELD`.\nA whole table is JSON in a variable and after `--set`.\n\n"
        "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _row(name: str, field: FieldInfo) -> str:
    """Return the line of a setting. The fields of a table have defaults of their own."""
    default = field.default
    shown = "" if default is None or isinstance(default, BaseModel | dict | tuple) else f"`{default}`"
    return f"| `{name}` | {shown} | {field.description} |"


def chart_schema() -> str:
    """Return the schema by which Helm checks the values of the chart: settings as the program takes them.

    Secrets are not among the settings: they belong in the Secret of a part.
    """
    found = Settings.model_json_schema()["properties"]
    kinds = {name: schema.get("anyOf", [schema]) for name, schema in found.items()}
    settings = {name: _value(kind) for name, kind in kinds.items() if not any("writeOnly" in one for one in kind)}
    # Left out, they are asked for by name, with the remedy.
    settings["kafka"]["anyOf"].append({"const": ""})
    # A bare `off` in a file of values is false to YAML.
    for schema in settings.values():
        if {"const": "off", "type": "string"} in schema.get("anyOf", ()):
            schema["anyOf"].append({"const": False})
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    anything, listed = {"type": "object"}, {"type": "array"}
    pod = {"secret": text | {"minLength": 1}, "settings": {"$ref": "#/definitions/settings"}, "resources": anything}
    part = _closed(pod | {"replicas": number})
    values = {
        "image": _closed(dict.fromkeys(("repository", "tag", "digest", "pullPolicy"), text) | {"pullSecrets": listed}),
        "settings": pod["settings"],
        "parts": _closed(dict.fromkeys(PARTS, part) | {"serve": _closed(part["properties"] | {"names": listed})}),
        "init": _closed(pod),
        "serviceMonitor": _closed({"enabled": {"type": "boolean"}, "interval": text, "labels": anything}),
        **dict.fromkeys(("extraVolumes", "extraVolumeMounts", "tolerations"), listed),
        **dict.fromkeys(("nodeSelector", "affinity", "global"), anything),
    }
    definitions = {"settings": _closed(settings)}
    return json.dumps(_closed(values) | {"definitions": definitions}, indent=1) + "\n"


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one setting in a file of values. null: it is not given."""
    if any(kind.get("type") not in PLAIN for kind in kinds):
        return {}
    taken = [{name: kind[name] for name in sorted(kind.keys() & CHECKS)} for kind in kinds]
    # `helm --set` makes a text of a number with a point or an exponent.
    taken += [{"type": "string", "pattern": NUMBER} for kind in kinds if kind["type"] == "number"]
    return {"anyOf": [*taken, {"type": "null"}]}


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "cli.md").write_text(cli_reference(), encoding="utf-8")
    (here / "settings.md").write_text(settings_reference(), encoding="utf-8")
    CHART.write_text(chart_schema(), encoding="utf-8")
