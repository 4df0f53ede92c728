"""Where settings come from: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

`load` is the only way in. Every error is one line that names the setting, where its value came from and the remedy.

`refuse_conflicts` finds settings that are right one by one and wrong together.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from streamtopic.errors import SettingsError
from streamtopic.settings.fields import FILE_NAME, PATHS, PREFIX, SECRETS, Settings, TaskSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails


__all__ = ["load", "refuse_conflicts", "write"]

WITHDRAWN = {
    "max_partition_words": "whether a document was counted depended on what else was there; limits on single records "
    "took its place (docs/decisions/0029): remove it, and run `streamtopic rebuild` if documents were refused for it",
}
"""Settings that there were once, and what became of them."""


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """Return the settings from all sources.

    `flags` maps setting names to values; None means "not given". A `dir`, from a flag or `STREAMTOPIC_DIR`, stands
    for its own `streamtopic.toml` where there is one, unless `config` names a file. Paths in a file are relative to it.
    Raises `SettingsError`.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    directory = given.get("dir") or os.environ.get(f"{PREFIX}DIR")
    if config is None and directory and (own := Path(directory).expanduser() / FILE_NAME).is_file():
        config = own
    file_values = _read(config) if config is not None else {}
    _refuse_unknown(file_values, str(config))
    _refuse_unknown(given, "--set")
    for name in WITHDRAWN:
        if os.environ.get(PREFIX + name.upper()):
            _refuse_unknown({name: ""}, f"variable {PREFIX}{name.upper()}")

    secrets = os.environ.get(SECRETS)
    if secrets and not Path(secrets).is_dir():
        raise SettingsError(f"variable {SECRETS} names {secrets}, which is not a folder: correct or remove it")

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=config, secrets_dir=secrets or None)

    try:
        settings = Loaded(**given)
    except ValidationError as error:
        raise SettingsError(_explain(error.errors()[0], given, config)) from None
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    from_file = {name for name in file_values if name not in given and not os.environ.get(PREFIX + name.upper())}
    for name in PATHS:
        if name in from_file and config is not None and values[name] is not None:
            values[name] = config.parent / values[name]
    found = Settings.model_construct(**values)
    refuse_conflicts(found)
    return found


def write(settings: Settings, path: Path) -> None:
    """Write the settings that differ from the defaults as TOML; `dir` and secrets are left out."""
    lines = ["# Written by streamtopic; see docs/settings.md for every setting."]
    tables = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name == "tasks":
            tables = [line for task, one in value.items() for line in _table(f"{name}.{_toml(task)}", one)]
        elif name != "dir" and value != field.default and not isinstance(value, SecretStr):
            lines.append(f"{name} = {_toml(value)}")
    path.touch(mode=0o600)
    path.write_text("\n".join([*lines, *tables]) + "\n", encoding="utf-8")


def _table(title: str, task: TaskSettings) -> list[str]:
    changed = task.model_dump(exclude_defaults=True)
    return ["", f"[{title}]", *(f"{name} = {_toml(value)}" for name, value in changed.items())]


def _toml(value: object) -> str:
    # JSON's strings, numbers and lists are TOML's as well, but for one character.
    plain = json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
    return plain.replace("\x7f", "\\u007f")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise SettingsError(
            f"there is no settings file {path}: check --config, or leave it out for the defaults"
        ) from None
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from None


def _refuse_unknown(values: Mapping[str, Any], where: str) -> None:
    for name in values:
        if name in WITHDRAWN:
            raise SettingsError(f"setting `{name}` in {where} was withdrawn: {WITHDRAWN[name]}")
        if name not in Settings.model_fields:
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            remedy = f"did you mean `{close[0]}`?" if close else "docs/settings.md lists all settings"
            raise SettingsError(f"unknown setting `{name}` in {where}: {remedy}")


def _explain(error: ErrorDetails, given: Mapping[str, Any], config: Path | None) -> str:
    # A problem inside of a table is named by its path; pydantic calls that of a key "[key]".
    path = [step if step.isprintable() else ascii(step) for step in map(str, error["loc"]) if step != "[key]"]
    name = path[0] if path else "?"
    variable = PREFIX + name.upper()
    if name in given:
        source = f"flag --{name.replace('_', '-')}"
    elif variable in os.environ:
        source = f"variable {variable}"
    else:
        source = f"file {config}"
    message = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"setting `{'.'.join(path) or name}` ({source}): {message}; docs/settings.md says what it may be"


def refuse_conflicts(settings: Settings) -> None:
    """Raise SettingsError where settings contradict each other."""
    if settings.publish == "tasks" and not settings.tasks:
        raise SettingsError(
            "setting `publish`: there are no tasks to publish: name one, `[tasks.NAME]`, or publish topics"
        )
    if settings.guarantee == "theorem":
        _refuse_unproved(settings)


def _refuse_unproved(settings: Settings) -> None:
    """Refuse what the paper's proof does not speak of."""
    name = "setting `guarantee`: the theorem"
    if settings.learner != "paper":
        raise SettingsError(f'{name} is about the paper\'s learner: set `learner` to "paper" when the model is created')
    if not settings.epsilon < 1:
        raise SettingsError(
            f"{name}'s noise is proved for epsilon below 1, and `epsilon` is {settings.epsilon:g}: lower it, to 0.5 say"
        )
    if settings.publish != "topics":
        raise SettingsError(f'{name} releases topics: set `publish` to "topics", or `guarantee` to "certified"')
