"""The page on planted topics does what it says."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "synthetic.md"


def test_the_example_runs(capsys):
    """The example learns the planted topics to a hundredth and prints the three figures that it speaks of."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(block, "synthetic.md", "exec"), names)  # noqa: S102  executing it is the point
    assert names["found"].A < 0.01
    assert names["found"].R < 0.02
    assert names["left"].documents == 20_000 - 3
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_picture_is_drawn_from_figures():
    """A benchmark's figures become well-formed SVG: an error of a thousandth lies on its line, one of 1 at the top."""
    script = runpy.run_path(str(DOCS / "recovery.py"))
    errors = {"12": (0.1, 0.001), "200": (1.0, 0.01)}
    figures = [
        {"name": f"{n} words, error at m = {m:,}", "value": value, "target": "guarantee: 0.5"}
        for n, values in errors.items()
        for m, value in zip((1_000, 64_000), values, strict=True)
    ]
    drawn = ET.fromstring(script["picture"](figures))  # noqa: S314  our own text
    paths = {path.get("class"): path.get("d") for path in drawn.iter("{http://www.w3.org/2000/svg}path")}
    assert set(paths) == {"truth", "bound", "text"}
    bottom, top = script["HEIGHT"] - script["BOTTOM"], script["TOP"]
    assert paths["truth"].endswith(f" {bottom:.1f}")
    assert f" {top:.1f} " in paths["text"]
    kept = ET.parse(DOCS / "recovery.svg")  # noqa: S314  as above
    assert len(list(kept.iter("{http://www.w3.org/2000/svg}path"))) == 3
