"""`streamtopic demo`: the whole flow on real text, embedded."""

from __future__ import annotations

import argparse
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands import topics, versions
from streamtopic.commands.common_arguments import command, settings_of
from streamtopic.console import duration, number, printable, say_json, show
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.commands.demo_flow import Stages
    from streamtopic.corpus import Corpus
    from streamtopic.settings import Settings

__all__ = ["Amount", "print_report", "read_corpus", "register", "run"]


_PARTITIONS = 4


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
    parser.add_argument(
        "--redis-cluster",
        action="store_true",
        help="with a real Redis Cluster on this machine, three masters and three replicas, in place of one server",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the instance in this folder, to go on with it")


def run(args: argparse.Namespace) -> int:
    """Run the demo; status 1 if the twin or a signature disagrees."""
    from streamtopic.commands.demo import print_report
    from streamtopic.commands.demo_flow import Stages
    from streamtopic.settings import FILE_NAME, write

    stages = Stages(quiet=args.json)
    with stages.stage("load the program"):
        from streamtopic.commands.demo_flow import run_demo
    with stages.stage("read documents"):
        corpus = read_corpus(args)
    count = args.delete.of(len(corpus.documents))
    if args.kafka and args.keep is not None:
        raise UsageError("--keep keeps a log in files, and the broker of --kafka ends with the demo: give one of them")
    if args.redis_cluster and args.keep is not None:
        raise UsageError("--keep keeps a Redis, and the servers of --redis-cluster end with the demo: give one of them")
    with _folder(args.keep) as folder, _broker(args, stages) as servers, _cluster(args, stages) as redis:
        settings = _settings(args, folder, servers, redis)
        if args.keep is not None:
            write(settings, folder / FILE_NAME)
        report = run_demo(settings, corpus, count, stages, kept=args.keep is not None)
    if args.json:
        say_json(report)
    else:
        print_report(report, args.keep)
    agrees = report["twin"]["words_equal"] and report["twin"]["max_abs_difference"] <= 1e-12
    verified = report["subscriber"]["received"] == report["subscriber"]["verified"] > 0
    return 0 if agrees and verified else 1


def read_corpus(args: argparse.Namespace) -> Corpus:
    """Return the documents of `args.documents`, or docstrings of installed packages; problems are warned of."""
    from streamtopic.commands.outcome import report_problems
    from streamtopic.console import progress
    from streamtopic.corpus import load_docstrings, load_jsonl

    if args.documents is None:
        with progress("reading docstrings", "files", quiet=args.json) as update:
            return load_docstrings(progress=update)
    corpus = load_jsonl(args.documents)
    report_problems(args.documents, corpus)
    return corpus


def _settings(args: argparse.Namespace, folder: Path, servers: str | None, redis: str | None) -> Settings:
    # A deletion is served at once in the demo; elsewhere it may wait for others.
    flags = {"dir": folder, "topics": args.topics, "max_forget_lag": 0.0, "kafka": servers, "redis_url": redis}
    settings = settings_of(args, **flags)
    if redis is None or "partitions" in settings.model_fields_set:
        return settings
    # A partition lies on one master, so that a single one would show nothing of a cluster.
    return settings_of(args, **flags, partitions=_PARTITIONS)


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
def _cluster(args: argparse.Namespace, stages: Stages) -> Iterator[str | None]:
    """Start a Redis Cluster where one is asked for; yield its address."""
    if not args.redis_cluster:
        yield None
        return
    from streamtopic.local import LocalRedisCluster

    cluster = LocalRedisCluster()
    with stages.stage("start redis cluster"):
        cluster.start()
    try:
        yield cluster.url
    finally:
        cluster.stop()


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


def print_report(report: dict[str, Any], keep: Path | None) -> None:
    """Print topics, what was forgotten, a receipt, the checks, versions, times and what to try next."""
    sections = {
        "Topics": topics.table_of(report["topics"]) if report["topics"] else "",
        "Heads": _heads(report["heads"], report["versions"][-1]["unfitted"]),
        "Forgotten": _forgotten(report),
        "Receipt of one deletion": _receipt(report["receipts"]["example"]),
        "Checks": _checks(report),
        "Versions": versions.table_of(report["versions"]),
        "Time": _times(report["seconds"]),
        "Try next": _next(keep, report["versions"][-1]["version"]),
    }
    for title, text in sections.items():
        if text:
            show(f"\n{title}\n{'=' * len(title)}\n{text}")


def _times(seconds: dict[str, float]) -> str:
    parts = (f"{stage.replace('_', ' ')} {duration(spent)}" for stage, spent in seconds.items())
    return textwrap.fill(", ".join(parts), 110)


def _forgotten(report: dict[str, Any]) -> str:
    examples, newest = ", ".join(map(printable, report["examples"])), report["versions"][-1]
    return (
        f"{report['deleted']} of {report['documents']} documents, among them {examples}\n"
        f"{report['receipts']['count']} receipts; vocabulary {report['vocabulary']} words\n"
        f"version {newest['version']}: {newest['kind']}, because {newest['reason']}"
        if report["deleted"]
        else ""
    )


def _heads(heads: dict[str, dict[str, Any]], unfitted: dict[str, str]) -> str:
    lines = [topics.heads_table(heads), ""] if heads else []
    for task, head in heads.items():
        lines.append(
            f"{task}: fitted on {head['documents']} documents; of {head['unseen']} forgotten ones, which it has never "
            f"seen, {head['right']} are classed right"
        )
    lines += [f"{task}: no head, because {reason}" for task, reason in unfitted.items()]
    return "\n".join(lines)


def _receipt(receipt: dict[str, Any] | None) -> str:
    if not receipt:
        return ""
    width = max(map(len, receipt))
    return "\n".join(f"{name.replace('_', ' '):{width}}  {_short(value)}" for name, value in receipt.items())


def _short(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    text = printable(str(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _checks(report: dict[str, Any]) -> str:
    twin, subscriber, quality = report["twin"], report["subscriber"], report["quality"]
    same = "the same words" if twin["words_equal"] else "OTHER WORDS"
    return "\n".join(
        [
            f"twin        a service that never saw the deleted documents learns {same};",
            f"            largest difference of its model before noise: {number(twin['max_abs_difference'])}",
            f"subscriber  {subscriber['received']} versions received, {subscriber['verified']} verified",
            f"quality     NPMI {number(quality['npmi'])}, diversity {number(quality['diversity'])}",
        ]
    )


def _next(keep: Path | None, newest: int) -> str:
    if keep is None:
        return (
            "streamtopic demo --documents FILE.jsonl --keep ./news   your own documents, kept to go on with\n"
            "streamtopic demo --json                                 the same for machines"
        )
    return "\n".join(
        [
            f"streamtopic status --dir {keep}",
            f"streamtopic topics --dir {keep} --top 5",
            f"streamtopic add MORE.jsonl --dir {keep}",
            f"streamtopic delete ID --dir {keep}",
            f"streamtopic verify --dir {keep}",
            f"streamtopic report --verify --to report.html --dir {keep}",
            f"streamtopic export {newest} --to model.npz --dir {keep}",
        ]
    )
