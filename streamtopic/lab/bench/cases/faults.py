"""Faults against the whole service on a real Kafka and a real Redis: findings, and the time until it is at rest again.

Every round ends with all checks of docs/faults.md; the first finding ends the campaign.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.lab.bench.figures import Figure

if TYPE_CHECKING:
    from streamtopic.lab.bench.runner import Option
    from streamtopic.lab.faults.campaign import Report

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"faults": 1000, "events": 0, "minutes": 0, "seed": 1, "cluster": 0, "beside": ""}
"""faults, events: the campaign ends with the round that reaches them (events 0: no limit); seed: of both.

minutes: for which it goes on at least.
cluster: 1 for a Redis Cluster in place of one Redis.
beside: Python of an environment with another version of the program, which then does a half of the work.
"""


# Health may take 75 s to notice.
_STALL = 85.0


def campaign(faults: int, events: int, minutes: int, seed: int, cluster: int, beside: str) -> list[Figure]:
    """Rounds of eight faults and 240 events."""
    from streamtopic.errors import CheckFailed
    from streamtopic.lab.faults.campaign import Options, run
    from streamtopic.lab.faults.cluster import Cluster
    from streamtopic.lab.faults.drills import EVERY_DRILL

    other = _checked(beside) if beside else None
    folder = Path(tempfile.mkdtemp(prefix="streamtopic-faults-"))
    with Cluster(folder / "cluster", beside=other, sharded=bool(cluster)) as target:
        seconds, drills = 60.0 * minutes, tuple(EVERY_DRILL)
        options = Options(seed, faults, events or 1 << 60, seconds, stall=_STALL, drills=drills)
        report = run(target, options, _say)
    if report.findings:
        sys.stderr.write("\n".join(report.findings) + "\n")
        raise CheckFailed(f"{len(report.findings)} findings with seed {seed}: logs and data are in {folder}")
    shutil.rmtree(folder)
    return _figures(report)


def _checked(python: str) -> Path:
    """Return the path of a Python that has a program of its own. Raises `UsageError` for any other."""
    from streamtopic.errors import UsageError

    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"--beside: there is no program {python}; name the Python of an environment, such as old/bin/python"
        )
    # Not resolved: a link in an environment leads out of it.
    path = Path(found).absolute()
    asked = [str(path), "-I", "-m", "streamtopic", "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603  named by the user
    if done.returncode:
        raise UsageError(f"--beside: {python} has no streamtopic; install the other version into its environment")
    return path


def _say(line: str) -> None:
    """Faults are told to a terminal only, rounds to a file as well: a campaign of hours must show how far it is."""
    if sys.stderr.isatty() or not line.startswith(" "):
        print(line, file=sys.stderr, flush=True)


def _figures(report: Report) -> list[Figure]:
    rest = report.rest[1:] or report.rest  # the first round is the way to a first model, without faults
    return [
        Figure("findings", len(report.findings), "", "0"),
        *(Figure(kind, number, "times") for kind, number in sorted(report.faults.items())),
        Figure("all faults", report.faults.total(), "times"),
        Figure("replies lost", report.lost_replies, "times"),
        Figure("recoveries", report.rounds - 1, "rounds"),
        Figure("at rest again after, median", statistics.median(rest), "s"),
        Figure("at rest again after, longest", max(rest), "s"),
        Figure("compactions of the log", report.compactions, "times"),
        Figure("asked what is hidden", report.hidden_asked, "times"),
        Figure("answers how a process is", report.health_asked, "times"),
        Figure("people forgotten", report.people, ""),
        Figure("requests through the door", report.asked, ""),
        Figure("requests cancelled", report.cancelled, ""),
        Figure("requests that Redis forgot", report.again, ""),
        Figure("alerts checked", report.alerts, "times"),
        Figure("events", report.events, ""),
        Figure("versions", report.versions, ""),
        Figure("receipts", report.deletions, ""),
        Figure("receipts written late", report.strays, ""),
        Figure("releases written late", report.rivals, ""),
        Figure("whole campaign", report.seconds, "s"),
    ]


CASES = {"campaign": campaign}
