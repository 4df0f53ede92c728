import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "pictures.md"


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    """The page's Python finds the planted topics and draws both figures."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(block, "pictures.md", "exec"), names)  # noqa: S102  executing it is the point
    assert names["found"].recommended.topics == 4
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", "suggestion.png"}
