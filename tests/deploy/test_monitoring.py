"""Dashboard, alert rules and the page on metrics: written from the catalogue, and tried on the faults they are for."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from streamtopic.monitoring.metrics import CATALOGUE, PREFIX

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "docs" / "monitoring.py"))
ALERTS = {alert.name: alert for alert in WRITER["ALERTS"]}
FAMILIES = {family.name: family for family in CATALOGUE}
# What is shown while nothing is wrong: one process of each role in one job, seen once a minute.
HEALTHY = {
    "up": "1+0x{n}",
    "live": "1+0x{n}",
    'interruptions_total{reason="unreachable"}': "0+0x{n}",
    'interruptions_total{reason="refused"}': "0+0x{n}",
    'interruptions_total{reason="look_failed"}': "0+0x{n}",
    'interruptions_total{reason="taken_over"}': "0+0x{n}",
    'interruptions_total{reason="set_back"}': "0+0x{n}",
    'records_total{outcome="added"}': "0+600x{n}",
    'records_total{outcome="deleted"}': "0+1x{n}",
    'records_total{outcome="deleted_by_refusal"}': "0+0x{n}",
    'records_total{outcome="misplaced"}': "0+0x{n}",
    'records_total{outcome="missed"}': "0+0x{n}",
    "documents": "6000+0x{n}",
    'forget_pending{at="paused"}': "0+0x{n}",
    'rejected_total{reason="op"}': "0+0x{n}",
    'lag_seconds{partition="0"}': "1+0x{n}",
    'lag_records{partition="0",kind="hidden"}': "0+0x{n}",
    'last_commit_timestamp_seconds{partition="0"}': "0+60x{n}",
    'words_ratio{partition="0"}': "0.01+0x{n}",
    "partitions_owned": "8+0x{n}",
    "partitions": "8+0x{n}",
    "leader": "1+0x{n}",
    'self_checks_total{result="failed"}': "0+0x{n}",
    'budget_used_ratio{of="capacity"}': "0.8+0x{n}",
    'budget_used_ratio{of="epsilon"}': "0.9+0x{n}",
    "forget_limit_seconds": "3600+0x{n}",
    'forget_oldest_timestamp_seconds{at="counted"}': "-3000+60x{n}",
    'forget_oldest_timestamp_seconds{at="log"}': "-90000+60x{n}",
    'forget_oldest_timestamp_seconds{at="backups"}': "-900000+60x{n}",
    "outbox_pending": "0+0x{n}",
    "release_timestamp_seconds": "-7200+60x{n}",
    "alive_timestamp_seconds": "-300+60x{n}",
    "ledger_witnesses": "2+0x{n}",
}
# Of a scheduler that stands by.
BESIDE = {"leader": "0+0x{n}", "alive_timestamp_seconds": "-9000+0x{n}"}

# What each fault shows in place of that, from the sixtieth minute on. `_` is a series that is not there.
FAULTS = {
    "StreamtopicDown": ("up", "1+0x60 0+0x{n}"),
    "StreamtopicStalled": ("live", "1+0x60 0+0x{n}"),
    "StreamtopicUnreachable": ('interruptions_total{reason="unreachable"}', "0+0x60 1+1x{n}"),
    "StreamtopicRefused": ('interruptions_total{reason="refused"}', "0+0x60 1+1x{n}"),
    "StreamtopicBusy": ('busy{what="learning"}', "_x60 1+0x{n}"),
    "StreamtopicOldGauges": ('interruptions_total{reason="look_failed"}', "0+0x60 5+5x{n}"),
    "StreamtopicLag": ('lag_seconds{partition="0"}', "1+0x60 60+60x{n}"),
    "StreamtopicUnownedPartitions": ("partitions_owned", "8+0x60 5+0x{n}"),
    "StreamtopicHiddenRecords": ('lag_records{partition="0",kind="hidden"}', "0+0x60 3+0x{n}"),
    "StreamtopicTakenOver": ('interruptions_total{reason="taken_over"}', "0+0x60 1+1x{n}"),
    "StreamtopicSetBack": ('interruptions_total{reason="set_back"}', "0+0x60 1+1x{n}"),
    "StreamtopicMissedDeletes": ('records_total{outcome="missed"}', "0+0x60 7+7x{n}"),
    "StreamtopicRejectedRecords": ('rejected_total{reason="op"}', "0+0x60 1+1x{n}"),
    "StreamtopicRefusedChange": ('records_total{outcome="deleted_by_refusal"}', "0+0x60 1+1x{n}"),
    "StreamtopicErasureWave": ('records_total{outcome="deleted"}', "0+1x60 60+10x{n}"),
    "StreamtopicMisplacedRecords": ('records_total{outcome="misplaced"}', "0+0x60 1+1x{n}"),
    "StreamtopicWordIds": ('words_ratio{partition="0"}', "0.5+0x60 0.9+0x{n}"),
    "StreamtopicNoLeader": ("leader", "1+0x60 0+0x{n}"),
    "StreamtopicNoModel": ('release_blocked{reason="rank"}', "_x60 1+0x{n}"),
    "StreamtopicSelfCheck": ('self_checks_total{result="failed"}', "0+0x60 1+1x{n}"),
    "StreamtopicCapacity": ('budget_used_ratio{of="capacity"}', "0.9+0x60 1.2+0x{n}"),
    "StreamtopicEpsilon": ('budget_used_ratio{of="epsilon"}', "0.9+0x60 1.1+0x{n}"),
    "StreamtopicForgettingLate": ('forget_oldest_timestamp_seconds{at="counted"}', "3600+0x{n}"),
    "StreamtopicPausedRequests": ('forget_pending{at="paused"}', "0+0x60 3+0x{n}"),
    "StreamtopicResidue": ('forget_oldest_timestamp_seconds{at="log"}', "-300000+0x{n}"),
    "StreamtopicAttest": ('forget_oldest_timestamp_seconds{at="backups"}', "-2600000+0x{n}"),
    "StreamtopicOutbox": ("outbox_pending", "0+0x60 4+0x{n}"),
    "StreamtopicAlive": ("alive_timestamp_seconds", "3600+0x{n}"),
    "StreamtopicWitnesses": ("ledger_witnesses", "2+0x60 0+0x{n}"),
    "StreamtopicClocks": ("release_timestamp_seconds", "0+60x60 7320+60x{n}"),
}
# What an alert keeps of the labels of its series, if it sums them or compares them with a series that has fewer.
KEPT = {
    "StreamtopicForgettingLate": {"job", "instance"},
    "StreamtopicUnownedPartitions": {"job"},
    "StreamtopicNoLeader": {"job"},
    "StreamtopicErasureWave": {"job"},
    "StreamtopicAlive": {"job"},
}

# Families that are gone with the process that showed them, where Prometheus forgets a process that is gone.
VANISHED = {
    "StreamtopicDown": {name.partition("{")[0] for name in HEALTHY},
    "StreamtopicUnownedPartitions": {"partitions_owned"},
    "StreamtopicNoLeader": {"leader"},
    "StreamtopicAlive": {"alive_timestamp_seconds"},
}


def _named(name, instance="a"):
    """Return a series as Prometheus has it: with its prefix, its job and its instance."""
    bare, _, selector = name.rstrip("}").partition("{")
    labels = ['job="streamtopic"', f'instance="{instance}"', *([selector] if selector else [])]
    return f"{bare if bare == 'up' else PREFIX + bare}{{{','.join(labels)}}}"


def _test(name, minutes, fires, *, fault=None, beside=BESIDE, more=None, silent=None):
    """Return one test of promtool: at this minute these alerts fire, and no other; none at an earlier one.

    fault: series in place of the healthy ones. beside: of the other instance. more: series with their whole names.
    """
    series = {_named(one): values for one, values in (HEALTHY | (fault or {})).items()}
    series |= {_named(one, "b"): values for one, values in beside.items()} | (more or {})
    checks = []
    for at, expected in ((silent, {}), (minutes, fires)) if silent else ((minutes, fires),):
        for alert in ALERTS:
            told = [expected[alert]] if alert in expected else []
            checks.append({"eval_time": f"{at}m", "alertname": alert, "exp_alerts": told})
    shown = [{"series": one, "values": values.format(n=minutes + 10)} for one, values in series.items()]
    return {"name": name, "interval": "1m", "input_series": shown, "alert_rule_test": checks}


@pytest.fixture(scope="module")
def promtool():
    """Prometheus' own tool that checks rules."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("alerts: needs promtool")
    return found


@pytest.mark.parametrize("path", WRITER["WRITTEN"], ids=lambda path: path.name)
def test_what_is_written_from_the_catalogue_is_current(path):
    """`python docs/monitoring.py` has been run since the catalogue or the alerts changed."""
    assert path.read_text(encoding="utf-8") == WRITER["WRITTEN"][path]()


def test_every_family_has_a_panel_and_no_panel_asks_for_another():
    """Nothing is measured that nobody can look at."""
    board = json.loads((ROOT / "deploy" / "dashboard.json").read_text(encoding="utf-8"))
    queries = " ".join(t["expr"] for panel in board["panels"] for t in panel.get("targets", ()))
    asked = {re.sub(r"_bucket$", "", name) for name in re.findall(rf"{PREFIX}\w+", queries)}
    assert asked == set(FAMILIES)
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


def test_alerts_ask_for_what_there_is():
    """A rule over a series or a value of a label that nobody shows would never fire."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == list(ALERTS)
    for rule in rules:
        for name, selector in re.findall(rf"({PREFIX}\w+)(\{{[^}}]*\}})?", rule["expr"]):
            family = FAMILIES[name]
            for label, values in re.findall(r'(\w+)!?=~?"([^"]*)"', selector):
                assert label in family.labels, rule["alert"]
                assert set(values.split("|")) <= set(re.findall(r"`(\w+)`", family.help)), rule["alert"]


def test_every_alert_has_its_runbook():
    """Whoever is woken finds a section under the name of the alert, and no section is of an alert that is gone."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^#### (Streamtopic\w+)$", page, re.MULTILINE) == list(ALERTS)
    for name, text in re.findall(r"^#### (Streamtopic\w+)\n\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL):
        assert len(text.split()) > 20, f"{name} says too little"


@pytest.mark.slow
def test_each_fault_fires_its_own_alert_and_no_other(promtool, tmp_path):
    """Promtool replays what each fault shows beside a healthy service; a healthy service alone is silent."""
    assert FAULTS.keys() == ALERTS.keys()
    tests = [_test("healthy", minutes, {}) for minutes in (30, 240)]
    for name, (series, values) in FAULTS.items():
        tests.append(_test(name, 200, _fires(name, _named(series)), fault={series: values}, silent=59))
    _run(promtool, tmp_path, tests)


@pytest.mark.slow
def test_an_alert_fires_where_the_process_that_would_show_it_is_gone(promtool, tmp_path):
    """A comparison with a series that nobody shows any more is silent, and would be silent about the fault itself."""
    tests = []
    for name, families in VANISHED.items():
        gone, beside = (
            {
                one: f"{values.replace('{n}', '60')} stale" if one.partition("{")[0] in families else values
                for one, values in shown.items()
            }
            for shown in (HEALTHY, BESIDE)
        )
        told = _fires(name, "" if name == "StreamtopicDown" else 'job="streamtopic"')
        tests.append(_test(name, 200, told, fault=gone, beside=beside, silent=59))
    _run(promtool, tmp_path, tests)


@pytest.mark.slow
def test_what_a_process_counted_before_it_was_asked_is_told(promtool, tmp_path):
    """A process that comes back after an absence counts at once; the first that Prometheus sees is then the whole."""
    counters = {family.name for family in CATALOGUE if family.kind == "counter"}
    asked = [name for name, alert in ALERTS.items() if any(one in alert.expression for one in counters)]
    # It asks for more than five within ten minutes: a process that goes on to fail is told.
    asked.remove("StreamtopicOldGauges")
    assert len(asked) == 10
    tests = []
    for name in asked:
        minutes = _window(ALERTS[name].expression)
        series = _named(FAULTS[name][0], "c")
        number = 400 if name == "StreamtopicErasureWave" else 4
        new_process = f"_x10 {number}+0x{minutes + 20}"
        # A process that Prometheus knows for long, and did not reach once.
        known_process = f"{number}+0x9 stale {number}+0x{minutes + 20}"
        told = _fires(name, series)
        after = 10 + minutes
        for at, values, fires in ((11, new_process, told), (after + 1, new_process, {}), (after, known_process, {})):
            tests.append(_test(f"{name} at {at}", at, fires, more={series: values}))
    _run(promtool, tmp_path, tests)


def _window(expression):
    """Return how many minutes an alert looks back at what a counter has grown."""
    number, unit = re.search(r"increase\([^[]*\[(\d+)([mhd])\]", expression).groups()
    return int(number) * {"m": 1, "h": 60, "d": 24 * 60}[unit]


def _fires(name, series):
    """Return what promtool expects of one alert over a series."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
    kept = {label: value for label, value in labels.items() if label in KEPT.get(name, labels)}
    annotations = {"summary": ALERTS[name].summary, "runbook": f"section {name} of docs/operations.md"}
    return {name: {"exp_labels": {"severity": ALERTS[name].severity, **kept}, "exp_annotations": annotations}}


def _run(promtool, folder, tests):
    rules = {"rule_files": [str(ROOT / "deploy" / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(json.dumps(rules))
    done = subprocess.run(
        [promtool, "test", "rules", str(folder / "tests.yaml")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
