"""Arguments that commands share, and the settings that follow from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.settings import Settings
    from streamtopic.signed import Verifier

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  argparse has no public name for it

__all__ = ["command", "instance_settings", "settings_of", "verifier_of"]


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


def verifier_of(args: argparse.Namespace) -> Verifier:
    """Return what --public-key and --key-list name, else the setting `public_key`. Raises UsageError for none.

    Raises InvalidRelease for a list that the public key did not sign.
    """
    from streamtopic.signed import KeyRing, PublicKey

    source = args.public_key or settings_of(args).public_key
    if source is None:
        raise UsageError("which key? give --public-key signing.pub, or root.pub with --key-list")
    key = PublicKey.load(source)
    if args.key_list is None:
        return key
    try:
        return KeyRing.of_list(key, args.key_list.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {args.key_list}: {error.strerror}") from None


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
