"""What tests of metrics and health share: a watched service on real parts, and which families have moved."""

import contextlib
import time
import urllib.error
import urllib.request

from embedded_service import Service
from streamtopic.documents.corpus import Document
from streamtopic.service.inspection.facts import show_gauges
from streamtopic.service.watching import Watch
from streamtopic.settings import Settings
from waiting import PATIENCE

MARK = "markedid"
RARE = "xylograph"
SUBJECTS = ("apple banana cherry damson elder", "iron copper silver gold tin")


class Clock:
    """Time that a test may move on; it never goes back behind the real one."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        """Return seconds since 1970."""
        return time.time() + self.ahead


def documents(number=60):
    """Documents of two topics, whose ids carry a mark."""
    words = [subject.split() for subject in SUBJECTS]
    return [
        Document(f"{MARK}-{n}", " ".join([words[n % 2][(n // 2 + k) % 5] for k in range(4)]), {}) for n in range(number)
    ]


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
    plain = {
        "dir": folder,
        "topics": 2,
        "min_df": 1,
        "max_df": 1.0,
        "max_forget_lag": 0,
        "capacity": {"rule": "fixed", "documents": 50},
        "self_check": 0,
        "residue_max_age": 0.0,
        "backups_kept": 0.0,
    }
    with Service(Settings(**{**plain, **more}), clock=clock, watch=watch) as service:

        def look():
            show_gauges(service.facts(), watch)
            watch.note()

        service.look = look
        yield service
