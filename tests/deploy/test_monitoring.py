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
INSTANCE = 'job="streamtopic",instance="a"'

# What is shown while nothing is wrong: one process of each role in one job, seen once a minute.
HEALTHY = {
    f"up{{{INSTANCE}}}": "1+0x{n}",
    f"streamtopic_live{{{INSTANCE}}}": "1+0x{n}",
    f"streamtopic_interruptions_total{{{INSTANCE},reason=\"unreachable\"}}": "0+0x{n}",
    f"streamtopic_interruptions_total{{{INSTANCE},reason=\"refused\"}}": "0+0x{n}",
    f"streamtopic_interruptions_total{{{INSTANCE},reason=\"look_failed\"}}": "0+0x{n}",
    f"streamtopic_interruptions_total{{{INSTANCE},reason=\"taken_over\"}}": "0+0x{n}",
    f"streamtopic_interruptions_total{{{INSTANCE},reason=\"set_back\"}}": "0+0x{n}",
    f"streamtopic_records_total{{{INSTANCE},outcome=\"added\"}}": "0+600x{n}",
    f"streamtopic_records_total{{{INSTANCE},outcome=\"deleted\"}}": "0+1x{n}",
    f"streamtopic_records_total{{{INSTANCE},outcome=\"deleted_by_refusal\"}}": "0+0x{n}",
    f"streamtopic_documents{{{INSTANCE}}}": "6000+0x{n}",
    f"streamtopic_forget_pending{{{INSTANCE},at=\"paused\"}}": "0+0x{n}",
    f"streamtopic_records_total{{{INSTANCE},outcome=\"misplaced\"}}": "0+0x{n}",
    f"streamtopic_rejected_total{{{INSTANCE},reason=\"op\"}}": "0+0x{n}",
    f"streamtopic_lag_seconds{{{INSTANCE},partition=\"0\"}}": "1+0x{n}",
    f"streamtopic_lag_records{{{INSTANCE},partition=\"0\",kind=\"hidden\"}}": "0+0x{n}",
    f"streamtopic_last_commit_timestamp_seconds{{{INSTANCE},partition=\"0\"}}": "0+60x{n}",
    f"streamtopic_words_ratio{{{INSTANCE},partition=\"0\"}}": "0.01+0x{n}",
    f"streamtopic_partitions_owned{{{INSTANCE}}}": "8+0x{n}",
    f"streamtopic_partitions{{{INSTANCE}}}": "8+0x{n}",
    f"streamtopic_records_total{{{INSTANCE},outcome=\"missed\"}}": "0+0x{n}",
    f"streamtopic_leader{{{INSTANCE}}}": "1+0x{n}",
    "streamtopic_leader{job=\"streamtopic\",instance=\"b\"}": "0+0x{n}",
    f"streamtopic_self_checks_total{{{INSTANCE},result=\"failed\"}}": "0+0x{n}",
    f"streamtopic_budget_used_ratio{{{INSTANCE},of=\"capacity\"}}": "0.8+0x{n}",
    f"streamtopic_budget_used_ratio{{{INSTANCE},of=\"epsilon\"}}": "0.9+0x{n}",
    f"streamtopic_forget_limit_seconds{{{INSTANCE}}}": "3600+0x{n}",
    f"streamtopic_forget_oldest_timestamp_seconds{{{INSTANCE},at=\"counted\"}}": "-3000+60x{n}",
    f"streamtopic_forget_oldest_timestamp_seconds{{{INSTANCE},at=\"log\"}}": "-90000+60x{n}",
    f"streamtopic_forget_oldest_timestamp_seconds{{{INSTANCE},at=\"backups\"}}": "-900000+60x{n}",
    f"streamtopic_outbox_pending{{{INSTANCE}}}": "0+0x{n}",
    f"streamtopic_release_timestamp_seconds{{{INSTANCE}}}": "-7200+60x{n}",
    f"streamtopic_alive_timestamp_seconds{{{INSTANCE}}}": "-300+60x{n}",
    "streamtopic_alive_timestamp_seconds{job=\"streamtopic\",instance=\"b\"}": "-9000+0x{n}",
    f"streamtopic_ledger_witnesses{{{INSTANCE}}}": "2+0x{n}",
}  # fmt: skip

# What each fault shows in place of that, from the sixtieth minute on. `_` is a series that is not there.
FAULTS = {
    "StreamtopicDown": {"up": "1+0x60 0+0x{n}"},
    "StreamtopicStalled": {"streamtopic_live": "1+0x60 0+0x{n}"},
    "StreamtopicUnreachable": {'streamtopic_interruptions_total{reason="unreachable"}': "0+0x60 1+1x{n}"},
    "StreamtopicRefused": {'streamtopic_interruptions_total{reason="refused"}': "0+0x60 1+1x{n}"},
    "StreamtopicBusy": {'streamtopic_busy{what="learning"}': "_x60 1+0x{n}"},
    "StreamtopicOldGauges": {'streamtopic_interruptions_total{reason="look_failed"}': "0+0x60 5+5x{n}"},
    "StreamtopicLag": {"streamtopic_lag_seconds": "1+0x60 60+60x{n}"},
    "StreamtopicUnownedPartitions": {"streamtopic_partitions_owned": "8+0x60 5+0x{n}"},
    "StreamtopicHiddenRecords": {'streamtopic_lag_records{kind="hidden"}': "0+0x60 3+0x{n}"},
    "StreamtopicTakenOver": {'streamtopic_interruptions_total{reason="taken_over"}': "0+0x60 1+1x{n}"},
    "StreamtopicSetBack": {'streamtopic_interruptions_total{reason="set_back"}': "0+0x60 1+1x{n}"},
    "StreamtopicMissedDeletes": {'streamtopic_records_total{outcome="missed"}': "0+0x60 7+7x{n}"},
    "StreamtopicRejectedRecords": {"streamtopic_rejected_total": "0+0x60 1+1x{n}"},
    "StreamtopicRefusedChange": {'streamtopic_records_total{outcome="deleted_by_refusal"}': "0+0x60 1+1x{n}"},
    "StreamtopicErasureWave": {'streamtopic_records_total{outcome="deleted"}': "0+1x60 60+10x{n}"},
    "StreamtopicMisplacedRecords": {'streamtopic_records_total{outcome="misplaced"}': "0+0x60 1+1x{n}"},
    "StreamtopicWordIds": {"streamtopic_words_ratio": "0.5+0x60 0.9+0x{n}"},
    "StreamtopicNoLeader": {'streamtopic_leader{instance="a"}': "1+0x60 0+0x{n}"},
    "StreamtopicNoModel": {'streamtopic_release_blocked{reason="rank"}': "_x60 1+0x{n}"},
    "StreamtopicSelfCheck": {"streamtopic_self_checks_total": "0+0x60 1+1x{n}"},
    "StreamtopicCapacity": {'streamtopic_budget_used_ratio{of="capacity"}': "0.9+0x60 1.2+0x{n}"},
    "StreamtopicEpsilon": {'streamtopic_budget_used_ratio{of="epsilon"}': "0.9+0x60 1.1+0x{n}"},
    "StreamtopicForgettingLate": {'streamtopic_forget_oldest_timestamp_seconds{at="counted"}': "3600+0x{n}"},
    "StreamtopicPausedRequests": {'streamtopic_forget_pending{at="paused"}': "0+0x60 3+0x{n}"},
    "StreamtopicResidue": {'streamtopic_forget_oldest_timestamp_seconds{at="log"}': "-300000+0x{n}"},
    "StreamtopicAttest": {
        'streamtopic_forget_oldest_timestamp_seconds{at="backups"}': "-2600000+0x{n}",
    },
    "StreamtopicOutbox": {"streamtopic_outbox_pending": "0+0x60 4+0x{n}"},
    "StreamtopicAlive": {"streamtopic_alive_timestamp_seconds": "3600+0x{n}"},
    "StreamtopicWitnesses": {"streamtopic_ledger_witnesses": "2+0x60 0+0x{n}"},
    "StreamtopicClocks": {"streamtopic_release_timestamp_seconds": "0+60x60 7320+60x{n}"},
}

# Series that are gone with the process that showed them, where Prometheus forgets a process that is gone.
VANISHED = {
    "StreamtopicDown": tuple({name.partition("{")[0] for name in HEALTHY}),
    "StreamtopicUnownedPartitions": ("streamtopic_partitions_owned",),
    "StreamtopicNoLeader": ("streamtopic_leader",),
    "StreamtopicAlive": ("streamtopic_alive_timestamp_seconds",),
}


def _series(replaced, minutes):
    """Return the healthy series with those of a fault in their place."""
    found = dict(HEALTHY)
    for name, values in replaced.items():
        bare, _, selector = name.partition("{")
        wanted = set(re.findall(r'\w+="[^"]*"', selector))
        same = [
            one for one in found if one.partition("{")[0] == bare and wanted <= set(re.findall(r'\w+="[^"]*"', one))
        ]
        for one in same:
            found[one] = values
        if not same:
            found[f"{bare}{{{INSTANCE},{selector}" if selector else f"{bare}{{{INSTANCE}}}"] = values
    return [{"series": name, "values": values.format(n=minutes + 10)} for name, values in found.items()]


def _test(name, replaced, minutes, fires, silent=None):
    """Return one test of promtool: at this minute these alerts fire, and no other; none at an earlier one."""
    checks = []
    for at, expected in ((silent, {}), (minutes, fires)) if silent else ((minutes, fires),):
        for alert in ALERTS.values():
            check = {"eval_time": f"{at}m", "alertname": alert.name, "exp_alerts": []}
            if alert.name in expected:
                check["exp_alerts"] = [expected[alert.name]]
            checks.append(check)
    return {"name": name, "interval": "1m", "input_series": _series(replaced, minutes), "alert_rule_test": checks}


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
    tests = [_test("healthy", {}, minutes, {}) for minutes in (30, 240)]
    for name, replaced in FAULTS.items():
        fires = _fires(name, _labels(name, replaced))
        tests.append(_test(name, replaced, 200, fires, silent=59))
    _run(promtool, tmp_path, tests)


@pytest.mark.slow
def test_an_alert_fires_where_the_process_that_would_show_it_is_gone(promtool, tmp_path):
    """A comparison with a series that nobody shows any more is silent, and would be silent about the fault itself."""
    assert VANISHED.keys() <= ALERTS.keys()
    tests = []
    for name, families in VANISHED.items():
        replaced = {
            series: f"{values.replace('{n}', '60')} stale"
            for series, values in HEALTHY.items()
            if series.partition("{")[0] in families
        }
        labels = {} if name == "StreamtopicDown" else {"job": "streamtopic"}
        tests.append(_test(name, replaced, 200, _fires(name, labels), silent=59))
    _run(promtool, tmp_path, tests)


@pytest.mark.slow
def test_what_a_process_counted_before_it_was_asked_is_told(promtool, tmp_path):
    """A process that comes back after an absence counts at once; the first that Prometheus sees is then the whole."""
    counters = {family.name for family in CATALOGUE if family.kind == "counter"}
    # It asks for more than five within ten minutes: a process that goes on to fail is told.
    asked = [name for name, alert in ALERTS.items() if any(one in alert.expression for one in counters)]
    asked.remove("StreamtopicOldGauges")
    assert len(asked) == 10
    tests = []
    for name in asked:
        minutes = _window(ALERTS[name].expression)
        (fault,) = FAULTS[name]
        shown = next(
            one
            for one in HEALTHY
            if one.startswith(fault.partition("{")[0]) and fault.partition("{")[2].rstrip("}") in one
        )
        series = shown.replace('instance="a"', 'instance="c"')
        labels = {} if name == "StreamtopicErasureWave" else dict(re.findall(r'(\w+)="([^"]*)"', series))
        number = 400 if name == "StreamtopicErasureWave" else 4
        new_process = f"_x10 {number}+0x{minutes + 20}"
        # A process that Prometheus knows for long, and did not reach once.
        known_process = f"{number}+0x9 stale {number}+0x{minutes + 20}"
        told = _fires(name, labels | {"job": "streamtopic"})
        after = 10 + minutes
        for at, values, fires in ((11, new_process, told), (after + 1, new_process, {}), (after, known_process, {})):
            test = _test(f"{name} at {at}", {}, at, fires)
            test["input_series"].append({"series": series, "values": values})
            tests.append(test)
    _run(promtool, tmp_path, tests)


def _window(expression):
    """Return how many minutes an alert looks back at what a counter has grown."""
    number, unit = re.search(r"increase\([^[]*\[(\d+)([mhd])\]", expression).groups()
    return int(number) * {"m": 1, "h": 60, "d": 24 * 60}[unit]


def _fires(name, labels):
    """Return what promtool expects of one alert with these labels."""
    annotations = {"summary": ALERTS[name].summary, "runbook": f"section {name} of docs/operations.md"}
    return {name: {"exp_labels": {"severity": ALERTS[name].severity, **labels}, "exp_annotations": annotations}}


def _run(promtool, folder, tests):
    rules = {"rule_files": [str(ROOT / "deploy" / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(json.dumps(rules))
    done = subprocess.run(
        [promtool, "test", "rules", str(folder / "tests.yaml")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _labels(name, replaced):
    """Return the labels that an alert has: those of its series, or of what it sums over."""
    if name in {"StreamtopicUnownedPartitions", "StreamtopicNoLeader", "StreamtopicErasureWave", "StreamtopicAlive"}:
        return {"job": "streamtopic"}
    (series,) = replaced
    if name == "StreamtopicForgettingLate":
        # Compared with a limit that has no such label.
        return {"job": "streamtopic", "instance": "a"}
    bare, _, selector = series.partition("{")
    wanted = set(re.findall(r'\w+="[^"]*"', selector))
    found = [one for one in HEALTHY if one.partition("{")[0] == bare and wanted <= set(re.findall(r'\w+="[^"]*"', one))]
    return dict(re.findall(r'(\w+)="([^"]*)"', (found or [f"{{{INSTANCE},{selector}"])[0].partition("{")[2]))
