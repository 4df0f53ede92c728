import ast
from pathlib import Path

import streamtopic

PACKAGE = Path(streamtopic.__file__).parent


def test_templates_alone_write_elements():
    """No Python of the pages holds an element as text, but the code of a sentence, so what a page is can be read."""
    for path in sorted((PACKAGE / "pages").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        elements = [text for text in texts if text.lstrip().startswith("<") and text.rstrip().endswith(">")]
        assert set(elements) <= {"<code>{}</code>"}, path


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    """The Python of docs/pictures.md finds the planted topics and writes its figure."""
    page = Path(__file__).parents[2] / "docs" / "pictures.md"
    monkeypatch.chdir(tmp_path)
    (block,) = (part.partition("```")[0] for part in page.read_text(encoding="utf-8").split("```python\n")[1:])
    names = {}
    exec(compile(block, "pictures.md", "exec"), names)  # noqa: S102  executing it is the point
    assert names["found"].recommended.topics == 4
    assert [path.name for path in tmp_path.iterdir()] == ["map.svg"]
