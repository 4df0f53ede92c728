"""What tests of metrics and health share: a watched service on real parts, and which families have moved."""

import contextlib
import time
import urllib.error
import urllib.request

from embedded_service import embedded, two_topics
from streamtopic.service.inspection.facts import show_gauges
from streamtopic.service.watching import Watch
from waiting import PATIENCE

MARK = "markedid"
RARE = "xylograph"


class Clock:
    """Time that a test may move on; it never goes back behind the real one."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        """Return seconds since 1970."""
        return time.time() + self.ahead


def documents():
    """Documents of two topics, whose ids carry a mark."""
    return two_topics(0, 60, prefix=f"{MARK}-")


def asked(address, path):
    """What a process answers at an address: status and text."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Watched(Watch):
    """Keeps what was shown at the moment when a version was staged, since a model is being made then."""

    def __init__(self, role="run"):
        super().__init__(role)
        self.changed = set()
        self._before = {}

    def samples(self):
        """Return the value of every series: name and labels' values, those of buckets included."""
        found = {}
        for metric in self.registry.collect():
            for sample in metric.samples:
                found[sample.name, tuple(sample.labels.values())] = sample.value
        return found

    def staged(self, kind):
        """Take it, and look."""
        super().staged(kind)
        self.note()

    def note(self):
        """Take down which series differ from the last time."""
        now = self.samples()
        for series in now.keys() | self._before.keys():
            if now.get(series) != self._before.get(series):
                self.changed.add(family_of(series[0]))
        self._before = now


def family_of(name):
    """Return the family that a series belongs to."""
    for end in ("_bucket", "_sum", "_count"):
        name = name.removesuffix(end)
    return name


@contextlib.contextmanager
def opened(folder, watch, clock, **more):
    """A watched instance in a folder, which clears up at once; its `look` sets the gauges."""
    plain = {"topics": 2, "min_df": 1, "self_check": 0, "residue_max_age": 0.0, "backups_kept": 0.0}
    plain["capacity"] = {"rule": "fixed", "documents": 50}
    with embedded(folder, clock=clock, watch=watch, **plain | more) as service:

        def look():
            show_gauges(service.facts(), watch)
            watch.note()

        service.look = look
        yield service
