"""A model that a test opens, and what commands and processes do with it."""

import time
from contextlib import ExitStack
from functools import cached_property, partial

from streamtopic.cli import main
from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.documents.corpus import Document
from streamtopic.service import assembly, instance, leading, sending
from streamtopic.service.inspection.doctor import concerns, examine
from streamtopic.service.inspection.facts import ModelFacts, status_fields, versions_of
from streamtopic.service.opened import opened
from streamtopic.service.requests.request_door import RequestDoor
from streamtopic.service.upkeep import model_removal, rebuild_state
from streamtopic.service.verify import gather, verify_instance
from streamtopic.service.watching import Watch
from streamtopic.settings import load
from streamtopic.signed import LedgerReader

__all__ = ["PLAIN", "SMALL", "Service", "embedded", "made_on_kafka", "silent", "two_topics"]

PLAIN = {"topics": 3, "max_forget_lag": 0.0, "capacity": {"rule": "fixed", "documents": 1000}, "max_df": 1.0}
SMALL = {"topics": 2, "min_df": 1, "max_df": 1.0, "max_forget_lag": 86400, "capacity": {"share": 0.5}}
WORDS = [["apple", "banana", "cherry", "damson", "elder"], ["iron", "copper", "silver", "gold", "tin"]]
silent = sending.silent
DONE = {
    "add": sending.add,
    "delete": sending.delete,
    "send": sending.send,
    "suppress": sending.suppress,
    "release": assembly.release_of,
    "facts": ModelFacts,
    "examine": examine,
    "rebuild": rebuild_state.rebuild,
    "end": model_removal.end_of,
    "remove": model_removal.remove,
}
"""What commands do with a service that is open."""


def embedded(folder, *, clock=time.time, watch=None, **more):
    """Return an instance in a folder that serves deletions at once, as updates; more: other settings, or the same."""
    return Service(load({"dir": folder, **PLAIN, **more}), clock=clock, watch=watch)


def made_on_kafka(folder, kafka, redis, model, *lines):
    """Make keys, topics and state of a model on these servers; return the file of its settings, with more lines."""
    config = folder / "streamtopic.toml"
    own = f'model = "{model}"', f'kafka = "{kafka.servers}"', f'redis_url = "{redis.url}"', 'keys = "keys"'
    config.write_text("\n".join([*own, *lines]))
    for command in (["keys", "new", "--to", str(folder / "keys")], ["init"]):
        assert main([*command, "--config", str(config), "--json"]) == 0
    return config


def two_topics(first, count, *subjects, prefix="d"):
    """Documents of two topics, numbered from `first` after a prefix, which are about these people."""
    texts = [" ".join(WORDS[n % 2][(n // 2 + k) % 5] for k in range(4)) for n in range(first, first + count)]
    return [Document(f"{prefix}{first + n}", text, {}, subjects=subjects) for n, text in enumerate(texts)]


class Service:
    """What `opened` opens, what commands do with it, and the parts of a process, made when they are first asked for."""

    def __init__(self, settings, *, resident=False, clock=time.time, watch=None):
        self._stack = ExitStack()
        self._open = lambda: opened(settings, resident=resident, clock=clock)
        self.settings = settings
        self.watch = watch or Watch()

    def __enter__(self):
        """Open it."""
        self.opened = self._stack.enter_context(self._open())
        return self

    def __exit__(self, *_):
        """Close all parts."""
        self._stack.close()

    def __getattr__(self, name):
        """Return what a command does, or what is opened: log, connection, state, keys, ledger."""
        if name in {"opened", "__wrapped__"}:
            raise AttributeError(name)
        return partial(DONE[name], self.opened) if name in DONE else getattr(self.opened, name)

    def forget_parts(self):
        """Forget every part that was made, as a process does that ends: the next use makes it again."""
        for part in ("ingests", "open_ingest", "leader", "publisher", "work"):
            vars(self).pop(part, None)

    @cached_property
    def open_ingest(self):
        """Take ownership of a partition."""
        return assembly.ingest_opener(self.opened, self.watch)

    @cached_property
    def ingests(self):
        """The writer of each partition."""
        found = [self.open_ingest(partition) for partition in range(self.settings.partitions)]
        for ingest in found:
            self.watch.owns(ingest.partition, ingest)
            self._stack.callback(self.watch.gave_up, ingest.partition)
        return found

    @cached_property
    def leader(self):
        """Decide, move requests and clear traces."""
        made = leading.Leader(self.opened, self.watch)
        self._stack.callback(made.close)
        return made

    @cached_property
    def publisher(self):
        """Publish what is due."""
        return assembly.publisher_of(self.opened, self.opened.state, self.opened.ledger, watch=self.watch)

    @cached_property
    def work(self):
        """Do everything."""
        return leading.Embedded(self.opened.state, self.ingests, self.leader, self.publisher)

    def count(self):
        """Count all that is in the log, and no more."""
        for ingest in self.ingests:
            list(ingest.drain())

    def settle(self, update=silent, **more):
        """Do all that is due."""
        return self.work.settle(update, **more)

    @property
    def scheduler(self):
        """Decide, and stage versions."""
        return self.leader.scheduler

    @property
    def reader(self):
        """Read the counts."""
        return assembly.reader_of(self.opened)

    @property
    def door(self):
        """Take requests in."""
        return RequestDoor(self.opened)

    @property
    def public_key(self):
        """The key that verifies the ledger."""
        return instance.public_key(self.settings)

    def subscriber(self):
        """Return a subscriber of this model."""
        model = self.settings.model
        return ModelSubscriber(self.opened.log, model=model, public_key=self.opened.keys, idle_seconds=0)

    def receipts(self):
        """Return all receipts."""
        return list(self.reader_of_receipts())

    def reader_of_receipts(self):
        """Return what a requester finds receipts with, who has the public key alone."""
        return Receipts(self.opened.log, model=self.settings.model, public_key=self.public_key)

    def entries(self, kind):
        """Return all entries of a kind in the ledger, as somebody reads them who begins."""
        ring = instance.key_ring(self.settings)
        found = LedgerReader(self.opened.log, self.settings.model, ring).catch_up()
        return [logged.entry for logged in found if isinstance(logged.entry, kind)]

    def versions(self):
        """Return every version."""
        return versions_of(self.opened.state)

    def status(self):
        """Return the status."""
        facts = self.facts()
        return status_fields(facts, [one.text for one in concerns(facts)])

    def verify(self, update=silent, version=None):
        """Check everything."""
        return verify_instance(self.opened, self.reader, assembly.modeller_of(self.opened), update, version)

    def evidence(self, version, update=None):
        """Return the evidence about a version."""
        evidence, _ = gather(self.opened, self.reader, assembly.modeller_of(self.opened), version, update)
        return evidence
