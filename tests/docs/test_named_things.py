"""Files, tests and names of the program that a page mentions are there."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The changelog tells what had another name before.
PAGES_OF_TODAY = [page for page in PAGES if page.name != "changelog.md"]
ROOMS = ["streamtopic", "tests", "docs", "deploy", ".ci"]
# Words of librdkafka and of addresses of Redis.
FOREIGN = {"murmur2_random", "sentinel_username", "sentinel_password"}
# Every metric has it where it is scraped.
PREFIX = "streamtopic_"
# `make-secrets.sh` makes this folder, and nobody keeps it in a repository.
MADE = "deploy/secrets"


@cache
def paths():
    """Paths of all files of the repository, as text."""
    top = [path.name for path in ROOT.iterdir() if path.is_file()]
    below = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    return [*top, *(path for path in below if "__pycache__" not in path)]


@cache
def words_of_the_code():
    """Identifiers in all files that are code or configuration."""
    code = (path for path in paths() if not path.endswith((".md", ".png", ".gz", ".pyc")))
    return {word for path in code for word in re.findall(r"[A-Za-z]\w*", (ROOT / path).read_text("utf-8"))}


def prose(page):
    """A page's text without its blocks of code, where the names are those of an example."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def is_there(name):
    """Whether a file has this path, or ends with it."""
    return any(path == name or path.endswith("/" + name) for path in paths())


def name_of(page):
    """How a page is called in the output of the tests."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES_OF_TODAY, ids=name_of)
def test_each_file_of_the_program_that_a_page_names_is_there(page):
    """Whoever looks for a Python or Lua file, or for a file of the deployment, finds it under the name on the page."""
    named = set(re.findall(r"`([\w./-]*\w\.(?:py|lua))\b", prose(page)))
    named |= set(re.findall(r"`((?:deploy|tests|docs|streamtopic)/[\w./-]*\w)/?`", prose(page)))
    missing = {name for name in named if not is_there(name) and not (ROOT / name).is_dir()}
    missing = {name for name in missing if not name.startswith(MADE)}
    assert not missing


@pytest.mark.parametrize("page", PAGES_OF_TODAY, ids=name_of)
def test_each_name_of_the_program_on_a_page_is_one(page):
    """A function, setting, field or metric that a page names in code is in the program or in its deployment."""
    spans = re.findall(r"`([^`\n]+)`", prose(page))
    named = {name for span in spans for name in re.findall(r"(?<!\w)[a-z]+(?:_[a-z0-9]+)+(?!\w)", span)}
    missing = {name for name in named if name.removeprefix(PREFIX) not in words_of_the_code()} - FOREIGN
    assert not {name for name in missing if not is_there(f"{name}.py")}
