"""Commands and their arguments, and the settings, keys, documents and files that arguments name."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.console import doing, log_to_stderr, progress, say, say_json, show, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from streamtopic.documents.corpus import Corpus
    from streamtopic.service.leading import SettleReport
    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings
    from streamtopic.signed import KeyRing

    # argparse has no public names for these two.
    Arguments = argparse._ActionsContainer  # noqa: SLF001
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001
    Option = Callable[[Arguments], None]
    Command = Callable[[Subparsers], None]

__all__ = [
    "answer",
    "command",
    "confirm",
    "file_errors",
    "instance_settings",
    "load_documents",
    "log_events",
    "open_instance",
    "option",
    "read_corpus",
    "settings_of",
    "settle",
    "uses_instance",
    "verifier_of",
    "whole_number",
]

# A file in the wrong format has a problem in each line: the first few show which.
PROBLEMS_SHOWN = 5


def option(form: str, about: str, **more: Any) -> Option:  # noqa: ANN401  what argparse takes
    """Return an argument of a command: a function that adds it to a parser.

    form: as help shows it: `--flag`, `--name VALUE`, or VALUE for one without a name. A value in small letters is a
        choice, such as `--stage file|backups`, and any other is read as `_READ_AS` says.
    about: what it does.
    more: other parameters of argparse's `add_argument`.
    """
    named = form.startswith("-")
    name, _, value = form.partition(" ") if named else ("action", "", form)

    def add(parser: Arguments) -> None:
        how: dict[str, Any] = {"metavar": value, "type": _READ_AS.get(value)}
        if not value:
            how = {"action": "store_true"}
        elif value.islower():
            how = {"choices": value.split("|")}
        how |= more
        place = name if named or value.islower() else how.pop("dest", value.lower())
        parser.add_argument(place, help=about, **how)

    return add


def command(*options: Option, instance: bool = True) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a command of a function, whose name is the command's and whose docstring begins with what help says of it.

    The function takes the parsed arguments and returns the exit status. In its place there is a function that adds the
    command to those of the program.

    instance: whether it takes --dir.
    """

    def made(run: Callable[[argparse.Namespace], int]) -> Command:
        name = run.__name__.strip("_").replace("_", "-")
        # `python -OO` keeps no docstrings.
        about = (run.__doc__ or name).partition("\n")[0]

        def add_to(subparsers: Subparsers) -> None:
            listed = about[0].lower() + about[1:].rstrip(".")
            parser = subparsers.add_parser(name, help=listed, description=about)
            parser.set_defaults(run=run)
            for add in options:
                add(parser)
            common = parser.add_argument_group("common arguments")
            option("--config FILE", "settings file (TOML)")(common)
            if instance:
                option("--dir DIR", "a kept embedded instance")(common)
            option("--set NAME=VALUE", "any setting; may be repeated", action="append", default=[])(common)
            option("--json", "print one JSON object")(common)
            option("--debug", "show a traceback on errors")(common)

        return add_to

    return made


def answer(args: argparse.Namespace, found: object, *lines: str, block: str = "") -> int:
    """Print a result, as JSON if that is asked for; return the exit status 0.

    found: as JSON shows it.
    lines: for a person; line ends of others within them are escaped.
    block: lines that this program laid out, such as a table, which come after them.
    """
    if args.json:
        say_json(found)
        return 0
    for line in lines:
        say(line)
    if block:
        show(block)
    return 0


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a type of argument: a whole number from `least` to `most`, or without an upper bound."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least or (most is not None and found > most):
            upper = "" if most is None else f" to {most}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}{upper}")
        return found

    return read


_READ_AS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("DIR", "DIR|FILE", "FILE", "FOLDER"), Path),
    **dict.fromkeys(("INDEX", "N"), whole_number(0)),
}
"""How values of arguments are read, by their names in help; others stay text."""


def settings_of(args: argparse.Namespace, **flags: object) -> Settings:
    """Return the settings, with the command's own `flags` (None: not given) and --set above all others."""
    from streamtopic.settings import load

    # `demo` and `bench` have no --dir: they make an instance of their own, or none.
    given: dict[str, Any] = {"dir": getattr(args, "dir", None), **flags}
    for assignment in args.set:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {assignment}: expected NAME=VALUE, for instance --set topics=30")
        # Flags have hyphens and settings have underscores: whoever writes --set max-df=.2 means max_df.
        given[name.strip().replace("-", "_")] = value.strip()
    return load(given, config=args.config)


def instance_settings(args: argparse.Namespace, *, must_exist: bool = True) -> Settings:
    """Return the settings of an instance: one in a folder, or a service at Kafka and Redis.

    must_exist: whether the folder must be one of an instance; `add`, `init` and processes make it.
    Raises UsageError if no instance is named, or its folder must exist and does not.
    """
    settings = settings_of(args)
    if settings.dir is None:
        if settings.kafka is not None:
            return settings
        raise UsageError(
            "which instance? give --dir DIR, one made by `streamtopic demo --keep DIR` or `run --dir DIR`, or the "
            "settings `kafka` and `redis_url` of a service (--config FILE)"
        )
    # Without this check a mistyped folder would become a new instance without documents, closed to other users.
    if must_exist and not _is_instance(settings.dir, settings):
        raise UsageError(
            f"there is no instance in {settings.dir}: make one with `streamtopic demo --keep {settings.dir}`"
        )
    return settings


def open_instance(args: argparse.Namespace, *, must_exist: bool = True) -> AbstractContextManager[Opened]:
    """Open the instance or the service that the arguments name. Raises as `instance_settings` and `opened`."""
    from streamtopic.service.opened import opened

    return opened(instance_settings(args, must_exist=must_exist))


def settle(service: Opened, args: argparse.Namespace) -> SettleReport:
    """Do all work that is due on an instance that nobody else runs, and show how far it is."""
    from streamtopic.service.leading import embedded
    from streamtopic.service.sending import silent

    with embedded(service) as work, progress("settling", "documents", quiet=args.json) as update:
        return work.settle(update, announce=silent if args.json else doing)


def confirm(args: argparse.Namespace, what: str, word: str, *more: str) -> None:
    """Let a person type a word before something is deleted, unless --yes is given.

    what: is about to happen, in a sentence.
    more: lines that say more of it.

    Raises UsageError for another answer, and if nobody can be asked.
    """
    if args.yes:
        return
    if args.json or not sys.stdin.isatty():
        raise UsageError(f"{what}: repeat it with --yes")
    for line in (*more, f"{what}; type {word} to go on:"):
        warn(line)
    if sys.stdin.readline().strip() != word:
        raise UsageError(f"nothing was deleted: the answer was not {word}")


def _is_instance(folder: Path, settings: Settings) -> bool:
    """Return whether a folder holds something of an instance. Next to Kafka and Redis it may be empty."""
    from streamtopic.settings import FILE_NAME

    if settings.kafka is not None:
        return folder.is_dir()
    # Of an instance that is to be restored, only the log may be left.
    made = (folder / FILE_NAME, folder / "instance.lock", folder / "log" / f"{settings.model}.documents")
    return any(path.exists() for path in made)


def log_events(role: str, model: str) -> None:
    """Log what a process of the service does: in words at a terminal, else as lines of JSON that name the process."""
    from streamtopic.monitoring.logs import JsonLines

    lines = None if sys.stderr.isatty() else JsonLines({"role": role, "model": model})
    log_to_stderr(detailed=True, lines=lines)
    # kafka-python logs several lines a second while a broker is away; the service says once what it waits for.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def verifier_of(args: argparse.Namespace) -> KeyRing:
    """Return the key of --key, with --key-list the keys of that list, else that of the folder of keys.

    Raises UsageError if no key is given or the list cannot be read, InvalidRelease if the key did not sign the list.
    """
    from streamtopic.service.instance import public_key
    from streamtopic.signed import KeyRing, PublicKey, open_keys

    key = public_key(settings_of(args)) if args.key is None else PublicKey.load(args.key)
    if key is None:
        raise UsageError("which key? give --key signing.pub, or root.pub with --key-list")
    if args.key_list is None:
        return KeyRing(key, _model_of(key.name))
    with file_errors("read", args.key_list):
        note = args.key_list.read_text(encoding="utf-8", errors="replace")
    ring = KeyRing(key, _model_of(open_keys(note, key).origin))
    ring.take(note)
    return ring


def _model_of(origin: str) -> str:
    """Return the model whose ledger has this name."""
    return origin.rpartition("/")[2]


def uses_instance(args: argparse.Namespace, settings: Settings) -> bool:
    """Return whether a command that can read a file or an instance shall read an instance.

    Raises UsageError if --documents and --dir are given both.
    """
    if args.documents is None:
        return settings.dir is not None or settings.kafka is not None
    # Only --dir competes: a folder in the settings file was not asked for by this command line.
    if args.dir is not None:
        raise UsageError("--documents reads a file and --dir an instance: give one of them")
    return False


def read_corpus(args: argparse.Namespace) -> Corpus:
    """Return the documents of `args.documents`, or docstrings of installed packages; warn of lines it skips."""
    from streamtopic.documents.corpus import load_docstrings

    if args.documents is not None:
        return load_documents(args.documents)
    with progress("reading docstrings", "files", quiet=args.json) as update:
        return load_docstrings(progress=update)


def load_documents(path: Path) -> Corpus:
    """Return the documents of a file of JSON lines; warn of lines that are skipped, the first few one by one."""
    from streamtopic.documents.corpus import load_jsonl

    corpus = load_jsonl(path)
    for problem in corpus.problems[:PROBLEMS_SHOWN]:
        warn(f"{path}, line {problem.line}: {problem.reason}; skipped")
    more = len(corpus.problems) - PROBLEMS_SHOWN
    if more > 0:
        warn(f"{path}: {more} more skipped")
    if corpus.replaced:
        warn(f"{path}: {corpus.replaced} ids occur more than once; the last document of each counts")
    return corpus


@contextmanager
def file_errors(verb: str, path: Path) -> Iterator[None]:
    """Turn an error of the operating system into UsageError: cannot `verb` `path`, and why."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot {verb} {path}: {error.strerror}") from None
