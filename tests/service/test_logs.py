"""Logs: one line an event, each with a documented name, and never an id, a word or a secret."""

import ast
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from watched_service import MARK, RARE, documents

import streamtopic
from embedded_service import made_on_kafka
from streamtopic.client import DocumentProducer, Receipts
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.logs import UNNAMED, JsonLines
from streamtopic.streams import KafkaOptions, Message, open_log
from waiting import PATIENCE, until

PACKAGE = Path(streamtopic.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text(encoding="utf-8")
EVENTS = dict(re.findall(r"^- `(\w+)`(\\\*)?:", PAGE, re.MULTILINE))
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def _sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        if "bench" not in path.relative_to(PACKAGE).parts:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def _names(node):
    """Return the events that dictionaries within a node name."""
    found = []
    for one in ast.walk(node):
        if isinstance(one, ast.Dict):
            keys = [getattr(key, "value", None) for key in one.keys]
            pairs = zip(keys, one.values, strict=True)
            found += [value.value for key, value in pairs if key == "event" and isinstance(value, ast.Constant)]
    return found


def _unnamed_calls(tree):
    """Return the lines of calls to a logger that name no event, in themselves or just before."""
    found = []
    for parent in ast.walk(tree):
        for body in (getattr(parent, "body", None), getattr(parent, "orelse", None), getattr(parent, "handlers", None)):
            for before, statement in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
                call = getattr(statement, "value", None)
                function = getattr(call, "func", None)
                if getattr(getattr(function, "value", None), "id", "") != "logger" or function.attr not in LEVELS:
                    continue
                extra = {keyword.arg: keyword.value for keyword in call.keywords}.get("extra")
                named = _names(extra) if isinstance(extra, ast.Dict) else _names(before) if extra is not None else []
                if len(named) != 1 or named[0] not in EVENTS:
                    found.append(statement.lineno)
    return found


def test_every_call_names_a_listed_event():
    """Nothing is logged or told under a name that the page on logs does not have, or without one."""
    missing = {str(path): lines for path, tree in _sources() if (lines := _unnamed_calls(tree))}
    assert not missing
    assert {name for _, tree in _sources() for name in _names(tree)} | {"serve_failed"} == EVENTS.keys()


def _line(level, text, *args, error=None, **extra):
    record = logging.LogRecord("streamtopic.x", level, "f.py", 1, text, args, error)
    vars(record).update(extra)
    (line,) = JsonLines({"role": "ingest", "model": "news"}).format(record).splitlines()
    return json.loads(line)


def test_a_line_has_event_numbers_and_what_the_process_is_known_by():
    """A script finds name, time, role, model and numbers; the text is there for people."""
    line = _line(logging.INFO, "took ownership of partition %d", 3, event="partition_taken", partition=3, created=0.0)
    assert line == {
        "event": "partition_taken",
        "level": "info",
        "time": "1970-01-01T00:00:00.000+00:00",
        "role": "ingest",
        "model": "news",
        "partition": 3,
        "message": "took ownership of partition 3",
    }


def test_what_may_quote_is_left_out():
    """Texts that may name a word, text fields, texts of other packages and tracebacks are not in a line."""
    quoting = [name for name, star in EVENTS.items() if star]
    assert "release_refused" in quoting
    shown = [
        _line(logging.WARNING, f"{RARE} one\ntwo"),
        _line(logging.ERROR, RARE, name="other.package", event="counted", partition=1),
        *(_line(logging.WARNING, "%s", RARE, event=one, word=RARE) for one in quoting),
    ]
    fault = InvalidEvent("op", RARE)
    shown.append(_line(logging.ERROR, "a fault", error=(InvalidEvent, fault, None), event="group_left"))
    assert RARE not in json.dumps(shown)
    assert [line["event"] for line in shown[:2]] == [UNNAMED, UNNAMED]
    assert shown[-1]["error"] == "InvalidEvent"


@pytest.mark.slow
def test_a_campaign_logs_no_id_no_word_and_no_secret(tmp_path, kafka_server, redis_server):
    """Marked documents, poison, deletes and forged releases go through the real service; its lines show none of it."""
    model = f"logs-{tmp_path.name[-8:].strip('_').replace('_', '-')}"
    chosen = "partitions = 2\ntopics = 2\nmin_df = 1\nmax_df = 1.0\nmax_forget_lag = 0.0"
    config = made_on_kafka(tmp_path, kafka_server, redis_server, model, chosen)
    output = tmp_path / "output"
    with output.open("w") as file:
        command = [sys.executable, "-W", "ignore", "-m", "streamtopic", "run", "--config", str(config)]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        log, _ = open_log(KafkaOptions(servers=kafka_server.servers))
        # A live document, and a change of it that cannot be taken; then what no service would have written.
        poison = Message(f"{MARK}-7".encode(), f'{{"op": "{RARE}"}}'.encode())
        forged = [Message(f"9/{MARK}".encode(), RARE.encode(), ((MARK, RARE.encode()),), 0) for _ in range(3)]
        with DocumentProducer(kafka_server.servers, model=model) as producer:
            producer.add_many((one.id, one.text) for one in documents())
            _until(output, "staged")
            log.append_many(f"{model}.documents", [poison])
            log.append_many(f"{model}.releases", forged)
            log.append_many(f"{model}.ledger", forged)
            request = producer.delete(f"{MARK}-3")
            public = tmp_path / "keys" / "signing.pub"
            with Receipts(kafka_server.servers, model=model, public_key=public) as receipts:
                until(lambda: receipts.find(request), output.read_text)
        log.close()
        _until(output, "changes_refused")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0
    shown = output.read_text()
    lines = [json.loads(line) for line in shown.splitlines()]
    assert {line["event"] for line in lines} <= set(EVENTS) | {UNNAMED}
    assert {"counted", "staged", "published", "partition_taken", "changes_refused"} <= {line["event"] for line in lines}
    assert {(line["role"], line["model"]) for line in lines} == {("run", model)}
    secrets = [path.read_bytes().hex() for path in (tmp_path / "keys").iterdir()]
    for told in (MARK, RARE, "apple", "copper", request, *secrets):
        assert told not in shown


def _until(output, event):
    until(lambda: f'"event": "{event}"' in output.read_text(), output.read_text)
