"""Requests for deletions on the dashboard: what is shown, and who may approve or cancel them."""

import itertools
import logging
import re
import time

import pytest
from dashboard_client import HOSTILE, TOKEN, documents, served

from streamtopic.dashboard.gate import Access, Visit
from streamtopic.errors import SettingsError
from streamtopic.service.app import Service
from streamtopic.service.requests.request_door import RequestDoor
from streamtopic.settings import Settings
from streamtopic.state import Connection
from streamtopic.state.deletion_requests import RequestState

_numbers = itertools.count()
# Whoever reads the page must not find these on it.
DOCUMENT, SUBJECT = "d3-of-a-patient", "somebody@example.com"


@pytest.fixture(scope="module")
def braked(tmp_path_factory, redis_server):
    """An instance with a brake, and 60 documents of two topics; one document and one subject have telling names."""
    folder = tmp_path_factory.mktemp("braked") / "instance"
    options = {"topics": 2, "min_df": 1, "max_df": 1.0, "hold_seconds": 1000.0, "brake_share": 0.02, "partitions": 1}
    settings = Settings(dir=folder, model=f"asked{next(_numbers)}", redis_url=redis_server.url, **options)
    with Service(settings) as service:
        service.add(documents())
        service.settle()
    with served(settings, Access(TOKEN, reading=False)) as asking:
        yield settings, asking


@pytest.fixture
def asked(braked):
    """Ask for deletions: one paused, for two documents, and one that was approved; how the dashboard is asked."""
    settings, asking = braked
    # A folder belongs to one process at a time, so the service is not open while the dashboard is asked.
    with Connection(settings.redis_url.get_secret_value()) as connection:
        door = RequestDoor(settings, connection, time.time)
        paused = door.receive([DOCUMENT, "d4"]).request.id
        with Service(settings) as service:
            service.move_requests()
        person = door.receive([], subjects=[SUBJECT]).request.id
        door.approve(person)
        yield asking, door, paused, person
        for request in door.requests.open():
            door.cancel(request.id)


def decide(ask, cookie, name=None):
    """Return the page that asks before a decision, as its button opens it."""
    fields = {"form": ask("/requests", Cookie=cookie).form}
    return ask("/requests/decide", fields if name is None else fields | {"request": name}, Cookie=cookie)


def mark(reply):
    """The fields that a decision is sent with."""
    return {"form": reply.form, "mark": re.search(r'name="mark" value="([^"]+)"', reply.text)[1]}


def state(door, name):
    """Where a request stands."""
    return door.requests.get(name).state


def test_requests_are_shown_without_what_they_name(asked):
    """Each has its state, number and times; no id of a document and no subject is on the page."""
    ask, _, paused, person = asked
    text = ask("/requests").text
    rows = re.findall(r"<tr><th scope=\"row\"><code>(.*?)</code>.*?</tr>", text, re.DOTALL)
    assert rows.index(paused) < rows.index(person)
    assert f"<code>{paused}</code></th><td>2 documents" in text
    assert '<span class="bad">paused by the brake</span>' in text
    assert re.search(rf"<code>{person}</code></th><td>1 person\s*</td><td>held until 20\d\d-[^<]*, approved", text)
    assert DOCUMENT not in text
    assert SUBJECT not in text


def test_paused_requests_are_urgent_on_the_overview(asked):
    """An operator who looks at the first page alone learns that somebody must decide."""
    ask, *_ = asked
    text = ask("/").text
    assert "The brake has paused requests for deletions: 1." in text
    assert "Act now" in text


def test_without_a_visit_there_is_no_button(asked):
    """Whoever may only read sees no form, and what a form would do is refused."""
    ask, door, paused, _ = asked
    assert "/requests/decide" not in ask("/requests").text
    for path in ("decide", "approve", "cancel"):
        reply = ask(f"/requests/{path}", {"request": paused, "form": "invented", "mark": "invented"})
        assert (reply.status, "Log in first." in reply.text) == (403, True)
        assert ask(f"/requests/{path}").status == 405
    assert state(door, paused) is RequestState.PAUSED


def test_a_request_is_approved_after_a_second_look(asked):
    """The first button only shows the request; the second does what `deletions approve` does, and says so once."""
    ask, door, paused, _ = asked
    cookie = ask.login()
    page = decide(ask, cookie, paused)
    assert (page.status, state(door, paused)) == (200, RequestState.PAUSED)
    assert paused in page.text
    assert DOCUMENT not in page.text
    reply = ask("/requests/approve", mark(page), Cookie=cookie)
    assert (reply.status, reply.headers["location"]) == (303, "/requests")
    approved = door.requests.get(paused)
    assert (approved.state, approved.approved) == (RequestState.WAITING, True)
    said = ask("/requests", Cookie=cookie).text
    assert "Approved" in said
    assert "documents that they are known to be about</dt><dd>2</dd>" in said
    assert 'id="said-title"' not in ask("/requests", Cookie=cookie).text


def test_a_request_is_cancelled(asked):
    """It ends, and is among those that have ended."""
    ask, door, _, person = asked
    cookie = ask.login()
    ask("/requests/cancel", mark(decide(ask, cookie, person)), Cookie=cookie)
    assert state(door, person) is RequestState.CANCELLED
    text = ask("/requests", Cookie=cookie).text
    assert f"<code>{person}</code>" in text.partition('id="ended-requests"')[2]


def test_all_paused_requests_are_those_that_were_shown(asked, braked):
    """A request that the brake pauses after the page was opened is not approved with it."""
    ask, door, paused, _ = asked
    cookie = ask.login()
    page = decide(ask, cookie)
    assert "1 paused request" in page.text
    assert "/requests/cancel" not in page.text
    later = door.receive(["d8", "d9"]).request.id
    with Service(braked[0]) as service:
        service.move_requests()
    assert state(door, later) is RequestState.PAUSED
    ask("/requests/approve", mark(page), Cookie=cookie)
    assert (state(door, paused), state(door, later)) == (RequestState.WAITING, RequestState.PAUSED)


def test_a_second_page_takes_the_first_one_s_place(asked):
    """A decision is about the request that its own page showed: with two pages open, the older one does nothing."""
    ask, door, paused, person = asked
    cookie = ask.login()
    old, new = decide(ask, cookie, paused), decide(ask, cookie, person)
    reply = ask("/requests/cancel", mark(old), Cookie=cookie)
    assert (reply.status, "Nothing was decided." in reply.text) == (409, True)
    other = ask.login()
    stolen = mark(new) | {"form": ask("/requests", Cookie=other).form}
    assert ask("/requests/cancel", stolen, Cookie=other).status == 409
    assert state(door, paused) is RequestState.PAUSED
    assert state(door, person) is RequestState.WAITING


def test_what_has_moved_on_is_counted_and_left_alone(asked):
    """Somebody else was quicker: nothing fails, and the outcome says that nothing was done."""
    ask, door, paused, _ = asked
    cookie = ask.login()
    page = decide(ask, cookie, paused)
    door.cancel(paused)
    assert ask("/requests/approve", mark(page), Cookie=cookie).status == 303
    text = ask("/requests", Cookie=cookie).text
    assert "<dt>requests</dt><dd>0</dd>" in text
    assert "<dt>requests that had moved on before</dt><dd>1</dd>" in text
    assert state(door, paused) is RequestState.CANCELLED


@pytest.mark.parametrize("name", [HOSTILE, "nobody", "x" * 500, "../meta"])
def test_a_request_that_is_not_there_is_not_repeated(asked, name):
    """What was typed in the place of an id comes back nowhere."""
    ask, *_ = asked
    reply = decide(ask, ask.login(), name)
    assert (reply.status, "This cannot be shown." in reply.text) == (404, True)
    assert name not in reply.text


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example"])
def test_another_site_decides_nothing(asked, origin):
    """A form that this server's own page did not send is refused, whatever cookie comes with it."""
    ask, door, paused, _ = asked
    cookie = ask.login()
    fields = mark(decide(ask, cookie, paused))
    for path in ("approve", "cancel"):
        assert ask(f"/requests/{path}", fields, Cookie=cookie, Origin=origin).status == 403
    assert state(door, paused) is RequestState.PAUSED


def test_a_decision_is_an_event_without_ids(asked, caplog):
    """The log says that somebody decided about how many, and neither who nor about what."""
    caplog.set_level(logging.DEBUG)
    ask, _, paused, person = asked
    cookie = ask.login()
    ask("/requests/approve", mark(decide(ask, cookie, paused)), Cookie=cookie)
    ask("/requests/cancel", mark(decide(ask, cookie, person)), Cookie=cookie)
    events = {getattr(record, "event", None): record for record in caplog.records}
    assert (events["dashboard_approved"].requests, events["dashboard_approved"].documents) == (1, 2)
    assert events["dashboard_cancelled"].requests == 1
    for record in caplog.records:
        said = record.getMessage() + repr(vars(record))
        assert not [secret for secret in (paused, person, DOCUMENT, SUBJECT, TOKEN) if secret in said]


def test_a_dashboard_without_the_right_shows_the_rest(braked, monkeypatch):
    """A user of Redis that may not read requests still sees the overview; the page itself says what it lacks."""

    def refuse(_door):
        raise SettingsError("Redis refuses this user")

    monkeypatch.setattr(RequestDoor, "paused", refuse)
    settings, _ = braked
    with served(settings, Access(TOKEN, reading=False)) as ask:
        text = ask("/").text
    assert "documents" in text
    assert "The brake has paused" not in text


def test_an_outcome_is_for_the_page_of_its_act():
    """The outcome of a decision is not shown as that of a retry."""
    visit = Visit(0.0, "form")
    visit.said = "/requests", {"requests": 1}
    assert visit.take_said("/rejected") is None
    assert visit.take_said("/requests") == {"requests": 1}
    assert visit.take_said("/requests") is None
