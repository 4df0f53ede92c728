"""A model whose ingests can be killed, for tests of what the next process finds."""

import itertools
from collections import Counter

from plain_counts import all_counts, counts_in_log
from streamtopic.documents.events import encode_add
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.suppressions import Suppressions
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ModelSettings, Reader
from streamtopic.streams import TopicNames

NOW = 1_700_000_000.0
_numbers = itertools.count()


def add(name, *subjects, word="x"):
    """An add of a document with two words."""
    return encode_add(name, counts={word: 2, "y": 1}, subjects=subjects)


def new_model():
    """Return the name of a model that no other test uses."""
    return f"world{next(_numbers)}"


class IngestWorld:
    """A model, its log, and an ingest for each partition, which the next process may take over.

    model: its name; None for one that no other test uses.
    key: of suppressions.
    given: further options of its ingests.
    """

    def __init__(
        self, connection, log, partitions=2, *, model=None, key=None,
        **given,
    ):  # fmt: skip
        self.connection = connection
        self.topics = TopicNames(model or new_model())
        self.log = log
        self.partitions = partitions
        self.settings = ModelSettings(partitions, 256)
        self.key = key
        self.given = {"clock": lambda: NOW + 1, **given}
        self.log.create(self.topics.documents, partitions)
        self.log.create(self.topics.rejected, 1)
        self.log.create(self.topics.requests, 1)
        self.open()

    def open(self):
        """Take all partitions over, as the next process."""
        suppressions = Suppressions(self.connection, self.log, self.topics.model, self.key)
        self.ingests = [self.ingest(partition, suppressions=suppressions) for partition in range(self.partitions)]

    def ingest(self, partition=0, **given):
        """Take one partition over."""
        given = {"settings": self.settings, **self.given, **given}
        return Ingest(self.connection, self.log, self.topics, partition, **given)

    def send(self, *messages):
        """Append records to the partitions of their keys, where they name none."""
        self.log.append_many(self.topics.documents, messages)

    def work(self):
        """Count and carry out all that there is; yield the progress of each flush."""
        for _ in range(1_000):
            if not any(ingest.lag for ingest in self.ingests):
                return
            for ingest in self.ingests:
                yield from ingest.drain()
        raise AssertionError("there is always something left to do")

    def drain(self):
        """Count and carry out all that there is; return the outcomes."""
        return dict(sum((Counter(progress.outcomes) for progress in self.work()), Counter()))

    def live(self):
        """Ids of the documents that are counted."""
        return {name.decode() for ingest in self.ingests for ids in ingest.state.live_ids() for name in ids}

    def forgets(self):
        """All deletions that wait for their receipts."""
        return [forget for ingest in self.ingests for forget in ingest.state.forgets.read(0, 100_000)]

    def records(self):
        """All records of the documents topic."""
        topic = self.topics.documents
        return [record for p in range(self.partitions) for record in self.log.read(topic, p, 0, 100_000)]

    def log_values(self):
        """All bytes of values that the log still has."""
        return b"".join(record.value or b"" for record in self.records())

    def counted(self):
        """Digest of the counts in Redis."""
        return all_counts(Reader(self.connection, self.topics.model, self.partitions).counts())

    def recounted(self, ends=None):
        """Digest of a recount of the log, up to these ends if any are given."""
        ends = ends or {p: self.log.end(self.topics.documents, p) for p in range(self.partitions)}
        fresh = documents_in_log(self.log, self.topics.documents, ends, lambda *_: None, suppression=self.key)
        return counts_in_log(fresh)
