"""Strict reading of pages and pictures."""

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

VOID = {"meta", "br", "hr", "col"}
DRAWN = {"svg", "circle", "rect", "path", "line", "text"}


class _Strict(HTMLParser):
    """Reads a page: every tag is closed in turn, nothing is loaded, nothing runs, and ids occur once."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text, self.tags = [], [], [], [], []

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        if name not in VOID:
            self.open.append(name)
        for key, value in attributes:
            assert not key.startswith("on"), f"{name} runs {key}"
            assert key != "src", f"{name} loads {value}"
            if key == "id":
                self.ids.append(value)
            if key in {"href", "xlink:href"}:
                self.links.append(value)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="session")
def read_page():
    """Read a page strictly; (what it says, its tags)."""

    def read(page):
        reader = _Strict()
        reader.feed(page)
        reader.close()
        assert reader.open == []
        assert "script" not in reader.tags
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in page
        assert "url(" not in page
        assert "@import" not in page
        assert len(set(reader.ids)) == len(reader.ids)
        assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
        return "".join(reader.text), reader.tags

    return read


@pytest.fixture(scope="session")
def read_picture():
    """Read an SVG strictly, as XML; its root."""

    def read(picture):
        root = ET.fromstring(picture)  # noqa: S314  it is our own
        titles = [child.tag.rpartition("}")[2] for child in root][:2]
        assert titles == ["title", "desc"]
        for element in root.iter():
            for key, value in element.attrib.items():
                assert "nan" not in value, (element.tag, key)
                assert "inf" not in value.split(), (element.tag, key)
        return root

    return read
