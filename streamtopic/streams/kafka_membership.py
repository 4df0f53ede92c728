"""A place in a Kafka consumer group."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition, errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from streamtopic.errors import SettingsError
from streamtopic.streams.kafka_client import TRANSIENT, connect, mapped
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["KafkaMembership"]

# Losing the brokers for less than this is no reason to end a process: whoever starts it again would not do better.
_PATIENCE_SECONDS = 1800.0
_PAUSE_SECONDS = 1.0
# A poll does not end by itself when ownership changes.
_LOOK_SECONDS = 0.25
# At most so long do the others of a rebalance wait for a member that is busy; it keeps its partitions meanwhile.
_REBALANCE_MS = 120_000
_LEAVE_MS = 2_000
# How soon a leader notices that a topic has changed.
_METADATA_MS = 30_000
_REJOIN_SECONDS = 0.2

logger = logging.getLogger("streamtopic.streams")


class KafkaMembership:
    """A consumer that takes part in a group and reads nothing: all its partitions are paused.

    Partitions move one by one (cooperative rebalancing): a member keeps working on those that stay with it. See
    Membership. clock: monotonic seconds.
    """

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        session_timeout_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options, self._topic, self._group = options, topic, group
        self._session_ms = session_timeout_ms
        self._clock, self._sleep = clock, sleep
        self._consumer: Any = None
        self._failing_since: float | None = None
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def poll(self, seconds: float) -> frozenset[int]:
        """See Membership.poll."""
        try:
            if self._consumer is None:
                self._consumer = self._join()
            owned = frozenset(self._consumer.assignment())
            # A poll of no length never gets through a rebalance: each step of it is begun and given up.
            rejoining = self._consumer._coordinator.need_rejoin()  # noqa: SLF001 - kafka-python says it nowhere else
            deadline = self._clock() + max(seconds, _REJOIN_SECONDS if rejoining else 0.0)
            while True:
                self._consumer.poll(timeout_ms=int(max(deadline - self._clock(), 0) * 1000), max_records=1)
                found = frozenset(self._consumer.assignment())
                self._consumer.pause(*(found - self._consumer.paused()))
                if found != owned or self._clock() >= deadline:
                    break
        except (errors.KafkaError, OSError, RuntimeError, ValueError) as error:
            self._failed(error)
            self._sleep(min(seconds, _PAUSE_SECONDS))
            return frozenset()
        self._failing_since = None
        return frozenset(place.partition for place in found)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """See Membership.commit; does not wait for the answer."""
        self._committed = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        if self._consumer is not None and offsets:
            with suppress(errors.KafkaError, OSError, RuntimeError):
                self._consumer.commit_async(self._committed)

    def leave(self) -> None:
        """See Membership.leave; takes two seconds at most."""
        if self._consumer is not None:
            if self._committed:
                with suppress(errors.KafkaError, OSError, RuntimeError):
                    self._consumer.commit(self._committed, timeout_ms=_LEAVE_MS // 2)
            self._discard()

    def _join(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        consumer = connect(
            KafkaConsumer,
            self._options,
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=min(self._session_ms // 3, 3_000),
            max_poll_interval_ms=max(_REBALANCE_MS, self._session_ms),
            partition_assignment_strategy=(CooperativeStickyAssignor,),
            enable_auto_commit=False,
            auto_offset_reset="latest",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            metadata_max_age_ms=_METADATA_MS,
        )
        # Whoever leads the group shares out what it knows of: nothing, if it has not heard of the topic yet.
        if not consumer.partitions_for_topic(self._topic):
            consumer.close(autocommit=False, timeout_ms=0)
            raise errors.UnknownTopicOrPartitionError(self._topic)
        consumer.subscribe([self._topic])
        return consumer

    def _failed(self, error: Exception) -> None:
        """Start over at the next poll, as a new member; raise what will not pass."""
        self._discard()
        fault = mapped(error, self._options.servers)
        now = self._clock()
        if self._failing_since is None:
            logger.warning("left the group %s: %s", self._group, fault)
            self._failing_since = now
        lasting = isinstance(fault, SettingsError) or not isinstance(error, (*TRANSIENT, errors.BrokerResponseError))
        if lasting or now - self._failing_since > _PATIENCE_SECONDS:
            raise fault from error

    def _discard(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Exception):  # what is wrong with it no longer matters
                consumer.close(autocommit=False, timeout_ms=_LEAVE_MS // 2)
