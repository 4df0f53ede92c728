"""Documentation is executed, or compared with the program: what a page mentions is there."""

import re
import runpy
import shlex
from functools import cache
from pathlib import Path

import pytest

from streamtopic.cli import build_parser

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
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


def _blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", ["cli", "settings"])
def test_references_are_those_of_the_program(name):
    """`python docs/reference.py` has been run since commands or settings changed."""
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == REFERENCE[f"{name}_reference"]()


def test_the_schema_of_the_chart_is_that_of_the_settings():
    """`python docs/reference.py` has been run since settings changed: the chart takes what the program takes."""
    assert REFERENCE["CHART"].read_text(encoding="utf-8") == REFERENCE["chart_schema"]()


def _commands():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = _blocks(page, "sh") + _blocks(page, "") + re.findall(r"^    pip .*$", text, re.MULTILINE)
        if page.name == "guarantees.md":
            blocks += re.findall(r"`(streamtopic [^`]+)`", text)
        for line in "\n".join(blocks).splitlines():
            for part in re.split(r"&&| \| ", line):
                if part.split()[:1] == ["streamtopic"]:
                    yield page.name, part.strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(_commands())))
def test_commands_in_the_documentation_exist(page, line):
    """Every command line that a page shows is one that the program accepts."""
    args = build_parser().parse_args(shlex.split(line)[1:])
    assert callable(args.run), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    """A reader never meets a missing page."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "claim"),
    [
        ("quickstart.md", bool),
        ("topics.md", bool),
        ("better-topics.md", bool),
        ("pictures.md", lambda made: made["found"].recommended.topics == 4 and Path("map.svg").stat().st_size),
        (
            "synthetic.md",
            lambda made: made["found"].A < 0.01 and made["found"].R < 0.02 and made["gone"].documents == 3,
        ),
    ],
)
def test_the_python_of_a_page_runs(page, claim, tmp_path, monkeypatch):
    """From top to bottom, it does what the page says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    # The first one of the quickstart reads a folder that `export` wrote: tests/cli/test_instance_commands.py.
    for block in _blocks(ROOT / "docs" / page, "python")[page == "quickstart.md" :]:
        exec(compile(block, page, "exec"), names)  # noqa: S102  executing it is the point
    assert claim(names)


def test_readme_s_python_runs():
    """The library example does what it says, given counts."""
    import numpy as np

    rng = np.random.default_rng(1)
    words = rng.dirichlet(np.full(400, 0.02), size=25)
    mixtures = rng.dirichlet(np.full(25, 0.1), size=1500)
    counts = np.array([rng.multinomial(80, mixture @ words) for mixture in mixtures])
    (block,) = [block for block in _blocks(ROOT / "README.md", "python") if "AnchorTopics" in block]
    names = {"X": counts}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102  executing it is the point
    assert np.allclose(names["theta"].sum(axis=1), 1)


def test_settings_on_the_pages_are_settings(tmp_path):
    """Each block of TOML on a page is a settings file that the program accepts."""
    from streamtopic.settings import load

    found = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in _blocks(page, "toml"):
            (tmp_path / "page.toml").write_text(block, encoding="utf-8")
            load(config=tmp_path / "page.toml")
            found += 1
    assert found >= 2


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
