"""A place in a Kafka consumer group."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from streamtopic.errors import SettingsError, StreamtopicError
from streamtopic.streams.event_log import Membership
from streamtopic.streams.kafka_clients import TRANSIENT, connect, mapped
from streamtopic.streams.kafka_compat import give_up
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["KafkaMembership"]

_PAUSE_SECONDS = 1.0
# A program that has not polled for so long does not work any more: others may have its partitions.
_BUSY_SECONDS = 300.0
_LOOK_MS = 250
_REBALANCE_MS = 120_000
# The longest time until a member notices that the group shares out again.
_HEARTBEAT_MS = 3_000
_LEAVE_SECONDS = 2.0
# The time after which the leader of a group notices that its topic has changed.
_METADATA_MS = 30_000

logger = logging.getLogger("streamtopic.streams")


class KafkaMembership(Membership):
    """A consumer that takes part in a group and reads nothing: all its partitions are paused. See Membership.

    A member keeps working on its partitions until the group has shared out again, and then on those that stay with it.
    A partition may have a new owner a moment before the old one knows: the fencing token decides, as always.

    topic: whose partitions the group shares.
    group: name of the group.
    session_timeout_ms: a member that is silent for so long loses its partitions.
    clock: monotonic seconds.
    """

    # It takes part in a thread of its own. kafka-python 3.0.12 goes on with a rebalance only within `poll`, and begins
    # it again if an answer comes between two polls: two busy members could rebalance for ever.

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        session_timeout_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._options, self._topic, self._group = options, topic, group
        self._session_ms = session_timeout_ms
        self._clock = clock
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = self._owned
        self._fault: StreamtopicError | None = None
        self.lost = f"it has not joined the consumer group {group} yet"
        self._asked = clock()

    def poll(self, seconds: float) -> frozenset[int]:
        """See Membership.poll; returns at once if ownership has changed since the last call."""
        with self._changed:
            self._asked = self._clock()
            # Also after a fault: a caller that polls again wants to try again.
            if self._thread is None and not self._left.is_set():
                self._thread = threading.Thread(target=self._run, name=f"member of {self._group}", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self._owned != self._seen or self._fault is not None, seconds)
            self._asked = self._clock()
            if self._fault is not None:
                fault, self._fault, self._thread = self._fault, None, None
                raise fault
            self._seen = self._owned
            return self._owned

    def leave(self) -> None:
        """See Membership.leave; takes about two seconds at most."""
        self._left.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_SECONDS)
            self._thread = None
        self._own(frozenset())

    def _run(self) -> None:
        """Take part until told to leave, as a new member after each error."""
        failing = False
        while not self._left.is_set():
            if not self._wanted:
                self._left.wait(_PAUSE_SECONDS)
                continue
            try:
                with _closing(self._join()) as consumer:
                    failing = False
                    self._take_part(consumer)
            except (StreamtopicError, errors.KafkaError, OSError, RuntimeError, ValueError) as error:
                fault = mapped(error, self._options, f"Read of group {self._group}")
                self.lost = str(fault)
                if not failing:
                    extra = {"event": "group_left"}
                    logger.warning("left the consumer group %s: %s", self._group, fault, extra=extra)
                failing = True
                # While no broker answers, a new process could not reach one either.
                passing = isinstance(error, (*TRANSIENT, errors.BrokerResponseError))
                if not passing or isinstance(fault, SettingsError):
                    with self._changed:
                        self._fault, self._owned = fault, frozenset()
                        self._changed.notify_all()
                    return
            # A member that is out of the group owns nothing: others may have its partitions by now.
            self._own(frozenset())
            self._left.wait(_PAUSE_SECONDS)

    @property
    def _wanted(self) -> bool:
        """Whether the program still polls."""
        return self._clock() - self._asked < _BUSY_SECONDS

    def _take_part(self, consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        """Take part until told to leave, or until the program polls no more."""
        while self._wanted and not self._left.is_set():
            timeout_ms = 4 * _LOOK_MS if _rejoining(consumer) else _LOOK_MS
            consumer.poll(timeout_ms=timeout_ms, max_records=1)
            self._take(consumer)
            self.lost = "" if _in_contact(consumer) else f"no broker answers for the consumer group {self._group}"

    def _take(self, consumer: Any) -> None:  # noqa: ANN401 - as above
        """Own what the group assigns, and pause it: records are read by another consumer, from the offset in Redis."""
        assigned = frozenset(consumer.assignment())
        consumer.pause(*(assigned - consumer.paused()))
        self._own(frozenset(place.partition for place in assigned))

    def _own(self, partitions: frozenset[int]) -> None:
        with self._changed:
            if partitions != self._owned:
                self._owned = partitions
                self._changed.notify_all()

    def _join(self) -> Any:  # noqa: ANN401 - as above
        consumer = connect(
            KafkaConsumer,
            self._options,
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=min(self._session_ms // 3, _HEARTBEAT_MS),
            max_poll_interval_ms=max(_REBALANCE_MS, self._session_ms),
            partition_assignment_strategy=(StickyPartitionAssignor,),
            enable_auto_commit=False,
            auto_offset_reset="latest",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            metadata_max_age_ms=_METADATA_MS,
        )
        consumer.subscribe([self._topic], listener=_Listener(lambda: self._take(consumer)))
        # The leader of a group shares out the partitions that it knows of: none, if it does not know the topic yet.
        if not consumer.partitions_for_topic(self._topic):
            with _closing(consumer):
                raise errors.UnknownTopicOrPartitionError(self._topic)
        return consumer


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is untyped
    """Tells at once that ownership has changed: `poll` itself would go on waiting for records."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def on_partitions_revoked(self, revoked: object) -> None:
        """Keep all partitions until the group has shared out again."""

    def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002 - kafka-python's signature
        self._changed()


def _rejoining(consumer: Any) -> bool:  # noqa: ANN401 - as above
    """Whether a rebalance is under way."""
    coordinator = consumer._coordinator  # noqa: SLF001 - kafka-python says it nowhere else
    if coordinator.rejoining:
        # A rebalance for changed metadata is forgotten if a poll ends before it does: the member would send no more
        # heartbeats, be put out of the group, and never know (kafka-python 3.0.12).
        coordinator.request_rejoin()
    return bool(coordinator.need_rejoin())


def _in_contact(consumer: Any) -> bool:  # noqa: ANN401 - as above
    """Whether the broker that looks after the group is known: the client forgets one that does not answer."""
    return consumer._coordinator.coordinator_id is not None  # noqa: SLF001 - as above


@contextmanager
def _closing(consumer: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Leave the group at the end."""
    try:
        yield consumer
    finally:
        give_up(consumer, autocommit=False, timeout_ms=int(_LEAVE_SECONDS * 500))
