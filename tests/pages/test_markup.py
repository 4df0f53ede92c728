import re
from xml.etree import ElementTree as ET

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from streamtopic.pages import rendering
from streamtopic.pages.plots import Mark, Picture, circle, label
from streamtopic.pages.rendering import render
from strict_html import Strict


def picture(value, attribute="said"):
    """A picture that has a text from outside in every place where one can be."""
    within = [circle(1.23456789, 2.0, 3.0, "mark", attribute), label(1, 1, value)]
    return Picture("name", value, value, 10, 10, [Mark("a", {"href": "#there"}, said=value, within=within)]).svg()


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_no_text_becomes_markup(value, attribute):
    """Whatever a word holds, a picture has exactly the elements and attributes of a plain one, in HTML and XML."""
    plain, made = Strict(picture("plain", "plain")), Strict(picture(value, attribute))
    assert made.shape == plain.shape
    assert [name for _, name, _ in made.attributes] == [name for _, name, _ in plain.attributes]
    root = ET.fromstring(picture(value, attribute))  # noqa: S314  it is our own
    assert [child.tag.rpartition("}")[2] for child in root.iter()] == plain.shape


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), min_size=1, max_size=20))
def test_what_cannot_be_seen_is_shown(hidden):
    """No hidden character reaches a picture, but line ends, tabs and joiners; its code stands in its place."""
    kept = set("\n\t\u200c\u200d")
    written = picture(f"a{hidden}b", f"a{hidden}b")
    assert not (set(hidden) - kept) & set(written)
    assert all(f"\\u{{{ord(character):x}}}" in written for character in set(hidden) - kept)


@pytest.mark.parametrize(
    "way",
    [
        "{{ value }}",
        "{{ [value, markup]|join(', ') }}",
        "{{ markup ~ value }}",
        "{{ markup|replace('b', value) }}",
        "{{ {'x': value} }}",
        "{{ value|prose }}",
        "{{ [[value]]|map('first')|list }}",
        "{% set kept %}{{ value }}{% endset %}{{ kept }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(value) }}",
        '<p title="{{ value }}">{{ markup|format(value) }}</p>',
        "{{ value|upper|e }}",
    ],
)
def test_no_way_through_a_template_is_open(monkeypatch, way):
    """However a template comes to a value, joined to markup or captured, it is escaped and its hidden marks shown."""
    environment = rendering._environment().overlay(loader=jinja2.DictLoader({"page": way}))
    monkeypatch.setattr(rendering, "_environment", lambda: environment)
    written = render("page", value='<b>\u202e`"', markup=Markup("<i>b</i>%s"))
    assert "<b>" not in written.lower()
    assert "\u202e" not in written
    assert "&lt;b&gt;" in written.lower()
    assert r"\u{202e}" in written


def test_templates_use_no_way_around_escaping():
    """No template marks a value as safe or switches escaping off, and none has a script."""
    environment = rendering._environment()
    names = environment.list_templates()
    assert {"base.html", "version.html", "overview.html", "picture.svg"} <= set(names)
    for name in names:
        source, _, _ = environment.loader.get_source(environment, name)
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", source), name
        assert "<script" not in source, name
