"""`streamtopic demo`: the whole flow on real text, embedded."""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, settings_of
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.commands.options import Subparsers
    from streamtopic.commands.stages import Stages
    from streamtopic.corpus import Corpus
    from streamtopic.settings import Settings

__all__ = ["Amount", "read_corpus", "register", "run"]


class Amount:
    """How many documents to delete: a number, or a percentage."""

    def __init__(self, text: str) -> None:
        percent = text.endswith("%")
        try:
            self._value = float(text.removesuffix("%")) if percent else int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither a number such as 20 nor a percentage such as 1%"
            ) from None
        if not 0 <= self._value <= (100 if percent else float("inf")):
            raise argparse.ArgumentTypeError(f"{text!r} is out of range")
        self._percent = percent

    def of(self, documents: int) -> int:
        """Return the number for a corpus of this size; a percentage is at least one document, unless it is 0."""
        count = int(documents * self._value / 100) or int(self._value > 0) if self._percent else int(self._value)
        if count >= documents:
            raise UsageError(f"cannot delete {count} of {documents} documents: give --delete a smaller number")
        return count


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "demo", run, "show the whole flow on real text: learn, delete, unlearn, verify", instance=False
    )
    parser.add_argument(
        "--documents", type=Path, metavar="FILE", help="JSON lines, gzip too (default: installed docstrings)"
    )
    parser.add_argument("--topics", type=int, metavar="R", help="number of topics (default: 20)")
    parser.add_argument(
        "--delete", type=Amount, default="1%", metavar="N|PERCENT%%", help="documents to delete (default: 1%%)"
    )
    parser.add_argument(
        "--kafka", action="store_true", help="with a real Kafka broker on this machine in place of a log in files"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the instance in this folder, to go on with it")


def run(args: argparse.Namespace) -> int:
    """Run the demo; status 1 if the twin or a signature disagrees."""
    from streamtopic.commands.demo_report import print_report
    from streamtopic.commands.stages import Stages
    from streamtopic.settings import FILE_NAME, write

    stages = Stages(quiet=args.json)
    with stages.stage("load the program"):
        from streamtopic.commands.demo_flow import run_demo
    with stages.stage("read documents"):
        corpus = read_corpus(args)
    count = args.delete.of(len(corpus.documents))
    if args.kafka and args.keep is not None:
        raise UsageError("--keep keeps a log in files, and the broker of --kafka ends with the demo: give one of them")
    with _folder(args.keep) as folder, _broker(args, stages) as servers:
        settings = _settings(args, folder, servers)
        if args.keep is not None:
            write(settings, folder / FILE_NAME)
        report = run_demo(settings, corpus, count, stages, kept=args.keep is not None)
    if args.json:
        print(json.dumps(report))
    else:
        print_report(report, args.keep)
    agrees = report["twin"]["words_equal"] and report["twin"]["max_abs_difference"] <= 1e-12
    verified = report["subscriber"]["received"] == report["subscriber"]["verified"] > 0
    return 0 if agrees and verified else 1


def read_corpus(args: argparse.Namespace) -> Corpus:
    """Return the documents of `args.documents`, or docstrings of installed packages; problems are warned of."""
    from streamtopic.commands.outcome import report_problems
    from streamtopic.console import progress
    from streamtopic.corpus import load_jsonl
    from streamtopic.docstrings import load_docstrings

    if args.documents is None:
        with progress("reading docstrings", "files", quiet=args.json) as update:
            return load_docstrings(progress=update)
    corpus = load_jsonl(args.documents)
    report_problems(args.documents, corpus)
    return corpus


def _settings(args: argparse.Namespace, folder: Path, servers: str | None) -> Settings:
    # A deletion is served at once in the demo; elsewhere it may wait for others.
    return settings_of(args, dir=folder, topics=args.topics, max_forget_lag=0.0, kafka=servers)


@contextmanager
def _broker(args: argparse.Namespace, stages: Stages) -> Iterator[str | None]:
    """Start a broker where one is asked for; yield its servers."""
    if not args.kafka:
        yield None
        return
    from streamtopic.local import LocalKafka

    broker = LocalKafka()
    with stages.stage("start kafka"):
        broker.start()
    try:
        yield broker.servers
    finally:
        broker.stop()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="streamtopic-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is not empty: give --keep a new folder, or go on with `streamtopic add --dir {keep}`")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {keep}: {error.strerror}") from None
    yield keep
