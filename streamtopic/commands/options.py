"""Arguments that commands share, and the settings that follow from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.settings import Settings

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  argparse has no public name for it

__all__ = ["command", "instance_settings", "settings_of"]


def command(
    subparsers: Subparsers,
    name: str,
    run: Callable[[argparse.Namespace], int],
    description: str,
    *,
    instance: bool = True,
    output: bool = True,
) -> argparse.ArgumentParser:
    """Register a command with the arguments that all have; `instance`: it takes --dir, `output`: it takes --json."""
    parser = subparsers.add_parser(name, help=description, description=description[0].upper() + description[1:] + ".")
    parser.set_defaults(run=run)
    group = parser.add_argument_group("common arguments")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings file (TOML)")
    if instance:
        group.add_argument("--dir", type=Path, metavar="DIR", help="a kept embedded instance")
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting; may be repeated")
    if output:
        group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--debug", action="store_true", help="show a traceback on errors")
    return parser


def settings_of(args: argparse.Namespace, **flags: object) -> Settings:
    """Return the settings, with the command's own `flags` (None: not given) and --set above all others."""
    from streamtopic.settings import load

    given: dict[str, Any] = {"dir": getattr(args, "dir", None), **flags}
    for assignment in args.set:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment}: expected NAME=VALUE, for instance --set topics=30")
        given[name.strip().replace("-", "_")] = value.strip()
    return load(given, config=args.config)


def instance_settings(args: argparse.Namespace, *, must_exist: bool = True) -> Settings:
    """Return the settings of an instance: in a folder, or a service at Kafka and Redis.

    Raises `UsageError` where none is named or, if it must, the folder does not exist.
    """
    settings = settings_of(args)
    if settings.dir is None:
        if settings.kafka is not None:
            return settings
        raise UsageError(
            "which instance? give --dir DIR, one made by `streamtopic demo --keep DIR` or `run --dir DIR`, or the "
            "settings `kafka` and `redis_url` of a service (--config FILE)"
        )
    if must_exist and not settings.dir.is_dir():
        raise UsageError(
            f"there is no instance in {settings.dir}: make one with `streamtopic demo --keep {settings.dir}`"
        )
    return settings
