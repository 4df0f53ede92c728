"""The site has every page, and every page can be found."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SITE = yaml.safe_load((ROOT / ".mkdocs.yml").read_text("utf-8"))


def listed(entry):
    """Paths of pages below an entry of the site's navigation."""
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [path for child in children for path in listed(child)]


def test_the_navigation_lists_every_page_once():
    """A page that nobody listed would be found by nobody."""
    assert sorted(listed(SITE["nav"])) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


def test_ci_builds_the_site_strictly():
    """A broken link or a docstring that cannot be shown stops CI; what is built stays out of the repository."""
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    command = "mkdocs build --strict -f .mkdocs.yml"
    assert f"\n{command}\n" in ci
    assert command in (ROOT / "docs" / "contributing.md").read_text("utf-8")
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert f"{SITE['site_dir'].partition('/')[0]}/" in ignored


def test_the_site_asks_no_other_server():
    """Whoever reads the documentation is seen by nobody else: no fonts, scripts or counters from elsewhere."""
    assert SITE["theme"]["font"] is False
    assert not {"extra", "extra_css", "extra_javascript"} & SITE.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_and_tables_begin_after_an_empty_line(page):
    """A repository browser shows them anyway; the site would join them to the paragraph before."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^(?![-|\s]|\d+\. ).+\n(?:- |\d+\. |\|).*", text, re.MULTILINE)
