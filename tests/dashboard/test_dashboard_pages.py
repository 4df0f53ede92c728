"""What the pages of the dashboard show."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from dashboard_client import HOSTILE, SECRET_ID, SECRET_TEXT, TOKEN, served

import streamtopic
from streamtopic.dashboard import attention, page_facts
from streamtopic.dashboard.gate import Access
from streamtopic.dashboard.service_view import ServiceView
from streamtopic.dashboard.web_pages import PAGES
from streamtopic.local import LocalRedis
from streamtopic.settings import Settings
from strict_html import Strict

# Pages of a version's pictures are those of reports and tested there.
ALL = [*PAGES, "/login"]


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_whole_and_named(ask, path):
    """Each page is strict HTML with a language, one first heading, landmarks and its place among the pages."""
    reply = ask(path)
    assert reply.status == 200, reply.text
    page = Strict(reply.text.removeprefix("<!doctype html>"))
    assert page.values("lang") == ["en"]
    assert [page.tags[name] for name in ("h1", "nav", "main", "footer")] == [1, 1, 1, 1]
    assert page.values("aria-current") == (["page"] if path in PAGES else [])
    identifiers = page.values("id")
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_readable_without_eyes(ask, path):
    """Headings skip no level, tables have captions and scopes, fields have labels, references lead somewhere."""
    page = Strict(ask(path).text.removeprefix("<!doctype html>"))
    levels = [int(tag[1]) for tag in page.shape if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.tags["caption"] == page.tags["table"]
    assert len([1 for tag, name, _ in page.attributes if (tag, name) == ("th", "scope")]) == page.tags["th"]
    fields = [value for tag, name, value in page.attributes if tag in {"input", "select"} and name == "id"]
    assert set(fields) == set(page.values("for"))
    named = {word for value in page.values("aria-labelledby") for word in value.split()}
    assert named <= set(page.values("id"))


@pytest.mark.parametrize("path", ALL)
def test_a_page_loads_its_own_files_alone(ask, path):
    """No page names another server, carries a script or style of its own, or an address with a value of others."""
    page = Strict(ask(path).text.removeprefix("<!doctype html>"))
    assert all(value.startswith(("/", "#")) for name in ("href", "src", "action") for value in page.values(name))
    assert not [1 for tag, name, _ in page.attributes if name == "style" or name.startswith("on")]
    assert page.tags["style"] == 0
    assert all(tag != "script" for tag, text in page.text if text.strip())
    for file in [value for name in ("src", "href") for value in page.values(name) if "." in value]:
        assert ask(file).status == 200


def test_the_overview_says_what_to_act_on(ask):
    """A deletion over its limit is urgent, and the figures are those of the status."""
    text = ask("/").text
    assert "Act now" in text
    assert "A deletion has waited" in text
    assert re.search(r"documents</dt>\s*<dd><span class=\"value\">58</span>", text)
    assert re.search(r"newest version</dt>\s*<dd><span class=\"value\">2</span>", text)


def test_the_overview_counts_the_suppressed(ask):
    """Ids and subjects together, once and not once for each partition; nobody is named."""
    text = ask("/").text
    assert re.search(r"ids and subjects suppressed</dt>\s*<dd><span class=\"value\">3</span>", text)
    assert "nobody-1" not in text


def test_deletions_that_wait_have_their_age_against_the_limit(ask):
    """Each is named by its place in the log; the one that waits too long is marked in words."""
    text = ask("/deletions").text
    assert "over the limit" in text
    assert re.search(r'<th scope="row">0/\d+</th>', text)
    for stage in ("state", "log", "file", "backups"):
        assert f'<th scope="row">{stage}</th>' in text


def test_a_request_has_its_ledger(ask, prepared):
    """By request id alone, by its salt, by the receipt's id: the receipt, and each trace with a time or `not yet`."""
    for fields in ({"request": prepared.done}, {"request": prepared.done, "salt": prepared.done.salt}):
        text = ask("/deletions", fields).text
        assert "first version without it" in text
        assert re.search(r"<dt>counted out</dt><dd>\s*20\d\d-", text)
        for stage in ("state", "log", "file", "backups"):
            assert re.search(
                rf"{stage}</th><td>[^<]*</td><td class=\"when\"><span class=\"(good\">20\d\d-|open\">not yet)", text
            )
        assert "not yet" in text
        assert str(prepared.done) not in text
    receipt = re.search(r"<code>(default/0/\d+)</code>", text)[1]
    assert "first version without it" in ask("/deletions", {"request": receipt}).text


def test_what_names_another_entry_of_the_ledger_is_no_receipt(ask):
    """Entries of other kinds have names too, and whoever types one is told that there is no such deletion."""
    for name in ("version/1", "erased/0"):
        assert "No deletion with this id is known" in ask("/deletions", {"request": name}).text


def test_health_says_where_the_ledger_stands(ask):
    """Its entries, what its topic has lost, and its last word on the newest version."""
    text = ask("/health").text
    assert re.search(r"<dt>entries</dt><dd>\d+</dd>", text)
    assert "<dt>entries that its topic has lost</dt><dd>none</dd>" in text
    assert re.search(r"last word on the newest version</dt><dd>\s*20\d\d-[^<]*: version 2</dd>", text)


@pytest.mark.parametrize(
    ("ledger", "urgent", "said"),
    [
        ({"unread": "no key"}, False, "The ledger cannot be read here."),
        ({"gaps": 3}, True, "The topic of the ledger has lost entries: 3."),
        ({"alive": {"due": -3600.0}}, False, "The ledger's word on the newest version is 60 min late."),
        ({"alive": {"due": 5.0}}, None, None),
        ({}, None, None),
    ],
)
def test_what_is_wrong_with_the_ledger_is_acted_on(ledger, urgent, said):
    """A ledger that cannot be read, that has lost entries or is late is a concern with a remedy; any other is none."""
    found = list(attention.of_ledger({"unread": None, "gaps": 0, "alive": None} | ledger))
    assert [(one.urgent, one.said) for one in found] == ([] if said is None else [(urgent, said)])
    assert all(one.remedy for one in found)


def test_a_request_that_waits_is_found(ask, prepared):
    """Before there is a receipt, its officer sees since when the document is out of the counts."""
    text = ask("/deletions", {"request": prepared.waiting}).text
    assert "The document is out of the counts since" in text
    assert str(prepared.waiting) not in text


def test_an_unknown_request_is_no_error(ask):
    """It may simply not be counted yet; and nothing is said for nothing."""
    assert "No deletion with this id is known" in ask("/deletions", {"request": "nobody"}).text
    assert "Type a request id" in ask("/deletions", {"request": "  "}).text


def test_versions_have_guarantees_and_charts(ask):
    """A row for each version, the withdrawn one marked, and a described chart of capacity and of epsilon."""
    text = ask("/versions").text
    assert text.count("certified</td>") == 2
    assert text.count('<span class="open">withdrawn</span>') == 1
    for title in ("Deletion capacity used, %", "ε since the base model"):
        assert re.search(rf'role="img"[^>]*>\s*<title id="[a-z]+-title">{re.escape(title)}</title>', text)


def test_topics_have_words_and_pictures(ask):
    """The newest version unless another is named, the map, and the page of all pictures under its own policy."""
    text = ask("/topics").text
    assert "Topics of version 2" in text
    assert "Map of topics" in text
    assert "<bdi>apple</bdi>" in text
    pictures = ask("/topics/2/pictures")
    assert pictures.status == 200
    assert "script-src" not in pictures.headers["content-security-policy"]
    assert "default-src 'none'" in pictures.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/topics?version=1", "/topics?version=99", "/topics?version=-1", "/topics/1/pictures"]
)
def test_what_does_not_stand_is_not_shown(ask, path):
    """A withdrawn version, which holds forgotten words, and one that never was, are pages that say so."""
    reply = ask(path)
    assert reply.status == 404
    assert "This cannot be shown." in reply.text
    assert "apple" not in reply.text


def test_refused_records_are_shown_by_reason_alone(ask):
    """Neither id nor text of a refused record is on the page; what a stranger wrote as a reason is text."""
    text = ask("/rejected").text
    assert '<bdi>key-missing</bdi></th><td class="n">1</td>' in text
    assert SECRET_ID not in text
    assert SECRET_TEXT not in text
    assert HOSTILE not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "\\u{202e}" in text


def test_a_page_without_scripts_is_loaded_again_if_wanted(ask):
    """`live=on` works without scripts, `live=off` stops both ways, and other values change nothing."""
    assert 'http-equiv="refresh"' in ask("/?live=on").text
    off = ask("/?live=off").text
    assert "live.js" not in off
    assert "refresh" not in off
    for value in ("", "?live=%22%3E%3Cscript%3E"):
        text = ask(f"/{value}").text
        assert "live.js" in text
        assert "refresh" not in text


def test_a_server_that_is_away_is_a_page_with_the_remedy(tmp_path):
    """No trace and no password, and the pages come back by themselves when the server does."""
    with LocalRedis() as redis:
        url = redis.url
    settings = Settings(dir=tmp_path, redis_url=url)
    with served(settings, Access(None, reading=False)) as ask:
        reply = ask("/")
        assert reply.status == 503
        assert "A server cannot be reached." in reply.text
        assert "Traceback" not in reply.text
        assert ask("/style.css").status == 200


def test_a_service_without_a_version_has_pages(tmp_path, redis_server):
    """A new instance shows figures of nothing and the decision, and nothing fails."""
    settings = Settings(dir=tmp_path, redis_url=redis_server.url, model="without-a-version")
    with served(settings, Access(None, reading=False)) as ask:
        for path in PAGES:
            reply = ask(path)
            assert reply.status == 200, reply.text
        assert "No version is published yet" in ask("/versions").text


def test_an_unexpected_error_is_a_page(prepared, monkeypatch):
    """The visitor reads its kind, and no word of what was in hand."""

    def fail(_service):
        raise KeyError(SECRET_ID)

    monkeypatch.setattr(page_facts, "read_service", fail)
    with served(prepared.settings, Access(None, reading=False)) as ask:
        reply = ask("/")
    assert reply.status == 500
    assert "Unexpected KeyError" in reply.text
    assert SECRET_ID not in reply.text


def test_many_browsers_cost_one_read(prepared):
    """What was read serves all who ask within its time; an act makes everything be read anew."""
    now = [0.0]
    view = ServiceView(prepared.settings, ticks=lambda: now[0])
    reads = []

    def read(_service):
        reads.append(1)
        return len(reads)

    assert [view.read("name", read).value for _ in range(3)] == [1, 1, 1]
    now[0] += 3600
    assert view.read("name", read).value == 2
    view.act(lambda _service: None)
    assert view.read("name", read).value == 3
    view.close()


def _luminance(colour):
    """Relative luminance of a colour, as WCAG 2 defines it."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    high, low = sorted([_luminance(one), _luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_both_schemes(ask):
    """WCAG AA: 4.5 : 1 for all colours of text on the page, on boxes and on buttons; 3 : 1 for lines of fields."""
    style = ask("/style.css").text
    light, dark = re.findall(r":root \{([^}]*)\}", style)[:2]
    for block in (light, dark):
        colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]+);", block))
        for ground in ("paper", "wash"):
            for name in ("ink", "soft", "mark", "warm", "good", "bad"):
                assert _contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    named = set(re.findall(r"(?:color|background|fill): (#[0-9a-fA-F]+|[a-z]+)\b", (_sheet())))
    assert named <= {"transparent", "var"}, "a colour that follows no scheme"


def _sheet():
    return (Path(streamtopic.__file__).parent / "dashboard" / "templates" / "dashboard.css").read_text(encoding="utf-8")


def test_the_token_is_never_shown(ask):
    """No page, with or without a visit, and no form that was sent holds it."""
    cookie = ask.login()
    for path in ALL:
        assert TOKEN not in ask(path, Cookie=cookie).text
    assert TOKEN not in ask("/login", {"token": TOKEN + "x"}).text
