"""Write docs/metrics.md, deploy/alerts.yaml and deploy/dashboard.json: `python docs/monitoring.py`."""

import json
from dataclasses import dataclass
from pathlib import Path

from streamtopic.monitoring import metrics as catalogue
from streamtopic.monitoring.metrics import PREFIX, ROOMS, Family

ROOT = Path(__file__).parents[1]
RUNBOOK = "docs/operations.md"
MINUTE, HOUR, DAY = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule.

    name: also the heading of its section in the runbook.
    expression: PromQL; the alert fires for each series that it returns.
    hold: how long it must hold before somebody is told, as Prometheus writes durations.
    severity: `critical` means now, `warning` means today.
    summary: what has happened, in one sentence.
    """

    name: str
    expression: str
    hold: str
    severity: str
    summary: str


def _n(family: Family) -> str:
    return family.name


def _grew(family: Family, selector: str = "", within: str = "15m", least: int = 0) -> str:
    """Return an expression: a counter grew by more than `least`.

    A process may count before it is asked for the first time, as after an absence, and Prometheus sees no increase in
    that. So all that a series shows is new while the series is younger than `within`.
    """
    series = f"{_n(family)}{selector}"
    return f"increase({series}[{within}]) > {least} or ({series} > {least} unless {_shown_before(series, within)})"


def _shown_before(series: str, within: str) -> str:
    # Not at one moment: a single answer that failed then is no new process.
    return f"max_over_time({series}[5m] offset {within})"


def _by_job(aggregate: str, family: Family) -> str:
    return f"{aggregate} by (job) ({_n(family)})"


_JOBS = 'up{job=~"streamtopic.*"}'
_DELETED = f'{_n(catalogue.RECORDS)}{{outcome=~"deleted|deleted_by_refusal"}}'
_WAVE = f"0.05 * {_by_job('max', catalogue.DOCUMENTS)}"
# A series is gone with the process that showed it, and a comparison with nothing is silent.
_OWNED = f"({_by_job('sum', catalogue.OWNED)} or 0 * {_by_job('max', catalogue.PARTITIONS)})"
_NO_LEADER = f"group by (job) ({_JOBS}) unless on (job) {_n(catalogue.LEADER)}"
# Compared one by one: `or` leaves out a series where another one has the same labels, as in a `run`.
_CLOCKS = (catalogue.RELEASE, catalogue.LAST_COMMIT, catalogue.ALIVE)
# By job: a scheduler that stands by since shows when it was the one that wrote.
_OLD_ALIVE = f"time() - {_by_job('max', catalogue.ALIVE)} > {30 * MINUTE}"
_NO_ALIVE = f"group by (job) ({_JOBS}) unless on (job) max_over_time({_n(catalogue.ALIVE)}[30m])"
_LEADS = f"on (job, instance) {_n(catalogue.LEADER)} == 1"


ALERTS = (
    Alert("StreamtopicDown", f"{_JOBS} == 0 or absent({_JOBS})", "1m", "critical",
          "A process does not answer, or Prometheus knows of no process: it was killed, or is stopped."),
    Alert("StreamtopicStalled", f"{_n(catalogue.LIVE)} == 0", "0m", "critical",
          "A loop or a partition has made no progress for a minute, and nothing exempts it."),
    Alert("StreamtopicUnreachable", _grew(catalogue.INTERRUPTIONS, '{reason="unreachable"}', "5m"), "0m", "warning",
          "Redis or Kafka did not answer, so that the work was given up and begun again."),
    Alert("StreamtopicRefused", _grew(catalogue.INTERRUPTIONS, '{reason="refused"}', "5m"), "0m", "critical",
          "Redis or Kafka refused what it was asked, as when it is full or a right was taken away."),
    Alert("StreamtopicBusy", f"{_n(catalogue.BUSY)} == 1", "2h", "warning",
          "A partition is recovered, or a model is made, for two hours: liveness is exempt meanwhile."),
    Alert("StreamtopicOldGauges", _grew(catalogue.INTERRUPTIONS, '{reason="look_failed"}', "10m", 10), "5m", "warning",
          "Gauges are old: the process cannot look at Redis or at the log."),
    Alert("StreamtopicLag", f"{_n(catalogue.LAG_SECONDS)} > {5 * MINUTE}", "5m", "warning",
          "Records wait for more than five minutes to be counted."),
    Alert("StreamtopicUnownedPartitions",
          f"{_OWNED} < on (job) {_by_job('max', catalogue.PARTITIONS)}", "5m",
          "critical", "Nobody counts some of the partitions."),
    Alert("StreamtopicHiddenRecords", f'{_n(catalogue.LAG_RECORDS)}{{kind="hidden"}} > 0', "5m", "critical",
          "An open transaction hides records, deletes perhaps among them."),
    Alert("StreamtopicTakenOver", _grew(catalogue.INTERRUPTIONS, '{reason="taken_over"}'), "0m", "warning",
          "A process lost partitions without noticing: it was stopped, or the group is rebalanced again and again."),
    Alert("StreamtopicSetBack", _grew(catalogue.INTERRUPTIONS, '{reason="set_back"}'), "0m", "critical",
          "Redis was set back: it was restored, or lost the end of what it had written."),
    Alert("StreamtopicMissedDeletes", _grew(catalogue.RECORDS, '{outcome="missed"}', "1h"), "0m", "warning",
          "Deletes had left the log before they were read; they were written again, and nobody knows who asked."),
    Alert("StreamtopicRejectedRecords", _grew(catalogue.REJECTED), "0m", "warning",
          "Records are refused: a producer sends what cannot be counted."),
    Alert("StreamtopicRefusedChange", _grew(catalogue.RECORDS, '{outcome="deleted_by_refusal"}'), "0m", "critical",
          "A refused change removed the document that its id held."),
    Alert("StreamtopicErasureWave",
          f"sum by (job) (increase({_DELETED}[1h])) > on (job) {_WAVE} or "
          f"sum by (job) ({_DELETED} unless {_shown_before(_DELETED, '1h')}) > on (job) {_WAVE}", "0m", "critical",
          "More than 5 % of the documents were deleted within an hour, by deletes or by refused changes."),
    Alert("StreamtopicMisplacedRecords", _grew(catalogue.RECORDS, '{outcome=~"misplaced|forwarded"}'), "0m", "warning",
          "Records come to another partition than that of their key: a producer hashes otherwise."),
    Alert("StreamtopicWordIds", f"{_n(catalogue.WORDS)} > 0.8", "0m", "warning",
          "A partition has given most of its word ids; ingest stops when none is left."),
    Alert("StreamtopicNoLeader", f"{_by_job('max', catalogue.LEADER)} == 0 or ({_NO_LEADER})", "2m", "critical",
          "No scheduler leads, so that no version is made."),
    Alert("StreamtopicNoModel", f"{_n(catalogue.BLOCKED_RELEASE)} == 1", "15m", "critical",
          "No model can be made of the present documents; deletions wait."),
    Alert("StreamtopicSelfCheck", _grew(catalogue.SELF_CHECKS, '{result="failed"}', "1d"), "0m", "critical",
          "An update was not borne out by the service's own check, and was not published."),
    Alert("StreamtopicCapacity", f'{_n(catalogue.BUDGET)}{{of="capacity"}} > 1', "1h", "warning",
          "More documents are forgotten than the base model bears, and no retrain has followed."),
    Alert("StreamtopicEpsilon", f'{_n(catalogue.BUDGET)}{{of="epsilon"}} > 1', "0m", "critical",
          "Versions of one base model have spent more epsilon than the budget."),
    Alert("StreamtopicForgettingLate",
          f'time() - {_n(catalogue.FORGET_OLDEST)}{{at="counted"}} > ignoring (at) '
          f"{_n(catalogue.FORGET_LIMIT)} + {15 * MINUTE}", "0m", "critical",
          "A deletion has waited for longer than `max_forget_lag`, and a quarter of an hour."),
    Alert("StreamtopicPausedRequests", f'{_n(catalogue.FORGET_PENDING)}{{at="paused"}} > 0', "0m", "critical",
          "The brake paused requests for deletions: somebody must approve or cancel them."),
    Alert("StreamtopicResidue",
          f'time() - {_n(catalogue.FORGET_OLDEST)}{{at=~"state|log|file"}} > {3 * DAY}', "1h", "warning",
          "Traces of deleted documents have stayed for three days."),
    Alert("StreamtopicAttest", f'time() - {_n(catalogue.FORGET_OLDEST)}{{at="backups"}} > {30 * DAY}', "1h",
          "warning", "Nobody has attested for a month that old backups are destroyed."),
    Alert("StreamtopicOutbox", f"{_n(catalogue.OUTBOX)} > 0", "10m", "critical",
          "Versions are staged, and nobody publishes them."),
    Alert("StreamtopicAlive", f"{_OLD_ALIVE} or ({_NO_ALIVE})", "5m", "critical",
          "Nobody has written into the ledger for half an hour which version is the newest; subscribers will say so."),
    Alert("StreamtopicWitnesses", f"{_n(catalogue.WITNESSES)} == 0 and {_LEADS}", "1h", "warning",
          "No witness has signed the newest checkpoint of the ledger."),
    Alert("StreamtopicClocks",
          " or ".join(f"{_n(family)} > time() + {MINUTE}" for family in _CLOCKS),
          "0m", "warning", "The clock of a process, or of Redis, is ahead by more than a minute."),
)  # fmt: skip


def metrics_page() -> str:
    """Return the page on metrics."""
    lines = [
        "# Metrics",
        "",
        "A gauge is absent while its value is not known, and a counter begins with each process. No label holds a",
        "document's id or a word. [Operations](operations.md#watching) says how to switch metrics on, and what to do",
        f"about each of the {len(ALERTS)} alerts of `deploy/alerts.yaml`; `deploy/dashboard.json` is a dashboard for",
        "Grafana.",
    ]
    for room, families in ROOMS.items():
        lines += ["", f"## {room}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for family in families:
            labels = ", ".join(f"`{name}`" for name in family.labels)
            lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def alert_rules() -> str:
    """Return the rules as Prometheus reads them. JSON's strings are YAML's as well."""
    lines = [
        '# Written by `python docs/monitoring.py`; what to do about each alert: docs/operations.md, "Watching".',
        "# Scrape the processes under job names that begin with `streamtopic`.",
        "groups:",
        "  - name: streamtopic",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.hold}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f'          runbook: "section {alert.name} of {RUNBOOK}"',
        ]
    return "\n".join(lines) + "\n"


def _queries(family: Family) -> list[tuple[str, str]]:
    """Return the queries of a family's panel, each with the legend of its lines."""
    labels = family.labels
    legend = " ".join(f"{{{{{name}}}}}" for name in labels) or "{{instance}}"
    by = ", ".join(labels)
    if family.kind == "counter":
        total = f"sum by ({by}) " if labels else "sum "
        return [(f"{total}(rate({family.name}[$__rate_interval]))", legend if labels else "all")]
    if family.kind == "histogram":
        grouped = ", ".join(("le", *labels))
        rate = f"sum by ({grouped}) (rate({family.name}_bucket[$__rate_interval]))"
        return [(f"histogram_quantile({share}, {rate})", f"{share:.0%} {legend if labels else ''}".strip())
                for share in (0.5, 0.95)]  # fmt: skip
    if family.name.endswith("_timestamp_seconds"):
        return [(f"time() - {family.name}", f"age {legend}")]
    return [(family.name, legend)]


def _unit(family: Family) -> str:
    if family.kind == "counter":
        return "cps"
    units = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
    return units.get(family.name.rpartition("_")[2], "short")


def dashboard() -> str:
    """Return a dashboard as Grafana imports it: a row for each part of the service, a panel for each family."""
    panels, top, number = list[dict[str, object]](), 0, 0
    source = {"type": "prometheus", "uid": "${source}"}
    for room, families in ROOMS.items():
        number += 1
        place = {"h": 1, "w": 24, "x": 0, "y": top}
        panels.append({"id": number, "type": "row", "title": room, "collapsed": False, "gridPos": place, "panels": []})
        top += 1
        for k, family in enumerate(families):
            number += 1
            targets = [
                {"refId": chr(ord("A") + n), "expr": query, "legendFormat": legend, "datasource": source}
                for n, (query, legend) in enumerate(_queries(family))
            ]
            panels.append(
                {
                    "id": number,
                    "type": "timeseries",
                    "title": family.name.removeprefix(PREFIX).replace("_", " "),
                    "description": family.help,
                    "datasource": source,
                    "gridPos": {"h": 7, "w": 8, "x": 8 * (k % 3), "y": top + 7 * (k // 3)},
                    "fieldConfig": {"defaults": {"unit": _unit(family), "min": 0}, "overrides": []},
                    "targets": targets,
                }
            )
        top += 7 * -(-len(families) // 3)
    variable = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    board = {
        "title": "streamtopic",
        "uid": "streamtopic",
        "tags": ["streamtopic"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [variable]},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


WRITTEN = {
    ROOT / "docs" / "metrics.md": metrics_page,
    ROOT / "deploy" / "alerts.yaml": alert_rules,
    ROOT / "deploy" / "dashboard.json": dashboard,
}
"""Each file with what writes it; a test compares them."""


if __name__ == "__main__":
    for path, write in WRITTEN.items():
        path.write_text(write(), encoding="utf-8")
