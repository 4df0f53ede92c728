"""The event log in files, for one machine without a broker.

    DIR/compacted               empty file whose age is that of the last compaction
    DIR/TOPIC/partitions        number of partitions
    DIR/TOPIC/settings          Kafka's topic settings, JSON
    DIR/TOPIC/P/lock            locked while a process appends
    DIR/TOPIC/P/OFFSET.log      frames (partition_files.py), from OFFSET on

A reader sees a record whole or not at all, also after kill -9. It needs POSIX (flock) and a local disk.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from streamtopic.errors import ComponentUnreachable, StateCorrupt, UsageError
from streamtopic.streams.event_log import (
    MAX_READ_BYTES,
    MAX_READ_RECORDS,
    Closing,
    Headers,
    Message,
    Record,
    check_count,
    check_new_topic,
    check_offset,
    check_partition,
    check_topic,
    placed,
)
from streamtopic.streams.partition_files import PartitionFiles

__all__ = ["FileLog"]

LOOK_SECONDS = 0.05


class FileLog(Closing):
    """An EventLog in a folder. Safe with several processes and threads.

    A confirmed record survives kill -9. A power cut may take the newest ones.

    directory: the folder, which is made if missing.
    clock: seconds since 1970, for the times of records.
    segment_bytes: size of a file after which the next one is begun.
    monotonic, sleep: clock of `wait`, seconds.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = 64 << 20,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._monotonic = monotonic
        self._sleep = sleep
        self._open: dict[tuple[str, int], PartitionFiles] = {}
        self._mutex = threading.RLock()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """See EventLog.create; settings are stored, but only a call of `compact` does anything about them."""
        check_new_topic(topic, partitions)
        existing = self.partitions(topic) or self._claim(topic, partitions, settings or {})
        check_count(topic, existing, partitions)

    def partitions(self, topic: str) -> int:
        """See EventLog.partitions."""
        with self._guard():
            try:
                return int((self._directory / topic / "partitions").read_text())
            except FileNotFoundError:
                return 0

    def settings(self, topic: str) -> Mapping[str, str]:
        """See EventLog.settings."""
        self._partitions(topic)
        with self._guard():
            try:
                found: dict[str, str] = json.loads((self._directory / topic / "settings").read_text("utf-8"))
            except FileNotFoundError:
                return {}
            except ValueError as error:
                path = self._directory / topic / "settings"
                raise StateCorrupt(f"{path} is damaged ({error}): remove it") from error
            return found

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """See EventLog.configure."""
        changed = {**self.settings(topic), **settings}
        with self._guard():
            path = self._directory / topic / "settings"
            self._aside(path, json.dumps(changed)).replace(path)

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int | None = None
    ) -> tuple[int, int]:
        """See EventLog.append."""
        return self.append_many(topic, [Message(key, value, headers, partition)])[0]

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """See EventLog.append_many; the records of a partition are written at once, with one time."""
        count = self._partitions(topic)
        partitions = placed(topic, messages, count)
        written: dict[int, list[int]] = {}
        for index, partition in enumerate(partitions):
            written.setdefault(partition, []).append(index)
        offsets = [0] * len(messages)
        timestamp = int(self._clock() * 1000)
        with self._guard():
            for partition, indexes in written.items():
                together = [messages[index] for index in indexes]
                first = self._files(topic, partition).append(together, timestamp)
                for offset, index in enumerate(indexes, first):
                    offsets[index] = offset
        return list(zip(partitions, offsets, strict=True))

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """See EventLog.read."""
        begin = self.begin(topic, partition)
        end = self.end(topic, partition)
        check_offset(topic, partition, offset, begin, end)
        records: list[Record] = []
        size = 0
        with self._guard():
            for frame in self._files(topic, partition).read(offset) if offset < end else ():
                key, value, headers = frame.decode()
                record = Record(topic, partition, frame.offset, key, value, headers, frame.timestamp_ms)
                size += record.size
                if records and (len(records) >= max_records or size > max_bytes):
                    break
                records.append(record)
        return records

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait; looks every 50 ms."""
        deadline = self._monotonic() + seconds
        while all(self.end(topic, partition) <= position for partition, position in positions.items()):
            remaining = deadline - self._monotonic()
            if remaining <= 0:
                return
            self._sleep(min(remaining, LOOK_SECONDS))

    def begin(self, topic: str, partition: int) -> int:
        """See EventLog.begin."""
        check_partition(topic, partition, self._partitions(topic))
        with self._guard():
            return self._files(topic, partition).begin()

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end."""
        check_partition(topic, partition, self._partitions(topic))
        with self._guard():
            return self._files(topic, partition).end()

    def written_end(self, topic: str, partition: int) -> int:
        """See EventLog.written_end; files have no transactions."""
        return self.end(topic, partition)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """See EventLog.offset_at; files keep no index of times, so this is their begin."""
        return self.begin(topic, partition)

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """See EventLog.appended_ms."""
        if offset >= self.end(topic, partition):
            return None
        found = self.read(topic, partition, max(offset, self.begin(topic, partition)), 1)
        return found[0].timestamp_ms if found else None

    def compact(self, topic: str, *, tombstones_ms: int = 30 * 24 * 3600 * 1000, younger_ms: int = 0) -> int:
        """Erase records that later ones of the same key supersede; return how many went.

        tombstones_ms: age after which tombstones go as well, milliseconds.
        younger_ms: age below which a record supersedes nothing, milliseconds; 0: each record does at once.

        This erases the text of a deleted document from the log. Readers and writers may go on meanwhile; offsets do
        not change. A topic with the setting `cleanup.policy=delete` keeps everything.
        """
        if self.settings(topic).get("cleanup.policy") == "delete":
            return 0
        now_ms = int(self._clock() * 1000)
        expired = now_ms - tombstones_ms
        settled = now_ms - younger_ms if younger_ms else None
        count = self._partitions(topic)
        with self._guard():
            return sum(self._files(topic, partition).compact(expired, settled) for partition in range(count))

    def compact_when_due(self, topics: Mapping[str, int], *, longest_ms: int, tombstones_ms: int) -> bool:
        """Compact topics where that is due, as Kafka does by itself; return whether it was done.

        topics: name of each topic to its `younger_ms`, as `compact` takes it.
        longest_ms: time within which a record that is superseded must be gone, milliseconds.
        tombstones_ms: as `compact` takes it, milliseconds.
        """
        done = self._directory / "compacted"
        now = self._clock()
        with self._guard():
            # The age of the file is that of the last compaction. A new log has nothing to compact: its time begins now.
            if not done.exists():
                done.touch(mode=0o600)
                os.utime(done, (now, now))
            # A delete that is too young for one compaction must not be too old at the next.
            due_ms = longest_ms - max(topics.values())
            if (now - done.stat().st_mtime) * 1000 < due_ms:
                return False
            for topic, younger_ms in topics.items():
                self.compact(topic, tombstones_ms=tombstones_ms, younger_ms=younger_ms)
            os.utime(done, (now, now))
        return True

    def remove(self, topic: str) -> None:
        """See EventLog.remove."""
        if not topic or "/" in topic or topic.startswith("."):
            raise UsageError(
                f"{topic!r} is not the name of a topic: take one without a slash and without a dot at its start"
            )
        folder = self._directory / topic
        with self._guard():
            # The number of partitions first: without it the topic is gone for everyone, however much is left of it.
            (folder / "partitions").unlink(missing_ok=True)
            if folder.exists():
                shutil.rmtree(folder)
            for key in [key for key in self._open if key[0] == topic]:
                del self._open[key]

    def members(self, group: str) -> list[str]:  # noqa: ARG002 - the protocol's
        """See EventLog.members."""
        return []

    def close(self) -> None:
        """See EventLog.close."""
        # Files are open within a call only, so only the index is to be dropped.
        self._open.clear()

    def _claim(self, topic: str, partitions: int, settings: Mapping[str, str]) -> int:
        """Make the folders of a topic; return its number of partitions, which another process may have decided."""
        with self._guard():
            for partition in range(partitions):
                self._files(topic, partition).create()
            path = self._directory / topic / "partitions"
            written = self._aside(path, str(partitions))
            # A link fails if the name exists: of several processes that create a topic, one decides.
            with suppress(FileExistsError):
                path.hardlink_to(written)
            written.unlink()
            if settings:
                self._aside(path, json.dumps(dict(settings))).replace(path.with_name("settings"))
        return self.partitions(topic)

    @staticmethod
    def _aside(path: Path, text: str) -> Path:
        """Write a file of this thread beside `path`; return its path. It can take the place of `path` at once."""
        written = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        # Settings name nobody, but a folder of documents is easier to check if nothing in it is open to others.
        written.touch(mode=0o600)
        written.write_text(text, "utf-8")
        return written

    def _files(self, topic: str, partition: int) -> PartitionFiles:
        key = (topic, partition)
        if key not in self._open:
            folder = self._directory / topic / str(partition)
            self._open[key] = PartitionFiles(folder, segment_bytes=self._segment_bytes)
        return self._open[key]

    def _partitions(self, topic: str) -> int:
        return check_topic(topic, self.partitions(topic), f"in {self._directory}")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let one thread at a time use the index of files. Errors of the file system become ComponentUnreachable."""
        with self._mutex:
            try:
                yield
            except OSError as error:
                raise ComponentUnreachable(
                    f"event log {self._directory}: {error.strerror or error}; check the folder and its free space"
                ) from error
