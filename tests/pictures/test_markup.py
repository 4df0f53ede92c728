from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopic.pictures.markup import Markup, join, tag, text
from streamtopic.pictures.page import document, ruled_table


class _Elements(HTMLParser):
    """Counts elements, attributes and comments, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.elements, self.attributes, self.said, self.others = [], [], "", 0

    def handle_starttag(self, name, attributes):
        self.elements.append(name)
        self.attributes += attributes

    def handle_data(self, data):
        self.said += data

    def handle_comment(self, data):  # noqa: ARG002  the signature is the parser's
        self.others += 1

    handle_decl = handle_pi = unknown_decl = handle_comment


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_becomes_markup(value, attribute):
    """Whatever a word holds, an element has exactly the children and attributes that it was given, in HTML and XML."""
    made = tag("p", tag("b", value), title=attribute)
    reader = _Elements()
    reader.feed(made)
    reader.close()
    assert (reader.elements, reader.others) == (["p", "b"], 0)
    assert [name for name, _ in reader.attributes] == ["title"]
    root = ET.fromstring(made)  # noqa: S314  it is our own
    assert [child.tag for child in root.iter()] == ["p", "b"]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_plain_text_comes_through(value):
    """Escaping is undone by whoever reads the page: the words are shown as they are."""
    reader = _Elements()
    reader.feed(tag("p", value))
    reader.close()
    assert reader.said == value


def test_text_that_turns_directions_turns_nothing():
    """Marks that reverse what follows, and characters that XML has not, are gone or replaced."""
    assert text("a\u202eb\u2067c\x00d\ud800") == "abc\ufffdd\ufffd"


def test_joined_text_is_escaped_unless_it_is_markup():
    """Forgetting to make an element of something escapes it; it never lets it through."""
    assert join(["<b>", tag("i", 1), Markup("<hr>")]) == "&lt;b&gt;<i>1</i><hr>"
    assert tag("p", tag("b", "x") + tag("b", "y")).count("<b>") == 0  # a sum of elements is plain text


def test_attributes_are_written_as_given():
    """Names lose their trailing underscore, None leaves one out, and numbers are short."""
    assert (
        tag("a", class_="b", aria_label="c", x=1.23456, y=2.0, z=None)
        == '<a class="b" aria-label="c" x="1.23" y="2"></a>'
    )
    assert tag("meta", name="x") == '<meta name="x">'


def test_a_page_is_whole_and_refuses_to_load(read_page):
    """A page has a title, a language, and a policy under which nothing is loaded or run."""
    page = document("<title>", tag("p", "said"))
    said, tags = read_page(page)
    assert "said" in said
    assert tags[:2] == ["html", "head"]
    assert 'lang="en"' in page
    assert "default-src &#x27;none&#x27;" in page
    assert "&lt;title&gt;" in page


@pytest.mark.parametrize("cells", [["a", "1", "2"], ["a", "said"], ["a"]])
def test_tables_name_their_rows_and_columns(cells):
    """Screen readers hear a caption, column heads and row heads; a short row spans the table."""
    made = ruled_table("Said", ["x", "y", "z"], [cells])
    root = ET.fromstring(made)  # noqa: S314  it is our own
    assert root.find(".//caption").text == "Said"
    assert [head.get("scope") for head in root.iter("th")] == ["col"] * 3 + ["row"]
    row = root.find(".//tbody/tr")
    assert sum(int(cell.get("colspan", 1)) for cell in row) == 3
