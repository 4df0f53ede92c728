"""Faults against the whole service on a real Kafka and a real Redis: `python tests/campaign --faults 1000 --seed 1`.

Every round ends with all checks of docs/faults.md; the first finding ends the campaign, with status 1.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

# Python puts this folder on the path, and not the one in which this package is.
sys.path.insert(0, str(Path(__file__).parent.parent))

from campaign.cluster import Cluster
from campaign.rounds import run


def main():
    """Run a campaign of rounds of eight faults and 240 events, and print its figures."""
    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="streamtopic-faults-"))
    with ExitStack() as stack:
        target = Cluster(folder / "cluster", stack, sharded=args.cluster)
        report = run(target, args.seed, args.faults, say=_say)
    if report.findings:
        print(*report.findings, sep="\n")
        print(f"{len(report.findings)} findings with seed {args.seed}: logs and data are in {folder}")
        return 1
    shutil.rmtree(folder)
    rest = report.rest[1:] or report.rest  # the first round is the way to a first model, without faults
    figures = {
        **dict(sorted(report.faults.items())),
        "all faults": report.faults.total(),
        "events": report.events,
        "recoveries": len(report.rest) - 1,
        "seconds to rest, median": statistics.median(rest),
        "seconds to rest, longest": max(rest),
        **report.figures,
    }
    for name, figure in figures.items():
        print(f"{name:28} {figure:>10,.4g}")
    return 0


def _arguments():
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, metavar="N", help="end with the round that reaches them")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of faults and events")
    parser.add_argument("--cluster", action="store_true", help="a Redis Cluster in place of one Redis")
    return parser.parse_args()


def _say(line):
    """Faults are told to a terminal only, rounds to a file as well: a campaign of hours must show how far it is."""
    if sys.stderr.isatty() or not line.startswith(" "):
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
