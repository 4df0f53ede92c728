"""A model with its ledger and index, under a name of its own: imported by several files, which share one Redis."""

import itertools
from dataclasses import replace

from ledger_maker import receipt_of
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.signed import KeyRing, SigningKey
from streamtopic.streams import FileLog, TopicNames

_numbers = itertools.count()


class World:
    """One model: its log, its Redis, and as many writers as a test wants."""

    def __init__(self, connection, folder):
        self.connection, self.folder = connection, folder
        self.model = f"ledger{next(_numbers)}"
        self.names = TopicNames(self.model)
        self.key = SigningKey.from_seed(bytes(32), f"test/{self.model}")
        self.log = self.opened("log")

    def opened(self, name):
        """A log with the topics of the model."""
        log = FileLog(self.folder / name)
        for topic in (self.names.ledger, self.names.releases):
            log.create(topic, 1, self.names.settings()[topic])
        return log

    def writer(self):
        return LedgerWriter(self.connection, self.log, self.model, self.keys(), self.key)

    def keys(self):
        return KeyRing.load(self.key.public, self.model)

    def receipt(self, offset, request="r"):
        known = {"request": f"{request}{offset}", "link": f"link{offset}"}
        return replace(receipt_of(offset, model=self.model), **known)
