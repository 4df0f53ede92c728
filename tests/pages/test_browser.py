"""All pages in a real browser: both schemes, a narrow screen, and axe-core against WCAG 2.1 A and AA."""

import pytest
from pages_client import MINUTES

from streamtopic.pages.version_page import version_page
from streamtopic.pages.web_pages import PAGES

axe = pytest.importorskip("axe_playwright_python.base", reason="axe-core is missing; the extra `test` brings it")

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}


def violations(page):
    """What axe-core finds against the rules, each with the place of its first finding."""
    page.evaluate(axe.AXE_SCRIPT)
    answer = page.evaluate("rules => axe.run(document, rules)", RULES)
    assert answer["passes"], "hardly a rule was applied"
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in answer["violations"]]


@pytest.mark.parametrize("scheme", GROUNDS)
def test_pages_hold_together(ask, chromium, facts_of, make_release, tmp_path, scheme):
    """Colours follow the scheme, the style is applied, 360 pixels are enough, axe finds nothing, no error is told."""
    file = tmp_path / "version.html"
    written = version_page(facts_of(make_release(n=80, r=12), [make_release(n=80, r=12, seed=1)]))
    file.write_text(written, encoding="utf-8")
    places = [*(ask.address + path for path in [*PAGES, "/versions/2"]), file.as_uri()]
    said = []
    # The policy forbids every script, so the scanner is let in past it; a page without is looked at first.
    for bypass in (False, True):
        context = chromium.new_context(color_scheme=scheme, bypass_csp=bypass, viewport={"width": 360, "height": 740})
        context.set_default_timeout(MINUTES)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        for place in places:
            page.goto(place)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == GROUNDS[scheme], place
            excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(excess) <= 0, place
            if bypass:
                assert violations(page) == [], place
        context.close()
    assert said == []


def test_a_page_is_read_with_the_keyboard(ask, chromium):
    """The skip link leads to the content, each place shows that it has focus, and a page of a version is reached."""
    context = chromium.new_context()
    context.set_default_timeout(MINUTES)
    page = context.new_page()
    page.goto(f"{ask.address}/versions")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    for _ in range(60):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate("document.activeElement.getAttribute('href')") == "/versions/2":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/versions/2")
    context.close()
