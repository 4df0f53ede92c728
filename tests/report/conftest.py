"""Strict reading of pages and pictures."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from streamtopic.signed import Envelope, Head, Payload, Release

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=https://evil.example onerror=alert(1)>',
    "</svg></title></style>",
    "&lt;&amp;",
    "nul\x00bell\x07",
    "\u202egnitrevid",
    "]]>--><!--",
    "$\\frac{1}{0}$",
    "javascript:alert(1)",
    "half\ud800",
]
VOID = {"meta", "br", "hr", "col"}
DRAWN = {"svg", "circle", "rect", "path", "line", "text"}


class _Strict(HTMLParser):
    """Reads a page: every tag is closed in turn, nothing is loaded, nothing runs, and ids occur once."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text, self.tags, self.styles = [], [], [], [], [], []

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        if name not in VOID:
            self.open.append(name)
        for key, value in attributes:
            assert not key.startswith("on"), f"{name} runs {key}"
            assert key != "src", f"{name} loads {value}"
            if key == "style":
                self.styles.append(value)
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
        styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL)) + "".join(reader.styles)
        assert not re.search(r"url\(|@import|http|expression", styles)
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


@pytest.fixture(scope="session")
def make_release():
    """Make a release of r topics over n words; each topic has a part of the words for itself."""

    def make(n=40, r=4, version=1, seed=0, words=None, heads=None, withheld=False, **changes):
        rng = np.random.default_rng(seed)
        words = tuple(sorted(words or {f"w{k:05d}" for k in range(n)}))
        n = len(words)
        A = rng.dirichlet(np.full(n, 0.1), r).T
        theta = rng.dirichlet(np.full(r, 0.3), 400)
        top = tuple(tuple(words[k] for k in np.argsort(-A[:, t])[:20]) for t in range(r))
        parts = {} if withheld else {
            "A": A.astype(np.float32), "R": (theta.T @ theta / 400).astype(np.float32), "shares": theta.mean(axis=0),
            "top_words": top, "quality": {"npmi": 0.25, "diversity": 1.0},
        }  # fmt: skip
        envelope = Envelope(
            **{
                "model": "news", "version": version, "kind": "retrain", "parent": version - 1, "base": 1, "cut": {0: 9},
                "m": 2000, "n": n, "r": r, "guarantee": "certified", "epsilon": 1.0, "delta": 1e-6, "sigma": 8.5e-7,
                "tolerance": 1e-7, "certificate": 5e-11, "forgotten": 3,
                "capacity": 20, "capacity_rule": "share", "cumulative_epsilon": 1.5, "withdrawn": (),
                "created": 1_700_000_000_000, "ratio": 0.002, **changes,
            }
        )  # fmt: skip
        return Release(Payload(words, **parts, heads=heads or {}, anchors=words[:r]), envelope)

    return make


@pytest.fixture(scope="session")
def make_head():
    """Make the head of a task over a release's first topics."""

    def make(release, classes=("a", "b"), withheld=False):
        k, rng = 2, np.random.default_rng(7)
        w = None if withheld else rng.normal(size=(k, len(classes)))
        B = rng.normal(size=(release.envelope.n, len(classes))).astype(np.float32) if withheld else None
        return Head(release.anchors[:k], tuple(classes), 50, w, B)

    return make


@pytest.fixture(scope="session")
def hostile_words():
    """Words that would be markup, script or mathematics if they were not escaped, among plain ones."""
    return [*HOSTILE, *(f"plain{k}" for k in range(30))]
