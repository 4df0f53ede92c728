"""axe-core in a real browser finds nothing against WCAG 2.1 A and AA on any page, light and dark."""

import pytest
from dashboard_client import MINUTES, TOKEN

from streamtopic.dashboard.web_pages import PAGES
from streamtopic.report.version_report import report_page
from streamtopic.service.app import Service
from streamtopic.service.verify import gather

axe = pytest.importorskip("axe_playwright_python.base", reason="axe-core is missing; the extra `test` brings it")

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@pytest.fixture(params=["light", "dark"])
def page(chromium, request):
    """A page in one of the schemes. The dashboard's policy forbids other scripts, so the scanner is let in past it."""
    context = chromium.new_context(color_scheme=request.param, bypass_csp=True, reduced_motion="reduce")
    context.set_default_timeout(MINUTES)
    yield context.new_page()
    context.close()


def violations(page):
    """What axe-core finds against the rules, each with the place of its first finding."""
    page.evaluate(axe.AXE_SCRIPT)
    answer = page.evaluate("rules => axe.run(document, rules)", RULES)
    assert answer["passes"], "hardly a rule was applied"
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in answer["violations"]]


def log_in(page, address):
    """Open a visit."""
    page.goto(f"{address}/login")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{address}/")


def test_the_scanner_finds_what_is_wrong(page):
    """A page without a language, with a field without a name and text without contrast: each is found."""
    faint = "<p style='color: #ccc; background: #fff'>faint</p>"
    page.set_content(f"<title>x</title><main>{faint}<input></main>")
    found = {one.partition(":")[0] for one in violations(page)}
    assert found >= {"html-has-lang", "label", "color-contrast"}


def test_pages_of_a_visitor(ask, page):
    """Every page as somebody reads it who has not logged in, and what a lookup answers."""
    for path in [*PAGES, "/login", "/nowhere", "/topics/2/pictures"]:
        page.goto(ask.address + path)
        assert violations(page) == [], path


def test_pages_of_somebody_who_may_act(ask, page, prepared):
    """With the buttons and forms, the ledger of a request, and the page that asks before a decision."""
    log_in(page, ask.address)
    for path in ("/", "/requests", "/rejected"):
        page.goto(ask.address + path)
        assert violations(page) == [], path
    page.goto(f"{ask.address}/deletions")
    page.get_by_label("Request id, or the receipt's own id").fill(prepared.done)
    page.get_by_role("button", name="Look up").click()
    page.get_by_role("heading", name="Your request").wait_for()
    assert violations(page) == []
    page.goto(f"{ask.address}/requests")
    page.get_by_role("button", name="Decide about request").first.click()
    page.get_by_role("heading", name="Approve").wait_for()
    assert violations(page) == []


def test_a_report_that_is_sent_to_others(prepared, page, tmp_path):
    """The page of `streamtopic report`, as its reader opens it from a file."""
    with Service(prepared.settings) as service:
        written = report_page(gather(service.sources, 2))
    file = tmp_path / "report.html"
    file.write_text(written, encoding="utf-8")
    page.goto(file.as_uri())
    assert violations(page) == []
