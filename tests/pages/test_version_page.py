"""The page of a version: what it shows, and that it stays a page whatever the words are."""

import re

from embedded_service import Service
from streamtopic.pages.version_page import picture_facts, version_facts, version_page
from streamtopic.service.verify import gather
from strict_html import Strict


def text_of(page):
    """What a page says, without its data."""
    return " ".join(text for tag, text in Strict(page).text if tag not in {"script", "style"})


def test_a_page_shows_the_whole_model(facts_of, make_release, read_picture):
    """Topics with their words and shares, map, correlations: each is there, in words, in pictures and in tables."""
    release = make_release(n=60, r=6)
    page = version_page(facts_of(release))
    said = text_of(page)
    for topic in release.topics(10):
        assert f"Topic {topic.topic}" in said
        assert f"{topic.share:.1%}" in said
        assert all(word in said for word in topic.words)
    large = re.findall(r"<svg[^>]*aria-labelledby.*?</svg>", page, re.DOTALL)
    assert len(large) == 3  # and what was spent of the budget
    for picture in large:
        read_picture(picture)
    for picture in large[:2]:
        assert "<details>" in page.split(picture)[1][:1500]


def test_withheld_topics_are_not_looked_for(facts_of, make_release, make_head):
    """A version of heads alone says that topics are withheld, and has no picture of them."""
    head = make_head(make_release(), ("arts", "sports"), withheld=True)
    assert picture_facts(make_release(withheld=True, heads={"section": head}), []) is None
    tasks = {
        "heads": [
            {"task": "section", "topics": [], "classes": ["a"], "documents": 50, "sigma": 1.0, "ratio": 0.1},
        ],
        "unfitted": {},
        "words": {"section": {"arts": ["stage"]}},
    }
    page = version_page(facts_of(pictures=None, tasks=tasks))
    said = text_of(page)
    assert "topics are withheld" in said
    assert "Words of task section" in said
    assert 'id="map"' not in page


def test_a_public_page_has_no_figure_from_before_the_noise(prepared, monkeypatch):
    """Conditions of the proof are for auditors; the section says so."""
    checks = [{"name": "n", "value": 1.0, "relation": "<", "bound": 2.0, "source": "s", "holds": False}]

    def gathered(*arguments):
        evidence, known = gather(*arguments)
        return evidence | {"conditions": {"checks": checks, "constants": {}, "vacuity": None}}, known

    monkeypatch.setattr("streamtopic.pages.version_page.gather", gathered)
    with Service(prepared.settings) as service:
        whole, public = (version_facts(service, 2, public=public) for public in (False, True))
    assert "They are for auditors of the service, not for publication." in " ".join(version_page(whole).split())
    assert public["conditions"]["checks"] == []
    assert "not for publication" not in text_of(version_page(public))
