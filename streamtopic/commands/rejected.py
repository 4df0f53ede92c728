"""`streamtopic rejected`: the records that were refused."""

from __future__ import annotations

import argparse
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import instant, say, say_json, show

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
    """Print the newest rejections with the number of each reason, or what became of another try."""
    from streamtopic.service.assembly import Parts
    from streamtopic.service.ingest.rejections import Rejection, rejections, retry

    with Parts(instance_settings(args)) as parts:
        if args.action == "retry":
            return _print_retried(dict(retry(parts.log, parts.names, parts.settings.partitioner)), as_json=args.json)
        counted, last = Counter[str](), deque[Rejection](maxlen=max(args.last, 0))
        for rejection in rejections(parts.log, parts.names):
            counted[rejection.reason] += 1
            last.append(rejection)
    reasons, newest = dict(counted.most_common()), [_fields(rejection) for rejection in last]
    if args.json:
        say_json({"rejected": counted.total(), "reasons": reasons, "newest": newest})
        return 0
    from streamtopic.console import table

    if not counted:
        say("no record was refused")
        return 0
    # An id may be anybody's, and none at all.
    rows = [[r["document"] or "-", r["reason"], f"{r['partition']}/{r['offset']}", r["time"]] for r in newest]
    show(table(["document", "reason", "partition/offset", "time"], rows))
    say()
    say(f"{counted.total()} refused: " + ", ".join(f"{number} {reason}" for reason, number in reasons.items()))
    return 0


def _print_retried(outcomes: dict[str, int], *, as_json: bool) -> int:
    if as_json:
        say_json(outcomes)
    else:
        say(", ".join(f"{number} {name.replace('_', ' ')}" for name, number in outcomes.items()))
    return 0


def _fields(rejection: Rejection) -> dict[str, Any]:
    key = rejection.document
    return {
        "document": None if key is None else key[:200].decode(errors="backslashreplace"),
        "reason": rejection.reason,
        "partition": rejection.partition,
        "offset": rejection.offset,
        "time": instant(rejection.time_ms, "seconds"),
    }
