"""A model that a test opens, with its parts by name."""

import threading
import time
from contextlib import ExitStack
from functools import cached_property

from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service import assembly, instance, leading, opened, sending
from streamtopic.service.publish.published import versions_of
from streamtopic.service.upkeep import model_removal, rebuild_state
from streamtopic.service.verify import gather, verify_instance
from streamtopic.service.watching import Watch
from streamtopic.settings import load
from streamtopic.state import Reader
from streamtopic.state.stored_counts import CountsStore

__all__ = ["PLAIN", "Service", "embedded", "silent"]

PLAIN = {"topics": 3, "max_forget_lag": 0.0, "capacity": {"rule": "fixed", "documents": 1000}, "max_df": 1.0}
silent = sending.silent


def embedded(folder, **more):
    """Return an instance in a folder that serves deletions at once, as updates; more: other settings, or the same."""
    return Service(load({"dir": folder, **PLAIN, **more}))


class Service:
    """What `opened` opens, and the parts that the program makes of it, each made once and when it is first asked for.

    The program makes only those that a command or a process needs. A test looks at all of them.
    """

    def __init__(self, settings, *, resident=False, kept=True, clock=time.time, watch=None):
        self._stack = ExitStack()
        self._open = lambda: opened.opened(settings, resident=resident, kept=kept, clock=clock)
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
        """Return what is opened: log, connection, state, keys, ledger."""
        if name in {"opened", "__wrapped__"}:
            raise AttributeError(name)
        return getattr(self.opened, name)

    def forget_parts(self):
        """Forget every part that was made, as a process does that ends: the next use makes it again."""
        for part in ("ingests", "open_ingest", "reader", "leader", "publisher", "work"):
            vars(self).pop(part, None)

    # Parts

    @cached_property
    def ingests(self):
        """The writer of each partition."""
        found = [self.open_ingest(partition) for partition in range(self.settings.partitions)]
        for ingest in found:
            self.watch.owns(ingest.partition, ingest)
            self._stack.callback(self.watch.gave_up, ingest.partition)
        return found

    @cached_property
    def open_ingest(self):
        """Take ownership of a partition."""
        return assembly.ingest_opener(self.opened, self.watch)

    @cached_property
    def reader(self):
        """Read the counts."""
        if self.opened.leads:
            _ = self.ingests
        return Reader(self.opened.connection, self.settings.model, self.settings.partitions)

    @cached_property
    def leader(self):
        """Decide, move and clear."""
        made = leading.Leader(self.opened, self.watch, threading.Event())
        self._stack.callback(made.close)
        return made

    @property
    def scheduler(self):
        """Decide, and stage versions."""
        return self.leader.scheduler

    @property
    def residue(self):
        """Remove traces."""
        return self.leader.residue

    @cached_property
    def publisher(self):
        """Publish what is due."""
        made = self.opened
        return assembly.publisher_of(made, made.state, made.ledger, watch=self.watch)

    @cached_property
    def work(self):
        """Do everything."""
        return leading.Embedded(self.opened.state, self.ingests, self.leader, self.publisher, self.watch)

    @property
    def sums(self):
        """The counts in Redis."""
        return CountsStore(self.opened.connection, self.settings.model)

    @property
    def door(self):
        """Take requests in."""
        return assembly.door_of(self.opened)

    @property
    def fixed(self):
        """What is fixed when a model is made."""
        return opened.fixed_of(self.settings)

    @property
    def topic_settings(self):
        """Kafka's settings of each topic."""
        return instance.topic_settings(self.settings)

    @property
    def public_key(self):
        """The key that verifies the ledger."""
        return instance.public_key(self.settings)

    @property
    def noise_key(self):
        """What noise is drawn from."""
        return NoiseKey(instance.secret(self.settings, "noise.key"))

    # Work

    def add(self, documents, update=silent):
        """Write add events."""
        return sending.add(self.opened, documents, update)

    def delete(self, ids):
        """Write delete events."""
        return sending.delete(self.opened, ids)

    def send(self, messages):
        """Write records."""
        return sending.send(self.opened, messages)

    def suppress(self, documents, subjects, *, suppressed=True):
        """Suppress ids and subjects."""
        return sending.suppress(self.opened, documents, subjects, suppressed=suppressed)

    def settle(self, update=silent, **more):
        """Do all that is due."""
        return self.work.settle(update, **more)

    def move_requests(self):
        """Move requests."""
        return self.leader.move_requests()

    def clear_residue(self, **more):
        """Clear traces."""
        return self.leader.clear_residue(**more)

    def publish(self):
        """Publish what is due."""
        return leading.publish(self.publisher)

    def rebuild(self, update=silent):
        """Make the state again."""
        vars(self.opened).pop("state", None)
        return rebuild_state.rebuild(self.opened, update)

    def end(self, *, keep_ledger):
        """Return the end of the ledger as it would be now."""
        return model_removal.facts_of(self.opened, keep_ledger=keep_ledger)

    def remove(self, path, end, update=silent):
        """Delete the model."""
        return model_removal.remove(self.opened, path, end, update)

    # Looks

    def subscriber(self):
        """Return a subscriber of this model."""
        model = self.settings.model
        return ModelSubscriber(self.opened.log, model=model, public_key=self.opened.keys, idle_seconds=0)

    def release(self, version):
        """Return a published version."""
        return assembly.release_of(self.opened, version)

    def receipts(self):
        """Return all receipts."""
        return list(Receipts(self.opened.log, model=self.settings.model, public_key=self.opened.keys))

    def versions(self):
        """Return every version."""
        return versions_of(self.opened.state)

    def model_before_noise(self):
        """Return the last model of this process."""
        return self.scheduler.modeller.last

    def status(self):
        """Return the status."""
        _ = self.reader
        return assembly.status(self.opened)

    def facts(self, state=None, *, served=False):
        """Return what is known now."""
        return assembly.facts_of(self.opened, state, served=served)

    def verify(self, update=silent, version=None):
        """Check everything."""
        return verify_instance(self.opened, self.reader, assembly.modeller_of(self.opened), update, version)

    def evidence(self, version, update=None):
        """Return the evidence about a version."""
        evidence, _ = gather(self.opened, self.reader, assembly.modeller_of(self.opened), version, update)
        return evidence

    def examine(self):
        """Yield what the doctor finds."""
        return assembly.examined(self.opened)

    def open_ledger(self, connection, keys):
        """Return the ledger for another thread."""
        return opened.open_ledger(self.opened, connection, keys)

    def key_ring(self):
        """Return keys for another thread."""
        return instance.key_ring(self.settings)
