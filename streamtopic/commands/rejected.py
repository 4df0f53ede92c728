"""`streamtopic rejected`: the records that were refused."""

from __future__ import annotations

import argparse
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import instant, say, say_json, show, table

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.ingest.rejections import Rejection

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "rejected", run, "list the records that were refused, or try them again")
    parser.add_argument(
        "action", choices=["list", "retry"], help="what to do; retry is for after an update or a changed limit"
    )
    parser.add_argument("--last", type=int, default=20, metavar="N", help="list: the newest N (default: 20)")


def run(args: argparse.Namespace) -> int:
    """Print the newest refused records and the number of each reason, or the outcome of another try."""
    from streamtopic.service.assembly import Parts
    from streamtopic.service.ingest.rejections import Rejection, rejections, retry

    with Parts(instance_settings(args)) as parts:
        if args.action == "retry":
            outcomes = dict(retry(parts.log, parts.names, parts.settings.partitioner))
            return _print_retried(outcomes, as_json=args.json)
        counted = Counter[str]()
        # A hostile producer can fill the topic: all of it is counted, and only the newest are kept in memory.
        last = deque[Rejection](maxlen=max(args.last, 0))
        for rejection in rejections(parts.log, parts.names):
            counted[rejection.reason] += 1
            last.append(rejection)
    reasons = dict(counted.most_common())
    newest = [_fields(rejection) for rejection in last]
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


def _fields(rejection: Rejection) -> dict[str, Any]:
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
