import dataclasses
import re
from html import unescape
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from streamtopic.errors import InvalidRelease
from streamtopic.report.model_page import model_page
from streamtopic.report.model_view import topic_history


def pictures(page):
    """The pictures of a page."""
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def test_a_page_shows_the_whole_model(read_page, make_release):
    """Topics with their words and shares, map, correlations, guarantee: each is there, in words and in tables."""
    release = make_release(n=60, r=6)
    said, tags = read_page(model_page(release))
    for topic in release.topics(10):
        assert f"Topic {topic.topic}" in said
        assert f"{topic.share:.1%}" in said
        assert all(word in said for word in topic.words)
    assert "2,000 documents: 6 topics over 60 words" in said
    assert "epsilon 1 and delta 1e-06" in said
    assert "0.002 times the model's" in said
    assert tags.count("article") == 6
    assert tags.count("table") == 6 + 2  # cards, and one behind each picture


def test_pictures_are_xml_with_a_title_a_description_and_a_table_behind(read_picture, make_release):
    """A picture that cannot be seen can be read: named, described, and its numbers follow as a table."""
    page = model_page(make_release())
    large = [picture for picture in pictures(page) if "aria-labelledby" in picture]
    assert len(large) == 2
    for picture in large:
        read_picture(picture)
        assert "<details>" in page.split(picture)[1][:1500]


@pytest.mark.parametrize(("n", "r"), [(3, 1), (4, 2), (30, 3), (400, 130)])
def test_any_number_of_topics_has_a_page(read_page, make_release, n, r):
    """One topic, two, and more than a picture can show: the largest are drawn and the page says so."""
    release = make_release(n=n, r=r)
    page = model_page(release, [make_release(n=n, r=r, seed=1)])
    said, tags = read_page(page)
    assert tags.count("article") == r
    assert ("largest topics are drawn" in said) == (r > 40)
    assert "nan" not in re.sub(r"w\d+", "", said).lower().split()


def test_hostile_words_stay_words(read_page, make_release, make_head, hostile_words):
    """Words, classes, tasks and the model's name that would be markup are shown as text and never run."""
    release = make_release(words=hostile_words, r=4)
    head = make_head(release, classes=("<b>bold</b>", "plain"))
    release = dataclasses.replace(release, payload=dataclasses.replace(release.payload, heads={"<i>task": head}))
    page = model_page(release, [make_release(words=hostile_words, r=4, seed=3)])
    said, tags = read_page(page)
    assert not {"img", "script", "i", "b"} & set(tags)
    assert "<b>bold</b>" in said
    assert "<i>task" in said
    assert any(word in said for word in hostile_words if "script" in word)
    for picture in pictures(page):
        ET.fromstring(picture)  # noqa: S314  it is our own


def test_withheld_topics_are_not_looked_for(read_page, make_release, make_head):
    """A version of heads alone shows its tasks and its guarantee, and says that topics are withheld."""
    plain = make_release()
    release = make_release(withheld=True, heads={"section": make_head(plain, ("arts", "sports"), withheld=True)})
    page = model_page(release)
    said, tags = read_page(page)
    assert "topics are withheld" in said
    assert "section: fitted on 50 labelled documents" in said
    B = release.task_weights("section")
    assert release.words[int(np.argmax(B[:, 0] - B.mean(axis=1)))] in said
    assert "svg" not in tags


def test_a_withdrawn_version_has_no_page(make_release):
    """What must not be used is not drawn."""
    with pytest.raises(InvalidRelease, match="withdrawn"):
        model_page(dataclasses.replace(make_release(), is_withdrawn=lambda _: True))


def test_noise_alone_is_called_noise(read_page, make_release):
    """Where the noise is larger than the model the page warns before it shows numbers; theorem mode is named."""
    said, _ = read_page(model_page(make_release(ratio=36.0, guarantee="theorem", covered=False)))
    assert said.index("The noise has 36 times the norm of the model") < said.index("Topic 0")
    assert "which do not all hold, so nothing is promised" in said
    said, _ = read_page(model_page(make_release(guarantee="theorem", covered=True)))
    assert "all of which held" in said


def renumbered(release, order, version):
    """The same model with its topics in another order, as another version."""
    payload = release.payload
    order = list(order)
    changed = dataclasses.replace(
        payload,
        A=payload.A[:, order],
        R=payload.R[np.ix_(order, order)],
        shares=payload.shares[order],
        top_words=tuple(payload.top_words[k] for k in order),
    )
    return dataclasses.replace(
        release, payload=changed, envelope=dataclasses.replace(release.envelope, version=version)
    )


def test_topics_are_followed_through_renumbering(make_release):
    """A topic keeps its path whatever its number is in each version, over several steps."""
    one = make_release(r=5, n=80)
    two, three = renumbered(one, [3, 0, 4, 1, 2], 2), renumbered(one, [1, 2, 0, 4, 3], 3)
    found = topic_history([one, two, three])
    assert [step.envelope.version for step in found.steps] == [1, 2, 3]
    for path in found.paths:
        assert path.shares == pytest.approx([three.shares[path.topic]] * 3)
        assert (path.came, path.went) == ((), ())
    assert [step.kept for step in found.steps] == [None, 1.0, 1.0]
    assert found.steps[1].moved == pytest.approx(0.0, abs=1e-6)


def test_words_that_came_and_went_are_told(read_page, make_release):
    """A word among the ten first of one version and not of the other is named on its side."""
    one = make_release(r=2, n=50)
    tops = [list(words) for words in one.payload.top_words]
    tops[0][2], tops[0][15] = tops[0][15], tops[0][2]
    payload = dataclasses.replace(one.payload, top_words=tuple(map(tuple, tops)))
    two = dataclasses.replace(one, payload=payload, envelope=dataclasses.replace(one.envelope, version=2))
    path = topic_history([one, two]).paths[0]
    assert path.came == (tops[0][2],)
    assert path.went == (tops[0][15],)
    page = model_page(two, [one])
    said, _ = read_page(page)
    assert "words that came, and went" in said
    assert f'<s class="went">{tops[0][15]}</s>' in page


def test_a_change_of_the_number_of_topics_begins_anew(make_release, read_page):
    """Versions with another number of topics, or without any, are not compared with."""
    found = topic_history([make_release(r=3), make_release(r=4, version=2), make_release(r=4, version=3, seed=1)])
    assert [step.envelope.version for step in found.steps] == [2, 3]
    assert all(len(path.shares) == 2 for path in found.paths)
    said, _ = read_page(model_page(make_release(r=4, version=2), [make_release(r=3)]))
    assert "nothing to compare" in said


def test_withdrawn_versions_are_named_and_not_shown(read_page, make_release):
    """What a withdrawn version shows beyond later ones is what was forgotten: only its number appears."""
    said, _ = read_page(model_page(make_release(version=3), withdrawn=[1, 2]))
    assert "Versions 1, 2 are withdrawn and left out" in said
    said, _ = read_page(model_page(make_release(version=2), withdrawn=[1]))
    assert "Version 1 is withdrawn" in said


@pytest.mark.parametrize("r", [2, 6])
def test_every_square_of_the_correlations_has_four_lines(make_release, r):
    """The lines lie at all edges of the squares, the last row and the last column included."""
    heat = next(picture for picture in pictures(model_page(make_release(r=r, n=60))) if "heat-title" in picture)
    rows, columns = set(), set()
    for x, y, rest in re.findall(r'd="M([\d.]+) ([\d.]+)([^"]*)"', heat):
        if "H" in rest:
            rows.add(float(y))
        else:
            columns.add(float(x))
        corner = re.fullmatch(r"H([\d.]+)V[\d.]+", rest)
        if corner:
            columns.add(float(corner[1]))
    assert len(rows) == len(columns) == r + 1


def test_a_page_can_be_read_without_style_and_colour(make_release):
    """Colours come in variables for light, dark and paper; positive and negative differ in form as well."""
    page = unescape(model_page(make_release(r=8, n=100)))
    assert re.search(r"prefers-color-scheme:\s*dark", page)
    assert "@media print" in page
    heat = next(picture for picture in pictures(page) if "heat-title" in picture)
    assert set(re.findall(r"<rect[^>]*class=\"(\w+)\"", heat)) <= {"mark"}
    assert set(re.findall(r"<circle[^>]*class=\"(\w+)\"", heat)) <= {"warm"}
