"""Settings from their sources: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

load               the only way in; an error is one line with the setting, the source of its value and the remedy
refuse_conflicts   finds settings that are right one by one and wrong together
write              settings as a TOML file
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
    "max_partition_words": "it made the counting of a document depend on the other documents; limits on single records "
    "took its place (docs/decisions/0029): remove it, and run `streamtopic rebuild` if it refused documents",
}
"""Settings of earlier versions, by name: why each is gone, and the remedy."""


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """Return the settings from all sources.

    flags: values by the names of settings; None counts as absent.
    config: the TOML file; None for the file `streamtopic.toml` in `dir`, where `dir` comes from a flag or from
        `STREAMTOPIC_DIR`. Paths in a file are relative to it.
    Raises SettingsError.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    directory = given.get("dir") or os.environ.get(f"{PREFIX}DIR")
    if config is None and directory:
        own = Path(directory).expanduser() / FILE_NAME
        # A folder without a file is fine, while a file that somebody names must exist.
        config = own if own.is_file() else None
    file_values = _read(config) if config is not None else {}
    _refuse_unknown(file_values, str(config))
    _refuse_unknown(given, "--set")
    # pydantic-settings never looks at variables of other names, so this is the only place to refuse them.
    for name in WITHDRAWN:
        variable = PREFIX + name.upper()
        if os.environ.get(variable):
            _refuse_unknown({name: ""}, f"variable {variable}")

    secrets = os.environ.get(SECRETS)
    if secrets and not Path(secrets).is_dir():
        raise SettingsError(f"variable {SECRETS} names {secrets}, which is not a folder: correct or remove it")

    # pydantic-settings takes the names of its files from the class alone.
    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=config, secrets_dir=secrets or None)

    try:
        settings = Loaded(**given)
    except ValidationError as error:
        raise SettingsError(_explain(error.errors()[0], given, config)) from None
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    for name in PATHS:
        stronger = name in given or os.environ.get(PREFIX + name.upper())
        if name in file_values and not stronger and config is not None and values[name] is not None:
            values[name] = config.parent / values[name]
    # A plain Settings, so that two loads of the same values are equal; the values are validated already.
    found = Settings.model_construct(**values)
    refuse_conflicts(found)
    return found


def write(settings: Settings, path: Path) -> None:
    """Write the settings that differ from the defaults as TOML, without `dir` and secrets."""
    lines = ["# Written by streamtopic; see docs/settings.md for every setting."]
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        plain = name not in {"dir", "tasks"} and not isinstance(value, SecretStr)
        if plain and value != field.default:
            lines.append(f"{name} = {_toml(value)}")
    # Tables end a TOML file: a key behind them would belong to the last one.
    for task, fields in settings.tasks.items():
        lines += _table(f"tasks.{_toml(task)}", fields)
    # Private from the beginning: other users could read a file between its making and a later change of its mode.
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(title: str, task: TaskSettings) -> list[str]:
    """Return the lines of a table with the fields that differ from the defaults."""
    changed = task.model_dump(exclude_defaults=True)
    fields = [f"{name} = {_toml(value)}" for name, value in changed.items()]
    return ["", f"[{title}]", *fields]


def _toml(value: object) -> str:
    """Return a value as TOML writes it."""
    written = str(value) if isinstance(value, Path) else value
    # JSON's strings, numbers and lists are valid in TOML too, except for one character.
    plain = json.dumps(written, ensure_ascii=False)
    return plain.replace("\x7f", "\\u007f")


def _read(path: Path) -> dict[str, Any]:
    """Return the values in a TOML file. Raises SettingsError where it cannot be read."""
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
    """Raise SettingsError for a name that is not a setting; where: the source of the values, for a person."""
    for name in values:
        if name in WITHDRAWN:
            raise SettingsError(f"setting `{name}` in {where} was withdrawn: {WITHDRAWN[name]}")
        if name not in Settings.model_fields:
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            remedy = f"did you mean `{close[0]}`?" if close else "docs/settings.md lists all settings"
            raise SettingsError(f"unknown setting `{name}` in {where}: {remedy}")


def _explain(error: ErrorDetails, given: Mapping[str, Any], config: Path | None) -> str:
    """Return the text of a validation error: the setting, its source, the problem and the remedy."""
    # A problem inside a table is named by its path, in which pydantic writes "[key]" behind the name of a key.
    steps = [str(step) for step in error["loc"] if step != "[key]"]
    # The name of a task may hold control characters.
    path = [step if step.isprintable() else ascii(step) for step in steps]
    name = path[0] if path else "?"
    variable = PREFIX + name.upper()
    if name in given:
        source = f"flag --{name.replace('_', '-')}"
    elif variable in os.environ:
        source = f"variable {variable}"
    else:
        source = f"file {config}"
    message = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    place = ".".join(path) or name
    return f"setting `{place}` ({source}): {message}; docs/settings.md describes it"


def refuse_conflicts(settings: Settings) -> None:
    """Raise SettingsError where settings contradict each other."""
    if settings.publish == "tasks" and not settings.tasks:
        raise SettingsError(
            "setting `publish` is tasks, but `tasks` is empty: add a task, `[tasks.NAME]`, or publish topics"
        )
    if settings.guarantee == "theorem":
        _refuse_unproved(settings)


def _refuse_unproved(settings: Settings) -> None:
    """Raise SettingsError for settings that the paper's proof does not cover."""
    name = "setting `guarantee`: the theorem"
    if settings.learner != "paper":
        raise SettingsError(f'{name} is about the paper\'s learner: set `learner` to "paper" when the model is created')
    # The classic Gaussian mechanism, which Algorithm 1 uses, is proved for these alone.
    if not settings.epsilon < 1:
        raise SettingsError(
            f"{name}'s noise is proved for epsilon below 1, and `epsilon` is {settings.epsilon:g}: lower it, to 0.5 say"
        )
    if settings.publish != "topics":
        raise SettingsError(f'{name} releases topics: set `publish` to "topics", or `guarantee` to "certified"')
