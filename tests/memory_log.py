"""An event log in memory, for tests that are about other things."""

from collections import defaultdict

from streamtopic.streams import Record


class MemoryLog:
    """What writers and readers of the ledger use of a log: topics of one partition, whose records stay."""

    def __init__(self):
        self._records = defaultdict(list)

    def partitions(self, _topic):
        return 1

    def settings(self, _topic):
        return {}

    def begin(self, _topic, _partition):
        return 0

    def end(self, topic, _partition):
        return len(self._records[topic])

    def append_many(self, topic, messages):
        there, first = self._records[topic], len(self._records[topic])
        for offset, message in enumerate(messages, start=first):
            there.append(Record(topic, 0, offset, message.key, message.value, message.headers, 0))
        return [(0, offset) for offset in range(first, len(there))]

    def read(self, topic, _partition, offset):
        return self._records[topic][offset:]

    def values(self, topic):
        """The values of all records of a topic."""
        return [record.value for record in self._records[topic]]
