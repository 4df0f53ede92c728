"""Commands that look at an instance: its state, versions, topics, refused records, traces of deletions and problems.

Two of them can act as well: `rejected retry` tries records again, and `residue attest` notes the operator's word.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings, moment, whole_number
from streamtopic.commands.topics_shown import (
    add_slices,
    print_slices,
    slice_unit,
)
from streamtopic.console import duration, instant, number, number_of, say, say_json, show, table
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.assembly import Parts
    from streamtopic.service.ingest.rejections import Rejection
    from streamtopic.service.inspection.examination import Diagnosis
    from streamtopic.settings import Settings
    from streamtopic.signed import Release
    from streamtopic.state.residue_ledger import Residue

__all__ = ["heads_table", "register", "topics_table", "versions_table"]

# Fields of the status that are milliseconds since 1970.
_TIMES = frozenset({"at", "decided", "made"})


def register(subparsers: Subparsers) -> None:
    """Add the six commands."""
    _register_status(subparsers)
    _register_versions(subparsers)
    _register_topics(subparsers)
    _register_rejected(subparsers)
    _register_residue(subparsers)
    _register_doctor(subparsers)


def _register_status(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "status", _run_status, "show documents, forget set, last decision and health")


def _run_status(args: argparse.Namespace) -> int:
    """Print the state of the instance without changing it."""
    from streamtopic.service.app import Service

    with Service(instance_settings(args)) as service:
        status = service.status()
    if args.json:
        say_json(status)
        return 0
    width = max(map(len, status))
    # How many deletions wait is enough for a person; --json has since when.
    status["residue"] = {name: one["documents"] for name, one in status["residue"]["waiting"].items()}
    for name, value in status.items():
        say(f"{name.replace('_', ' '):{width}}  {_shown_value(name, value)}")
    return 0


def _shown_value(name: str, value: object) -> str:
    """Return a field of the status as a person reads it; name: its name in JSON."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown_value(key, part)}" for key, part in value.items()) or "-"
    if name in _TIMES and isinstance(value, int):
        return instant(value, "seconds")
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)


def _register_versions(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "versions", _run_versions, "list the published versions and their guarantees")


def _run_versions(args: argparse.Namespace) -> int:
    """Print all versions, oldest first."""
    from streamtopic.service.app import Service

    with Service(instance_settings(args)) as service:
        versions = service.versions()
    if args.json:
        say_json({"versions": versions})
    else:
        show(
            versions_table(versions) if versions else "no version has been published yet; `streamtopic status` says why"
        )
    return 0


def versions_table(versions: list[dict[str, Any]]) -> str:
    """Lay out versions for a person."""
    head = [
        "version",
        "kind",
        "documents",
        "forgotten",
        "(unlearning ε, δ)",
        "sigma",
        "certificate",
        "time",
    ]
    rows = [_version_row(version) for version in versions]
    # Most models have no task: a column of dashes would make the table wider than a terminal for nothing.
    if any(version["heads"] or version["unfitted"] for version in versions):
        head.append("heads")
        for row, version in zip(rows, versions, strict=True):
            missing = [f"no {task}" for task in version["unfitted"]]
            tasks = [*version["heads"], *missing]
            row.append(", ".join(tasks) or "-")
    return table(head, rows)


def _version_row(version: Mapping[str, Any]) -> list[object]:
    withdrawn = " (withdrawn)" if version.get("withdrawn") else ""
    return [
        version["version"],
        version["kind"] + withdrawn,
        version["documents"],
        version["forgotten"],
        f"({number(version['epsilon'])}, {number(version['delta'])})",
        number(version["sigma"]),
        number(version["certificate"]),
        "-" if version["seconds"] is None else duration(version["seconds"]),
    ]


def _register_topics(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "topics", _run_topics, "show the topics of a published version, and the words of its heads"
    )
    # Not stored as `version`: the program's own --version has that name.
    parser.add_argument(
        "--version", dest="number", type=whole_number(1), metavar="N", help="which version (default: the newest)"
    )
    parser.add_argument(
        "--top", type=whole_number(1, 20), default=10, metavar="K", help="words for each topic, 1 to 20 (default: 10)"
    )
    add_slices(parser)
    parser.add_argument(
        "--names",
        type=Path,
        metavar="FILE",
        help="a file of your own that keeps a number and a name for each topic from version to version; made if absent",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NUMBER=NAME",
        help="with --names: give the topic of this number a name (may be repeated; NUMBER= takes the name away)",
    )


def _run_topics(args: argparse.Namespace) -> int:
    """Print topics, largest share first, and the words that speak for each class of a head."""
    from streamtopic.service.app import Service
    from streamtopic.service.publish.published import heads_of, topics_of

    settings = instance_settings(args)
    unit = slice_unit(args.over, settings)
    if args.name and args.names is None:
        raise UsageError("--name needs a file that keeps the names: give --names FILE")
    if unit or args.by:
        if args.names is not None:
            raise UsageError("--names goes with neither --over nor --by: ask for both, one after the other")
        with Service(settings) as service:
            found = service.slices(args.number, unit, args.by, args.top)
        return print_slices(found, as_json=args.json)
    with Service(settings) as service:
        release = service.release(args.number)
        shown = release.payload.A is not None
        topics = topics_of(release, args.top) if shown else []
        heads = heads_of(release, args.top)
    if args.names is not None:
        topics = _named(args.names, args.name, release, topics)
    if args.json:
        say_json({"version": release.version, "topics": topics, "heads": heads})
        return 0
    blocks = [f"version {release.version}", topics_table(topics) if shown else "its topics are withheld"]
    if heads:
        blocks.append(heads_table(heads))
    show("\n\n".join(blocks))
    return 0


def _named(path: Path, names: list[str], release: Release, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return topics with the numbers and names that a file keeps for them.

    names: NUMBER=NAME each, given before topics are shown.
    """
    from streamtopic.client import TopicBook

    book = TopicBook(path)
    book.follow(release)
    for given in names:
        number, sign, name = given.partition("=")
        if not sign or not number.isdecimal():
            raise UsageError(f"--name {given}: give the number of a topic and its name, such as --name 3=harvests")
        book.name(int(number), name or None)
    found = []
    for topic, kept in zip(topics, book.topics, strict=True):
        found.append({**topic, "id": kept.id, "name": kept.name, "since": kept.since})
    return found


def heads_table(heads: dict[str, dict[str, Any]]) -> str:
    """Lay out the heads of a release for a person: a line for each class."""
    rows = []
    for task, head in heads.items():
        rows += [[task, name, " ".join(words)] for name, words in head["classes"].items()]
    return table(["task", "class", "words that speak for it"], rows)


def topics_table(topics: list[dict[str, Any]]) -> str:
    """Lay out topics for a person, largest share first."""
    ordered = sorted(topics, key=lambda topic: -topic["share"])
    # Rows are sorted and numbers are kept: `transform`, pages and notebooks name a topic by its number.
    rows = [[topic["topic"], f"{topic['share']:6.1%}", " ".join(topic["words"])] for topic in ordered]
    if not any("id" in topic for topic in ordered):
        return table(["topic", "share", "words"], rows)
    for row, topic in zip(rows, ordered, strict=True):
        row[1:1] = [topic["id"], topic["name"] or "-", topic["since"]]
    return table(["topic", "number", "name", "since version", "share", "words"], rows)


def _register_rejected(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "rejected", _run_rejected, "list the records that were refused, or try them again")
    parser.add_argument(
        "action", choices=["list", "retry"], help="what to do; retry helps after an update of the program"
    )
    parser.add_argument(
        "--last", type=whole_number(0), default=20, metavar="N", help="list: the newest N (default: 20)"
    )


def _run_rejected(args: argparse.Namespace) -> int:
    """Print the newest refused records and the number of each reason, or the outcome of another try."""
    from streamtopic.service.assembly import Parts
    from streamtopic.service.ingest.rejections import Rejection, rejections, retry

    with Parts(instance_settings(args)) as parts:
        if args.action == "retry":
            outcomes = dict(retry(parts.log, parts.names, parts.settings.partitioner, parts.dialect))
            return _print_retried(outcomes, as_json=args.json)
        counted = Counter[str]()
        # A hostile producer can fill the topic: all of it is counted, and only the newest are kept in memory.
        last = deque[Rejection](maxlen=args.last)
        for rejection in rejections(parts.log, parts.names):
            counted[rejection.reason] += 1
            last.append(rejection)
    reasons = dict(counted.most_common())
    newest = [_rejection_fields(rejection) for rejection in last]
    if args.json:
        say_json({"rejected": counted.total(), "reasons": reasons, "newest": newest})
        return 0
    if not counted:
        say("no record was refused")
        return 0
    rows = []
    for one in newest:
        # A record without a key has no id; it is refused for that.
        document = one["document"] or "-"
        rows.append([document, one["reason"], f"{one['partition']}/{one['offset']}", one["time"]])
    show(table(["document", "reason", "partition/offset", "time"], rows))
    say()
    numbers = [f"{number} {reason}" for reason, number in reasons.items()]
    say(f"{counted.total()} refused: {', '.join(numbers)}")
    return 0


def _print_retried(outcomes: dict[str, int], *, as_json: bool) -> int:
    if as_json:
        say_json(outcomes)
    else:
        say(", ".join(f"{number} {name.replace('_', ' ')}" for name, number in outcomes.items()))
    return 0


def _rejection_fields(rejection: Rejection) -> dict[str, Any]:
    key = rejection.document
    # Keys are refused for their size and encoding too: the id is cut, and bytes that are not UTF-8 are escaped.
    document = None if key is None else key[:200].decode(errors="backslashreplace")
    return {
        "document": document,
        "reason": rejection.reason,
        "partition": rejection.partition,
        "offset": rejection.offset,
        "time": instant(rejection.time_ms, "seconds"),
    }


def _register_residue(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "residue", _run_residue, "show the traces of deletions, or attest that they are gone")
    parser.add_argument(
        "action", nargs="?", choices=["show", "attest"], default="show", help="what to do (default: show)"
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="attest: nothing is left that was written before this time (`now`, or 2026-01-31T12:00Z)",
    )
    parser.add_argument(
        "--stage",
        choices=["file", "backups"],
        default="backups",
        help="attest: of which files: Redis's append-only files, those of replicas too, or all snapshots and backups "
        "(default: backups)",
    )


def _run_residue(args: argparse.Namespace) -> int:
    """Show how many deletions wait for which stage; with `attest`, note the operator's word first."""
    from streamtopic.service.assembly import Parts
    from streamtopic.state.residue_ledger import ResidueState, Stage

    with Parts(instance_settings(args)) as parts:
        store = ResidueState(parts.connection, parts.settings.model)
        if args.action == "attest":
            store.attest(Stage(args.stage), _time_ms(args.until, parts))
        residue = store.read()
    if args.json:
        from streamtopic.service.publish.erasure import residue_fields

        say_json(residue_fields(residue))
        return 0
    _show_residue(residue)
    return 0


def _show_residue(residue: Residue) -> None:
    from streamtopic.service.publish.erasure import waiting_by_stage

    for stage, waiting in waiting_by_stage(residue).items():
        if not waiting.documents:
            say(f"{stage:10}  nothing waits")
            continue
        since = "" if waiting.since_ms is None else f", the oldest since {instant(waiting.since_ms, 'seconds')}"
        wait = "waits" if waiting.documents == 1 else "wait"
        say(f"{stage:10}  {number_of(waiting.documents, 'document')} {wait}{since}")
    for stage, time_ms in residue.attested.items():
        say(f"{stage:10}  attested until {instant(time_ms, 'seconds')}")
    if residue.forbidden:
        say(f"file        the service may not have it written anew: {residue.forbidden}")


def _time_ms(text: str | None, parts: Parts) -> int:
    """Return milliseconds since 1970. Raises UsageError for a text that is not a time, and for a time to come."""
    now_ms = int(parts.clock() * 1000)
    if text is None:
        raise UsageError("until when? give --until TIME, for instance --until 2026-01-31T12:00Z")
    if text == "now":
        return now_ms
    # The time goes into the ledger: hours too late, it would be untrue.
    time_ms = moment(text, "--until", wanted="`now` or a time")
    # A deletion that is counted before then would be attested although its backup is still to be written.
    if time_ms > now_ms:
        raise UsageError(f"--until {text} is still to come: give a time that is over")
    return time_ms


def _register_doctor(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "doctor", _run_doctor, "check Redis, Kafka, keys, settings and state, and name remedies")


def _run_doctor(args: argparse.Namespace) -> int:
    """Print the findings, each with its remedy; status 1 if one of them fails."""
    from streamtopic.service.inspection.examination import Level

    findings = []
    for finding in _examined(instance_settings(args)):
        findings.append(finding)
        # Printed as they come: a server that does not answer holds the rest up.
        if not args.json:
            say(f"{finding.level:4}  {finding.name}: {finding.detail}")
            if finding.remedy:
                say(f"      {finding.remedy}")
    failed = sum(finding.level is Level.FAIL for finding in findings)
    if args.json:
        say_json({"passed": not failed, "findings": [dataclasses.asdict(finding) for finding in findings]})
    return 1 if failed else 0


def _examined(settings: Settings) -> Iterator[Diagnosis]:
    from streamtopic.service.assembly import Parts
    from streamtopic.service.inspection.examination import Diagnosis, Level, examine

    try:
        with Parts(settings) as parts:
            yield from examine(parts)
    # An instance that cannot even be opened is a finding like others, not the end of the command.
    except StreamtopicError as error:
        yield Diagnosis("instance", Level.FAIL, str(error), "")
