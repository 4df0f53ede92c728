"""The dashboard in a real browser: both schemes, a narrow screen, the keyboard alone, and updates without a reload."""

import pytest
from dashboard_client import MINUTES, TOKEN

from streamtopic.dashboard.web_pages import PAGES
from streamtopic.service.app import Service

ALL = [*PAGES, "/login"]


@pytest.fixture
def open_page(chromium):
    """Open a page with options of its own; at the end no page may have said anything to the console."""
    contexts, said = [], []

    def opened(**options):
        context = chromium.new_context(**options)
        context.set_default_timeout(MINUTES)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        return page

    yield opened
    for context in contexts:
        context.close()
    # The one refusal that a test provokes; the browser tells of each answer above 399.
    assert [text for text in said if "status of 403" not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_scheme_and_fit(ask, open_page, scheme):
    """Each page has the colours of its scheme, and no page of 360 pixels is scrolled sideways."""
    page = open_page(color_scheme=scheme, viewport={"width": 360, "height": 740})
    for path in [*ALL, "/topics/2/pictures"]:
        page.goto(ask.address + path)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
        excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(excess) <= 0, path


def test_a_retry_needs_no_mouse(ask, open_page, refused_again):
    """From the first key press to the outcome: skip link, pages, log in, retry; each place shows that it has focus."""
    refused_again("by-keyboard")
    page = open_page()
    page.goto(ask.address)

    def press_until(name):
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = "document.activeElement.textContent.trim() || document.activeElement.id"
            style = "getComputedStyle(document.activeElement)"
            assert page.evaluate(f"{style}.outlineStyle") != "none"
            if page.evaluate(focused) == name:
                return
        pytest.fail(f"the keyboard does not reach {name}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.goto(f"{ask.address}/rejected")
    press_until("Log in")
    page.keyboard.press("Enter")
    page.wait_for_url("**/login")
    press_until("token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{ask.address}/")
    press_until("Rejected records")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rejected")
    press_until("Retry all refused records")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert "sent again" in page.locator("section.verdict").inner_text()
    assert page.url == f"{ask.address}/rejected"


def test_a_request_stays_out_of_the_address(ask, open_page, prepared):
    """Its id is typed, its ledger is shown, and neither address nor page holds the id afterwards."""
    page = open_page()
    page.goto(f"{ask.address}/deletions")
    page.get_by_label("Request id, or the receipt's own id").fill(prepared.done)
    page.get_by_role("button", name="Look up").click()
    page.get_by_role("heading", name="Your request").wait_for()
    assert page.get_by_role("row", name="backups").count() == 2
    assert page.url == f"{ask.address}/deletions"
    assert str(prepared.done) not in page.content()


def test_figures_are_kept_up_to_date(ask, open_page, prepared):
    """A record that arrives meanwhile is in the figures without a reload, and focus stays where it was."""
    page = open_page(reduced_motion="reduce")
    page.goto(ask.address)
    page.evaluate("window.kept = true")
    page.get_by_role("link", name="Health").focus()
    before = page.locator("#figures").inner_text()
    with Service(prepared.settings) as service:
        service.delete(["no-such-document"])
    page.wait_for_function("text => document.querySelector('#figures').innerText !== text", arg=before)
    assert page.evaluate("window.kept")
    assert page.evaluate("document.activeElement.textContent") == "Health"
    assert page.evaluate("document.getAnimations().length") == 0


def test_pages_work_without_scripts(ask, open_page, prepared):
    """Pages, the lookup, the log-in and its acts are links and forms."""
    page = open_page(java_script_enabled=False)
    page.goto(ask.address)
    page.get_by_role("link", name="Load it again every 15 seconds").click()
    assert page.locator("h1").inner_text() == "Overview"
    page.goto(f"{ask.address}/deletions")
    page.get_by_label("Request id, or the receipt's own id").fill(prepared.waiting)
    page.get_by_role("button", name="Look up").click()
    assert "The receipt comes with" in page.locator("#answer").inner_text()
    page.goto(f"{ask.address}/login")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.goto(f"{ask.address}/rejected")
    page.get_by_role("button", name="Retry all refused records").click()
    assert "Retried" in page.locator("main").inner_text()
    page.goto(f"{ask.address}/requests")
    page.get_by_role("button", name="Decide about request").first.click()
    page.get_by_role("button", name="Cancel this request").click()
    page.wait_for_url(f"{ask.address}/requests")
    assert "Cancelled" in page.locator("main").inner_text()


def test_no_other_site_can_press_the_button(ask, open_page):
    """A page of another origin, in the browser of somebody who is logged in, sends a form: nothing is done."""
    page = open_page()
    page.goto(f"{ask.address}/login")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{ask.address}/")
    page.goto("about:blank")
    form = f'<form method="post" action="{ask.address}/rejected/retry"><button>go</button></form>'
    page.set_content(form)
    with page.expect_response("**/rejected/retry") as answer:
        page.get_by_role("button").click()
    assert answer.value.status == 403
