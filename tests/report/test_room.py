import ast
from pathlib import Path

import streamtopic

PACKAGE = Path(streamtopic.__file__).parent


def imported(path):
    """Every module that a file imports, at once or later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_service_knows_no_page():
    """Pages read values of the service's checks; the service imports no page, not even late, so there is no circle."""
    for path in sorted((PACKAGE / "service").rglob("*.py")):
        assert not [name for name in imported(path) if name.startswith("streamtopic.report")], path


def test_pages_know_the_values_of_the_checks_alone():
    """Of the service, pages import what verifying returns, never what runs."""
    for path in sorted((PACKAGE / "report").rglob("*.py")):
        used = [name for name in imported(path) if name.startswith("streamtopic.service")]
        assert all(name.startswith("streamtopic.service.verify.") for name in used), path


def test_templates_alone_write_elements():
    """No Python of the pages holds an element as text, but the code of a sentence, so what a page is can be read."""
    for path in sorted((PACKAGE / "report").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        elements = [text for text in texts if text.lstrip().startswith("<") and text.rstrip().endswith(">")]
        assert set(elements) <= {"<code>{}</code>"}, path
