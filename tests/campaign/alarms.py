"""Replays what processes showed in promtool, and asks which alerts of `deploy/alerts.yaml` would have fired."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from campaign.monitor import Scrape, Series

__all__ = ["RULES", "Replay", "promtool", "replayed", "silent"]

RULES = Path(__file__).parents[2] / "deploy" / "alerts.yaml"
"""The rules that a replay is put to."""
_FAMILY = re.compile(r"streamtopic_\w+")
_SINCE_1970 = "_timestamp_seconds"
_COUNTER = "_total"
# Prometheus writes this when a series that was there is missing from an answer.
_GONE = "stale"


@dataclass(frozen=True, slots=True)
class Replay:
    """A time that was watched, and the alerts that it calls for.

    name: of what happened in it.
    scrapes: process to what it showed, from the begin of the time on.
    step: seconds between two scrapes.
    wall: seconds since 1970 when the clock of the scrapes was at 0.
    pace: how many times as fast it happened as it is replayed. Ages that a process shows stay what they were.
    must: alerts that must fire. may: alerts that may fire as well; None for any.
    """

    name: str
    scrapes: Mapping[str, Sequence[Scrape]]
    step: float
    wall: float
    pace: float = 1.0
    must: frozenset[str] = field(default_factory=frozenset)
    may: frozenset[str] | None = field(default_factory=frozenset)


def promtool() -> str | None:
    """Return the path of promtool, None if it is missing. It is part of Prometheus."""
    return shutil.which("promtool")


def silent(replays: Sequence[Replay], folder: Path, tool: str) -> list[str]:
    """Return which replays fire an alert that they must not, or miss one that they must.

    folder: for the file of tests.
    tool: path of promtool.
    """
    findings = []
    for number, replay in enumerate(replays):
        path = folder / f"alerts-{number}.json"
        path.write_text(json.dumps(replayed(replay)), "utf-8")
        done = subprocess.run([tool, "test", "rules", str(path)], check=False, capture_output=True, text=True)
        if done.returncode:
            findings.append(f"alerts of {replay.name}, from {path}:\n{done.stdout}{done.stderr}"[:4000])
    return findings


def replayed(replay: Replay) -> dict[str, object]:
    """Return the test of promtool for a replay."""
    names = set(_FAMILY.findall(RULES.read_text("utf-8")))
    lasts = max((len(scrapes) for scrapes in replay.scrapes.values()), default=0)
    # Before the first scrape nothing is known; at the end rules need one more turn to see the last.
    step = max(1, round(replay.step * replay.pace))
    series = []
    for name, scrapes in replay.scrapes.items():
        series += _series(name, scrapes, names, replay)
    whole = f"[{step * (lasts + 1)}s]"
    at = f"{step * lasts}s"
    checks = [
        {
            "expr": f'count(max_over_time(ALERTS{{alertstate="firing",alertname="{alert}"}}{whole})) > bool 0',
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for alert in sorted(replay.must)
    ]
    if replay.may is not None:
        known = "|".join(sorted(replay.must | replay.may))
        checks.append(
            {
                "expr": "count by (alertname) (max_over_time("
                f'ALERTS{{alertstate="firing",alertname!~"{known}"}}{whole}))',
                "eval_time": at,
                "exp_samples": [],
            }
        )
    test = {"name": replay.name, "interval": f"{step}s", "input_series": series, "promql_expr_test": checks}
    return {"rule_files": [str(RULES)], "evaluation_interval": f"{step}s", "tests": [test]}


def _series(name: str, scrapes: Sequence[Scrape], names: set[str], replay: Replay) -> list[dict[str, str]]:
    """Return the series of one process, `up` among them, as promtool reads them."""
    own = (("instance", name), ("job", "streamtopic"))
    shown: list[Mapping[Series, float]] = [scrape.values or {} for scrape in scrapes]
    keys = sorted({key for values in shown for key in values if key[0] in names})
    up = " ".join("0" if scrape.values is None else "1" for scrape in scrapes)
    found = [{"series": _named("up", own), "values": up}]
    for family, labels in keys:
        values = [_known(one.get((family, labels))) for one in shown]
        if family.endswith(_SINCE_1970):
            values = _aged(values, scrapes, replay)
        elif family.endswith(_COUNTER):
            values = _counted_since(values)
        found.append({"series": _named(family, (*labels, *own)), "values": _values(values)})
    return found


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _counted_since(values: Sequence[float | None]) -> list[float | None]:
    """Return a counter without what it showed first: a replay begins in the middle of a life, and that is not news."""
    found: list[float | None] = []
    first = before = next((value for value in values if value is not None), 0.0)
    for value in values:
        if value is not None:
            # A process that begins anew counts from 0.
            first = first if value >= before else 0.0
            before = value
        found.append(None if value is None else value - first)
    return found


def _aged(values: Sequence[float | None], scrapes: Sequence[Scrape], replay: Replay) -> list[float | None]:
    """Return times as the clock of the replay shows them, which begins at 0: each as long ago as it was."""
    found: list[float | None] = []
    for number, (value, scrape) in enumerate(zip(values, scrapes, strict=True)):
        now = number * round(replay.step * replay.pace)
        found.append(None if value is None else now - (replay.wall + scrape.time - value))
    return found


def _values(values: Sequence[float | None]) -> str:
    told, before = [], None
    for value in values:
        if value is None:
            told.append(_GONE if before is not None else "_")
        else:
            told.append(format(value, ".15g"))
        before = value
    return " ".join(told)


def _named(family: str, labels: Sequence[tuple[str, str]]) -> str:
    return f"{family}{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels)}}}"
