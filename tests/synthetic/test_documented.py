"""The page on planted topics does what it says."""

import re
from pathlib import Path

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
