"""Documentation is executed, or compared with the program."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from streamtopic.cli import build_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


@pytest.mark.parametrize("number", [0, 1])
def test_the_quickstart_s_python_runs(number):
    """The library examples, from counts and from texts, do what they say."""
    # The first one reads a folder that `export` wrote: tests/cli/test_instance_commands.py.
    _, *blocks = _blocks(ROOT / "docs" / "quickstart.md", "python")
    assert len(blocks) == 2
    exec(compile(blocks[number], "quickstart.md", "exec"), {})  # noqa: S102  executing it is the point


@pytest.mark.parametrize(
    ("page", "claim"),
    [
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
    for block in _blocks(ROOT / "docs" / page, "python"):
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
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            (tmp_path / "page.toml").write_text(block, encoding="utf-8")
            load(config=tmp_path / "page.toml")
            found += 1
    assert found >= 2
