"""Suppression in a whole service: twins, verification, rebuilds, and processes without the key."""

import shutil

import numpy as np
import pytest

from embedded_service import SMALL, Service, silent, two_topics
from shared_noise import with_noise
from streamtopic.errors import SettingsError, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service.verify import passed
from streamtopic.settings import load
from streamtopic.signed import new_secret


@pytest.fixture
def world(tmp_path):
    """Return a function that opens services on one Redis, with the key of suppressions or without."""
    new_secret(tmp_path / "suppression.key")
    with LocalRedis() as server:

        def opened(name="one", *, key="suppression.key", url=server.url, **more):
            given = {"dir": with_noise(tmp_path / name), "redis_url": url, "model": name}
            own = tmp_path / name / "keys" / "suppression.key"
            own.unlink(missing_ok=True)
            if key:
                shutil.copy(tmp_path / key, own)
            return Service(load(SMALL | {"max_forget_lag": 0.0, "partitions": 2} | given | more))

        opened.path = tmp_path
        yield opened


def payload(service):
    """The newest published model."""
    return service.release(None).payload


def test_a_service_that_refused_what_was_forgotten_publishes_what_its_twin_does(world):
    """The twin never saw the person: its model before noise is the same, and verify agrees."""
    with world("saw") as saw, world("never") as never:
        saw.add([*two_topics(0, 40), *two_topics(40, 4, "alice")])
        saw.settle()
        saw.suppress(["d0"], ["alice"])
        saw.delete(["d0"])
        saw.door.receive((), subjects=["alice"])
        saw.add([*two_topics(0, 1), *two_topics(60, 3, "alice"), *two_topics(41, 1, "alice")])
        saw.state.request("retrain")
        (*_, version) = saw.settle().versions
        never.add(two_topics(1, 39))
        never.state.request("retrain")
        never.settle()
        assert version["documents"] == 39
        one, other = saw.scheduler.modeller.last, never.scheduler.modeller.last
        assert saw.status()["suppressed"] == 2
        assert payload(saw).words == payload(never).words
        assert one.words == other.words
        assert np.abs(one.A - other.A).max() <= 1e-12
        assert passed(saw.verify())
        # A replayed add is no deletion: nothing is due because of it.
        saw.add(two_topics(60, 3, "alice"))
        assert not saw.settle().versions


def test_without_the_key_nothing_is_counted_and_nothing_is_rebuilt(world):
    """A process without the key reads status and versions; to count, to rebuild and to suppress it refuses."""
    with world() as service:
        service.add(two_topics(0, 20))
        service.suppress(["d99"], [])
        service.settle()
    with world(key=None) as service:
        assert len(service.versions()) == 1
        with pytest.raises(SettingsError, match=r"suppression\.key"):
            service.open_ingest(0)
        with pytest.raises(UsageError, match=r"suppression\.key"):
            service.rebuild(silent)
        with pytest.raises(UsageError, match="suppression"):
            service.suppress(["d1"], [])
    new_secret(world.path / "second.key")
    with world(key="second.key") as service:
        with pytest.raises(SettingsError, match="has suppressions of key"):
            service.settle()
        # The documented way out where a key is lost: what it suppressed ends.
        service.rebuild(silent)
        assert service.status()["suppressed"] == 0
