"""What the server's pages, probes and metrics show."""

import contextlib
import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from pages_client import HOSTILE, SECRET_ID, SECRET_TEXT, TOKEN, served

from embedded_service import Service
from streamtopic.errors import SettingsError, StateMismatch
from streamtopic.local import LocalRedis
from streamtopic.pages import web_pages
from streamtopic.pages.service_view import ServiceView
from streamtopic.pages.web_pages import PAGES
from streamtopic.service.inspection.doctor import concerns
from streamtopic.settings import Settings
from streamtopic.signed import Alive
from strict_html import Strict

ALL = [*PAGES, "/versions/2", "/nothing"]


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_whole_and_readable_without_eyes(ask, path):
    """Strict HTML with landmarks, headings that skip no level, tables with captions and scopes, ids that lead."""
    reply = ask(path)
    assert reply.status == (404 if path == "/nothing" else 200), reply.text
    page = Strict(reply.text.removeprefix("<!doctype html>"))
    assert page.values("lang") == ["en"]
    assert [page.tags[name] for name in ("h1", "main", "footer")] == [1, 1, 1]
    assert page.values("aria-current") == (["page"] if path != "/nothing" else [])
    levels = [int(tag[1]) for tag in page.shape if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.tags["th"] == len(page.values("scope"))
    named = {word for value in page.values("aria-labelledby") for word in value.split()}
    identifiers = page.values("id")
    assert named <= set(identifiers)
    assert len(set(identifiers)) == len(identifiers)
    links = page.values("href")
    assert all(link.startswith(("/", "#", "data:,")) for link in links)
    assert {link[1:] for link in links if link.startswith("#")} <= set(identifiers)
    assert not page.tags.keys() & {"script", "form", "input", "img"}
    assert TOKEN not in reply.text


def test_the_overview_says_what_to_act_on(ask):
    """A deletion over its limit is urgent, a part that does not run is, and the figures are those of the status."""
    text = ask("/").text
    assert "Act now" in text
    assert "A deletion has waited" in text
    assert "No scheduler leads" in text
    assert "Nobody counts the partitions" in text
    assert "The brake has paused requests for deletions: " in text
    assert re.search(r"documents</dt>\s*<dd><span class=\"value\">58</span>", text)
    assert re.search(r"newest version</dt>\s*<dd><span class=\"value\">2</span>", text)
    assert re.search(r"ids and subjects suppressed</dt>\s*<dd><span class=\"value\">3</span>", text)
    assert re.search(r"last word on the newest version</dt><dd>\s*20\d\d-[^<]*: version 2</dd>", text)


def _ledger(facts, age=1.0, interval=600_000, **changes):
    """Return a whole ledger whose last word is so many seconds old; interval: milliseconds to the promised next one."""
    alive = Alive(int(1000 * (facts.now - age)), interval, 2)
    return SimpleNamespace(**{"size": 9, "missing": [], "strays": 0, "checkpoint": "", "alive": alive, **changes})


@pytest.fixture
def well(prepared):
    """The facts of a service at which nothing is wrong."""
    with Service(prepared.settings) as service:
        facts = service.facts(served=True)
        facts.leader, facts.counting, facts.ledger = "somebody", True, _ledger(facts)
        facts.hidden = facts.departures = facts.requests = ()
        facts.waiting = replace(facts.waiting, oldest=())
        yield facts


def _urgent(facts):
    return [one.passed is False for one in concerns(facts)]


@pytest.mark.parametrize(
    ("ledger", "urgent"),
    [
        (StateMismatch("it was cut"), True),
        (SettingsError("it may not be read"), True),
        ({"missing": ["0 to 2"]}, True),
        ({"age": 4200.0}, True),
        ({"age": 4200.0, "interval": 0}, True),
        ({"alive": None}, True),
        ({"age": 5.0, "interval": 0}, None),
        ({"age": 605.0}, None),
    ],
)
def test_what_is_wrong_with_the_ledger_is_acted_on(well, ledger, urgent):
    """Also if the process that ended promised no next entry: another one should have written it."""
    assert _urgent(well) == []
    well.ledger = _ledger(well, **ledger) if isinstance(ledger, dict) else ledger
    assert _urgent(well) == ([] if urgent is None else [urgent])


def test_a_ledger_that_nobody_here_has_a_key_for_is_a_warning(well):
    """All else can be looked at without."""
    well.ledger = SettingsError("no key")
    well.settings = well.settings.model_copy(update={"dir": None})
    assert _urgent(well) == [False]


def test_deletions_have_their_age_and_requests_their_state(ask):
    """Each is named by its place in the log or its request id; nothing says what a request is about."""
    text = ask("/deletions").text
    assert "over the limit" in text
    assert re.search(r'<th scope="row">0/\d+</th>', text)
    for stage in ("state", "log", "file", "backups"):
        assert f'<th scope="row">{stage}</th>' in text
    assert "documents: 2</td>" in text
    assert '<span class="bad">paused</span>' in text
    assert "cancelled" in text
    assert not re.search(r"\bd[2-6]\b", text)


def test_refused_records_are_shown_by_reason_alone(ask):
    """Neither id nor text of a refused record is on the page; what a stranger wrote as a reason is text."""
    text = ask("/rejected").text
    assert '<bdi>key-missing</bdi></th><td class="n">1</td>' in text
    assert SECRET_ID not in text
    assert SECRET_TEXT not in text
    assert HOSTILE not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "\\u{202e}" in text


def test_a_withdrawn_version_has_no_page(ask):
    """Its words may be those of a forgotten document; the list says that it was withdrawn, and others stay."""
    reply = ask("/versions/1")
    assert (reply.status, "it was withdrawn" in reply.text) == (404, True)
    assert ask("/versions/2").status == 200


def test_answers_serve_all_who_ask_for_a_short_time(prepared):
    """One read serves those who ask within two seconds, or longer where a folder is opened for it, then another one."""
    now, reads = [0.0], []
    view = ServiceView(prepared.settings, ticks=lambda: now[0])
    with contextlib.closing(view):
        for now[0] in (0.0, 1.9, 60.0):
            view.read("name", lambda _: reads.append(now[0]))
    assert reads == [0.0, 60.0]


def test_probes_and_metrics_are_answered(ask):
    """The gauges of the model are those of the status; no id is in a label."""
    assert [ask(path).text for path in ("/livez", "/readyz")] == ["ok\n", "ok\n"]
    text = ask("/metrics").text
    assert "streamtopic_documents 58.0" in text
    assert "streamtopic_build_info{python=" in text
    assert 'role="serve"' in text


def test_a_server_that_is_away_is_a_page_with_the_remedy(tmp_path):
    """No trace and no password; the probe says that nothing can be read, and that the process lives."""
    with LocalRedis() as redis:
        url = redis.url
    with served(Settings(dir=tmp_path, redis_url=url)) as ask:
        reply = ask("/")
        assert reply.status == 503
        assert "A server cannot be reached." in reply.text
        assert "Traceback" not in reply.text
        assert [ask(path).status for path in ("/livez", "/readyz", "/metrics")] == [200, 503, 503]


def test_an_unexpected_error_is_a_page(prepared, monkeypatch):
    """The visitor reads its kind, and no word of what was in hand."""

    def fail(_service):
        raise KeyError(SECRET_ID)

    monkeypatch.setattr(web_pages, "read_service", fail)
    with served(prepared.settings) as ask:
        reply = ask("/")
    assert reply.status == 500
    assert "Unexpected KeyError" in reply.text
    assert SECRET_ID not in reply.text
