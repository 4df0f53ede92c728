"""Releases to be drawn, and a small service with deletions, requests and refused records behind a server."""

import shutil
from xml.etree import ElementTree as ET

import msgpack
import numpy as np
import pytest

from embedded_service import Service, two_topics
from ledger_maker import envelope_of
from streamtopic.local import LocalRedis
from streamtopic.pages.version_page import picture_facts, version_facts
from streamtopic.settings import Settings
from streamtopic.signed import Head, Payload, Release, new_secret
from streamtopic.streams import Message


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
        envelope = envelope_of(version, **{"m": 2000, "n": n, "r": r, "forgotten": 3, "ratio": 0.002, **changes})
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
def chromium():
    """A browser that this machine has; none is fetched."""
    from pages_client import MINUTES

    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; the extra `test` brings it"
    )
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("pages in a browser: needs chromium")
    with sync_api.sync_playwright() as playwright:
        # In a container the browser's own sandbox may not start; it opens this test's pages alone.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=MINUTES)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Two versions, a deletion that has its receipt, one that has waited too long, refused records, and requests."""
    from pages_client import HOSTILE, SECRET_ID, SECRET_TEXT, Prepared

    folder = tmp_path_factory.mktemp("pages") / "instance"
    plain = {"dir": folder, "topics": 2, "min_df": 1, "max_df": 1.0, "capacity": {"rule": "fixed", "documents": 50}}
    with LocalRedis() as redis:
        settings = Settings(**plain, max_forget_lag=0.0, redis_url=redis.url)
        keys = folder / "keys"
        keys.mkdir(mode=0o700, parents=True)
        new_secret(keys / "suppression.key")
        with Service(settings) as service:
            service.suppress(["nobody-1", "nobody-2"], ["somebody"])
            service.add(two_topics(0, 60))
            service.settle()
            (done,) = service.delete(["d1"])
            service.settle()
            refused = [Message(SECRET_ID.encode(), SECRET_TEXT.encode()), Message(None, SECRET_TEXT.encode())]
            service.send(refused)
            service.settle()
            forged = msgpack.packb({"partition": 0, "offset": 10**6, "reason": HOSTILE, "topic": "x"})
            service.log.append_many(service.names.rejected, [Message(HOSTILE.encode(), forged)])
        with Service(Settings(**plain, max_forget_lag=3600.0, redis_url=redis.url)) as service:
            service.delete(["d2"])
            service.settle()
        with Service(Settings(**plain, hold_seconds=1e6, brake_share=0.01, redis_url=redis.url)) as service:
            service.door.receive(["d3"])
            service.door.receive(["d4", "d5"])
            service.leader.move_requests()
            service.door.cancel(service.door.receive(["d6"]).request.id)
        # Whatever time has passed since is more than this.
        yield Prepared(Settings(**plain, max_forget_lag=1e-6, redis_url=redis.url), done)


@pytest.fixture(scope="session")
def ask(prepared):
    """Ask a server that anybody on this machine may read, and that takes requests with the token."""
    from pages_client import served

    with served(prepared.settings) as asking:
        yield asking


@pytest.fixture(scope="session")
def facts_of(prepared):
    """Return the facts of the prepared version, with the pictures of another release in their place."""
    with Service(prepared.settings) as service:
        facts = version_facts(service, 2)

    def of(release=None, earlier=(), **changes):
        if release is None:
            return facts | changes
        envelope = facts["envelope"] | {"m": release.envelope.m, "n": release.envelope.n, "r": release.envelope.r}
        return facts | {"envelope": envelope, "pictures": picture_facts(release, earlier), **changes}

    return of
