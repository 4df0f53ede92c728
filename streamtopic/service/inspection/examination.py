"""Examine an instance or a service for faults before they do harm. Each line of the doctor names a remedy.

The doctor looks at keys, Redis, the log, the ledger, the state and its words, in this order. It changes nothing.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from streamtopic import __version__
from streamtopic.errors import (
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateMismatch,
    StateMissing,
    StreamtopicError,
)
from streamtopic.monitoring.health import STALLED_AFTER
from streamtopic.monitoring.open_connections import is_loopback
from streamtopic.security.concealing import clear_address
from streamtopic.service.inspection.hidden_records import REMEDY, hidden
from streamtopic.service.instance import differing, suppression_file
from streamtopic.service.log_history import departures
from streamtopic.service.partition_counts import count_remedy, wanted_partitions
from streamtopic.service.publish.witnesses import Witnesses
from streamtopic.signed import PublicKey, SigningKey, check_origin, load_secret
from streamtopic.state import MAX_WORD_IDS, ModelState, Reader
from streamtopic.state.meta import changed_limits, require_keys
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.word_ids import MANY_WORDS, NEARLY
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from streamtopic.service.instance import Layout
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.settings import Settings
    from streamtopic.signed import Ledger
    from streamtopic.state import Connection, Meta, ModelSettings
    from streamtopic.streams import EventLog

__all__ = ["Diagnosis", "Level", "examine", "examine_log", "examine_words"]

_SECRETS = ("signing_key", "noise_key", "receipt_key")

_OLDEST_REDIS = (6, 2)
# Above this share of maxmemory a large hash that grows, and is there twice for a while, may find no memory.
_FULL = 0.8
_DISK = "see Redis's log; is its disk full?"
_SKEW_SECONDS = 5.0

_INIT = "run `streamtopic init`"
_RETENTION = {"retention.ms", "retention.bytes"}

_BUSY_OUTBOX = 1_000


class Level(StrEnum):
    """How bad a finding is: fine, worth a look, or something does not work or will be lost."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the doctor.

    name: the thing that was examined.
    level: how bad it is.
    detail: the facts.
    remedy: the change that mends it, "" if all is well.
    """

    name: str
    level: Level
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Diagnosis:
    """Return the finding that all is well."""
    return Diagnosis(name, Level.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Diagnosis:
    """Return the finding that a thing works, but not as well or as long as it might."""
    return Diagnosis(name, Level.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str) -> Diagnosis:
    """Return the finding that a thing does not work, or that data will be lost."""
    return Diagnosis(name, Level.FAIL, detail, remedy)


def examine(
    settings: Settings,
    layout: Layout | None,
    fixed: ModelSettings,
    topics: Mapping[str, Mapping[str, str]],
    clock: Callable[[], float],
    *,
    connection: Callable[[], Connection],
    log: Callable[[], EventLog],
    ledger: Callable[[], LedgerWriter],
) -> Iterator[Diagnosis]:
    """Yield each diagnosis as it is made. A part that does not answer is a diagnosis too, and the others go on.

    layout: of the instance's folder, None for a service.
    fixed: the settings that are fixed when a model is made, as they are now.
    topics: name of each topic to the settings that it should have.
    clock: seconds since 1970.
    connection, log, ledger: open each of them.
    """
    yield ok("program", f"streamtopic {__version__}, Python {platform.python_version()}, model {settings.model}")
    yield from _guarded("keys", lambda: examine_keys(settings, layout, ledger))
    redis = yield from _guarded("redis", lambda: examine_redis(connection(), clock))
    read = yield from _guarded("log", lambda: examine_log(log(), settings, topics))
    if redis and read:
        yield from _guarded("ledger", lambda: examine_ledger(ledger(), settings, clock))
        yield from _guarded("state", lambda: examine_state(connection(), log(), settings, fixed, clock))
        yield from _guarded("words", lambda: examine_words(connection(), settings, fixed))
    else:
        yield warn("state", "not looked at", "make Redis and the log answer first")


def _guarded(name: str, look: Callable[[], Iterator[Diagnosis]]) -> Generator[Diagnosis, None, bool]:
    """Yield the diagnoses of one part; return whether the part could be examined."""
    try:
        yield from look()
    except StreamtopicError as error:
        # An error of this program ends with its remedy, after the last colon.
        detail, _, remedy = str(error).rpartition(": ")
        yield fail(name, detail or str(error), remedy if detail else "see the message")
        return False
    return True


def examine_keys(settings: Settings, layout: Layout | None, ledger: Callable[[], LedgerWriter]) -> Iterator[Diagnosis]:
    """Examine the three secrets, which only their owner may read, and the public key that subscribers verify with."""
    signing: SigningKey | None = None
    for name in _SECRETS:
        path = _key_file(settings, layout, name)
        if path is None:
            yield warn(name, "not set", "fine here unless schedule runs on this machine; else name the file")
            continue
        try:
            loaded = _signing_key(settings, path) if name == "signing_key" else load_secret(path)
        except SettingsError as error:
            # An error of this program ends with its remedy, after the last semicolon or colon.
            detail, _, remedy = str(error).rpartition("; " if "; " in str(error) else ": ")
            yield fail(name, detail, remedy)
            continue
        if isinstance(loaded, SigningKey):
            signing = loaded
        yield ok(name, f"{path}, readable by its owner only")
    yield from _suppression_key(settings, layout)
    yield from _public_key(settings, layout, ledger, signing)


def _signing_key(settings: Settings, path: Path) -> SigningKey:
    """Return the key in a file. Raises SettingsError if it is damaged, or of another ledger."""
    key = SigningKey.load(path)
    check_origin(key, settings.model)
    return key


def _suppression_key(settings: Settings, layout: Layout | None) -> Iterator[Diagnosis]:
    """Examine the key of suppressions, where settings or an instance's folder name one."""
    path = suppression_file(settings, layout)
    if path is None:
        return
    try:
        load_secret(path)
    except SettingsError as error:
        detail, _, _ = str(error).partition("; ")
        remedy = "restore it from your backup; `streamtopic keys suppression` makes a new one"
        level = fail if path.exists() else warn
        yield level("suppression_key", detail, f"fine here unless ingest or verify runs on this machine; else {remedy}")
        return
    yield ok("suppression_key", f"{path}, readable by its owner only")


def _public_key(
    settings: Settings, layout: Layout | None, opened: Callable[[], LedgerWriter], signing: SigningKey | None
) -> Iterator[Diagnosis]:
    """Examine whether the public key, or the key list of its root key, verifies the signatures of the service."""
    ledger = _read_ledger(opened)
    if ledger is not None and ledger.foreign:
        yield fail(
            "public_key",
            f"{TopicNames(settings.model).ledger} holds a key list of a root key that is not known here: if it revoked "
            "the signing key, subscribers refuse everything that it signs",
            "name root.pub as public_key (in a folder: keys/root.pub) and the newest signing key, as after a restore "
            "from before the root key",
        )
        return
    path = _key_file(settings, layout, "public_key")
    if settings.public_key is None and layout is not None and layout.root_public_key.exists():
        path = layout.root_public_key
    if path is None:
        if signing is not None:
            yield ok("public_key", f"key {signing.public.key_id}, from the signing key")
        return
    public = PublicKey.load(path)
    keys = None if ledger is None else ledger.keys.keys
    if keys is not None:
        if signing is not None and signing.public not in keys.trusted:
            detail = f"key list {keys.sequence} does not name key {signing.public.key_id}, which signs"
            yield fail("public_key", detail, "set signing_key to the key that `streamtopic keys rotate` made")
        else:
            detail = f"{path}, root key {public.key_id}, key list {keys.sequence}: key {keys.current.key_id} signs"
            yield ok("public_key", detail)
    elif signing is not None and signing.public != public:
        yield fail(
            "public_key",
            f"{path} holds key {public.key_id}, but key {signing.public.key_id} signs",
            "give the signing.pub that was made with the signing key, or publish a key list (`streamtopic keys "
            "publish`); subscribers refuse everything else",
        )
    else:
        # Without the private key here, nobody can say whether the two belong together.
        belongs = ", belongs to the signing key" if signing else ""
        yield ok("public_key", f"{path}, key {public.key_id}{belongs}")


def _read_ledger(opened: Callable[[], LedgerWriter]) -> Ledger | None:
    """Return the ledger; None if log or Redis does not answer, or no key is here, which are findings of their own."""
    try:
        writer = opened()
        writer.catch_up()
    except (ComponentUnreachable, SettingsError, StateMismatch):
        return None
    return writer.ledger


def _key_file(settings: Settings, layout: Layout | None, name: str) -> Path | None:
    """Return the file of a key: the one that settings name, else the instance's own."""
    named: Path | None = getattr(settings, name)
    if named is not None or layout is None:
        return named
    own: Path = getattr(layout, name)
    return own


def examine_redis(connection: Connection, clock: Callable[[], float]) -> Iterator[Diagnosis]:
    """Examine each server that holds keys: its version, its clock, and that it does not lose data."""
    servers = connection.servers()
    for place, info in servers.items():
        for diagnosis in _server(place, info):
            # What is wrong with one node of a cluster says which.
            yield diagnosis if len(servers) == 1 else replace(diagnosis, name=f"{diagnosis.name} {place}")
    told = (int(s) + int(micros) / 1e6 for s, micros in connection.everywhere("TIME"))
    skews = [clock() - seconds for seconds in told]
    skew = max(skews, key=abs)
    if abs(skew) > _SKEW_SECONDS:
        yield warn("clock", f"this machine is {skew:+.0f} s from Redis", "run NTP on both: receipts carry these times")
    else:
        yield ok("clock", f"this machine is {skew:+.1f} s from Redis")
    yield from _redis_network(connection.address)


def _redis_network(address: str) -> Iterator[Diagnosis]:
    """Examine whether what Redis is told can be read on the way to another machine."""
    found = clear_address(address)
    if found is None or found["scheme"] == "unix":
        return
    if found["scheme"].startswith("rediss"):
        yield ok("redis tls", "the connection is encrypted, and the server's certificate is checked")
    elif _elsewhere(found["server"]):
        remedy = "use rediss:// (docs/deploy.md): the network can read counts, ids and the password"
        yield warn("redis tls", f"{found['server']} is reached without TLS", remedy)


def _elsewhere(servers: str) -> bool:
    """Return whether one of `host:port,host:port` is another machine."""
    places = servers.split(",")
    hosts = [place.rpartition(":")[0].strip("[]") or place for place in places]
    return not all(map(is_loopback, hosts))


def _server(place: str, info: dict[str, Any]) -> Iterator[Diagnosis]:
    version = str(info["redis_version"])
    where = f"{place}, {info.get('server_name', 'redis')} {version}"
    release = tuple(int(part) for part in version.split(".")[:2])
    if release < _OLDEST_REDIS:
        yield fail("redis", where, "use Redis 6.2 or later, or Valkey")
    elif info["role"] != "master":
        yield fail("redis", f"{where}, a replica", "set redis_url to the primary")
    else:
        yield ok("redis", where)
    yield _policy(info)
    yield from _memory(info)
    yield _persistence(info)
    yield from _replicas(place, info)


def _policy(info: dict[str, Any]) -> Diagnosis:
    """Examine whether Redis may evict keys."""
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok("eviction", "maxmemory-policy noeviction")
    remedy = (
        "CONFIG SET maxmemory-policy noeviction, and in redis.conf: any other policy evicts counts when memory is full"
    )
    return fail("eviction", f"maxmemory-policy {policy}", remedy)


def _memory(info: dict[str, Any]) -> Iterator[Diagnosis]:
    """Examine the memory in use against the limit."""
    used = int(info["used_memory"])
    limit = int(info.get("maxmemory", 0))
    shown = f"{used / 2**20:,.0f} MiB used"
    if not limit:
        yield ok("memory", f"{shown}, no maxmemory of its own")
        return
    detail = f"{shown} of {limit / 2**20:,.0f} MiB"
    if used > _FULL * limit:
        yield warn("memory", detail, "raise maxmemory: at the limit ingest stops")
    else:
        yield ok("memory", detail)


def _persistence(info: dict[str, Any]) -> Diagnosis:
    """Examine the append-only file."""
    name = "persistence"
    if not info.get("aof_enabled"):
        remedy = "CONFIG SET appendonly yes, and in redis.conf: without it a restart sets counts and receipts back"
        return fail(name, "the append-only file is off", remedy)
    if info.get("aof_last_write_status") != "ok":
        return fail(name, "the append-only file cannot be written", _DISK)
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        detail = "the last snapshot failed: where `save` is set, Redis refuses writes until one succeeds"
        return fail(name, detail, _DISK)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        detail = "the append-only file could not be rewritten: it grows, and deleted documents stay in it"
        return warn(name, detail, _DISK)
    return ok(name, "append-only file on")


def _replicas(place: str, info: dict[str, Any]) -> Iterator[Diagnosis]:
    """Examine how much a replica may have missed when it takes its master's place."""
    name, replicas = "replicas", int(info.get("connected_slaves", 0))
    promoted = bool(info.get("cluster_enabled")) or "+sentinel://" in place
    if not replicas:
        if promoted:
            remedy = "give it a replica: if it is lost, so are its partitions until `streamtopic rebuild`"
            yield warn(name, "none", remedy)
    elif "min_slaves_good_slaves" not in info:  # Redis shows this only where min-replicas-to-write is set
        detail = (
            f"{replicas}, and a master that has lost them goes on writing (min-replicas-to-write 0). A replica that is "
            "promoted lacks these writes: counts, deletions, receipts and versions come back from the log, keys of "
            "months that were made meanwhile do not"
        )
        remedy = "CONFIG SET min-replicas-to-write 1, and in redis.conf of every node"
        yield fail(name, detail, remedy) if promoted else warn(name, detail, remedy)
    else:
        yield ok(name, f"{replicas}; without them nothing is written")


def examine_log(log: EventLog, settings: Settings, topics: Mapping[str, Mapping[str, str]]) -> Iterator[Diagnosis]:
    """Examine each topic: partitions, settings, and whether deletes stay long enough to be read."""
    yield from _kafka_network(settings)
    names = TopicNames(settings.model)
    for topic, wanted in topics.items():
        count = log.partitions(topic)
        right = wanted_partitions(names, topic, settings.partitions)
        if not count:
            yield fail(topic, "there is no such topic", _INIT)
        elif count != right:
            remedy = count_remedy(names, topic, count)
            yield fail(topic, f"{count} partitions, not {right}", remedy)
        else:
            yield _topic_settings(log, settings, topic, count, wanted)
            yield from _topic_copies(log, settings, topic)


def _kafka_network(settings: Settings) -> Iterator[Diagnosis]:
    """Examine whether what Kafka is told can be read on the way to another machine."""
    protocol = settings.kafka_security_protocol
    if settings.kafka is None:
        return
    if protocol.endswith("SSL"):
        yield ok("kafka tls", f"{protocol}: the connection is encrypted, and each broker's certificate is checked")
    elif _elsewhere(settings.kafka):
        remedy = "set kafka_security_protocol to SASL_SSL (docs/deploy.md): the network can read every document"
        yield warn("kafka tls", f"{settings.kafka} is reached by {protocol}, without TLS", remedy)


def _topic_copies(log: EventLog, settings: Settings, topic: str) -> Iterator[Diagnosis]:
    """Examine how many brokers may be lost before records of a topic are lost, or cannot be written."""
    servers = settings.kafka
    if servers is None:
        return
    from streamtopic.streams.kafka_log import KafkaLog

    if not isinstance(log, KafkaLog):
        return
    name = f"copies of {topic}"
    replicas, in_sync = log.copies(topic)
    least = int(log.settings(topic).get("min.insync.replicas", 1))
    detail = f"{replicas} replica(s), {in_sync} in sync, min.insync.replicas {least}"
    if in_sync < least:
        remedy = "bring brokers back, or lower min.insync.replicas: until then nothing can be written"
        yield fail(name, detail, remedy)
    elif replicas == 1 and _elsewhere(servers):
        remedy = "use three replicas and min.insync.replicas 2 (docs/deploy.md): a lost disk loses these records"
        yield warn(name, detail, remedy)
    elif in_sync < replicas:
        yield warn(name, detail, "see the logs of the brokers: a replica does not follow")
    elif replicas > 1 and least == 1:
        remedy = "set min.insync.replicas to 2: a record that one broker confirmed alone is lost with it"
        yield warn(name, detail, remedy)
    elif replicas > 1 and least == replicas:
        yield warn(name, detail, "set min.insync.replicas one lower: without one broker nothing can be written")
    else:
        yield ok(name, detail)


def _topic_settings(log: EventLog, settings: Settings, topic: str, count: int, wanted: Mapping[str, str]) -> Diagnosis:
    """Examine the settings of a topic."""
    if settings.kafka is None:
        return ok(topic, f"{count} partition(s), in files")
    changed = differing(log, topic, wanted)
    if not changed:
        return ok(topic, f"{count} partition(s), settings as they should be")
    detail = ", ".join(f"{name} is {have or 'not set'}, not {value}" for name, (have, value) in changed.items())
    loses_receipts = topic == TopicNames(settings.model).ledger and changed.keys() & _RETENTION
    if "cleanup.policy" in changed or loses_receipts:
        return fail(topic, detail, f"{_INIT}: documents or receipts would be lost, or deleted text would stay")
    if "compression.type" in changed:
        return fail(topic, detail, f"{_INIT}: a small record could unfold into gigabytes before anybody can refuse it")
    return warn(topic, detail, _INIT)


def examine_ledger(writer: LedgerWriter, settings: Settings, clock: Callable[[], float]) -> Iterator[Diagnosis]:
    """Examine whether the ledger is whole, whether witnesses sign it, and whether its service has spoken lately."""
    writer.catch_up()
    ledger = writer.ledger
    shown = f"{ledger.size:,} entries"
    if ledger.missing:
        gaps = ", ".join(ledger.missing)
        yield fail("ledger", f"{shown}, but {gaps} are missing from the log", "restore its topic from a backup")
    else:
        yield ok("ledger", f"{shown}, one tree; {ledger.strays} other records passed over")
    if settings.witnesses is not None and ledger.checkpoint:
        yield _witnesses(Witnesses.load(settings.witnesses), settings, ledger.checkpoint)
    yield _alive(ledger, clock())


def _witnesses(witnesses: Witnesses, settings: Settings, checkpoint: str) -> Diagnosis:
    """Examine whether enough witnesses have signed the newest checkpoint."""
    signed = witnesses.signers(checkpoint)
    detail = f"{', '.join(sorted(signed)) or 'no witness'} signed the newest checkpoint"
    if signed and witnesses.quorum.met_by(signed):
        return ok("witnesses", detail)
    level = fail if settings.require_witnesses else warn
    return level("witnesses", f"{detail}, which is not the quorum", "the log of `streamtopic schedule` says why")


def _alive(ledger: Ledger, now: float) -> Diagnosis:
    """Examine the age of the service's last word on which version is the newest. now: seconds since 1970."""
    alive, name = ledger.alive, "alive"
    if alive is None:
        return warn(name, "the service has not said yet which version is the newest", "start `schedule` or `run`")
    age = now - alive.made / 1000
    detail = f"the last word on the newest version is {age:,.0f} s old"
    if alive.interval and age > 2 * alive.interval / 1000:
        return warn(name, f"{detail}, more than {2 * alive.interval / 1000:,.0f}", "is `streamtopic schedule` running?")
    return ok(name, detail)


def examine_state(
    connection: Connection, log: EventLog, settings: Settings, fixed: ModelSettings, clock: Callable[[], float]
) -> Iterator[Diagnosis]:
    """Examine the state against settings and log, and whether the parts of the service keep up."""
    found = ModelState.find(connection, settings.model)
    if found is None:
        remedy = "run `streamtopic init`, then `run`, or `ingest` and `schedule`"
        yield warn("state", "there is none yet", remedy)
        return
    if _named(found.settings) != _named(fixed):
        detail = f"made for {_named(found.settings)}, not for {_named(fixed)}"
        yield fail("state", detail, "go back to these settings, or `streamtopic rebuild` under the new ones")
        return
    limits = changed_limits(found.settings.limits, fixed.limits)
    if limits:
        detail = f"counted under other limits of records, or another `input`: {limits}"
        yield fail("state", detail, "run `streamtopic rebuild`")
        return
    yield ok("state", f"made for {_named(fixed)}")
    reader = Reader(connection, settings.model, settings.partitions)
    try:
        positions = reader.positions()
    except StateMissing:
        yield warn("counts", "nothing is counted yet", "start `streamtopic ingest`, or `run`")
        return
    for partition, meta in positions.items():
        yield _position(log, settings, clock(), partition, meta)
        yield from _lost_keys(connection, settings.model, partition)
    yield from _open_transactions(connection, log, settings.model, positions)
    yield from _waiting(reader, found, positions)


def _named(fixed: ModelSettings) -> str:
    """Return the fixed settings in words. Limits are left out: they follow from the program."""
    return f"{fixed.partitions} partitions by {fixed.partitioner}, cap {fixed.cap}"


def _position(log: EventLog, settings: Settings, now: float, partition: int, meta: Meta) -> Diagnosis:
    """Examine how far a partition is counted. now: seconds since 1970."""
    name = f"partition {partition}"
    topic = TopicNames(settings.model).documents
    departed = departures(log, topic, settings.partitions, {partition: meta})
    if departed:
        return fail(name, departed[0].fault, departed[0].remedy)
    lag = log.end(topic, partition) - meta.next_offset
    age_ms = now * 1000 - meta.time_ms
    # Half of the retention, in milliseconds: from then on ingest compares all documents with the log.
    if lag and meta.time_ms and age_ms > settings.delete_retention * 500:
        days = age_ms / 86_400_000
        detail = f"the newest record counted is {days:.0f} days old, {lag} wait: deletes may have left the log"
        return warn(name, detail, "start ingest: it compares all documents with the log before it goes on")
    return ok(name, f"{meta.documents} documents, {lag} records to count")


def _lost_keys(connection: Connection, model: str, partition: int) -> Iterator[Diagnosis]:
    """Report keys of a partition that Redis has lost."""
    try:
        require_keys(connection, ModelKeys(model).partition(partition))
    except StateCorrupt as error:
        remedy = "stop ingest and run `streamtopic rebuild`; then see why Redis lost them (docs/operations.md)"
        yield fail(f"keys of partition {partition}", str(error), remedy)


def _open_transactions(
    connection: Connection, log: EventLog, model: str, positions: Mapping[int, Meta]
) -> Iterator[Diagnosis]:
    """Report transactions that have hidden records for too long."""
    patience = STALLED_AFTER * 1000
    for one in hidden(log, TopicNames(model).documents, positions):
        age_ms = connection.time_ms() - one.since_ms
        if age_ms > patience:
            yield fail("transaction", f"{one.text} for {age_ms / 1000:.0f} s, deletes perhaps among them", REMEDY)


def _waiting(reader: Reader, state: ModelState, positions: Mapping[int, Meta]) -> Iterator[Diagnosis]:
    """Examine the outbox, the deletions that wait for a receipt, and whether there is a model."""
    waiting = len(state.outbox(_BUSY_OUTBOX))
    if waiting >= _BUSY_OUTBOX:
        yield warn("outbox", f"{waiting} records or more wait to be published", "is `streamtopic schedule` running?")
    else:
        yield ok("outbox", f"{waiting} records wait to be published")
    deletions = sum(len(reader.forgets(partition)) for partition in positions)
    yield ok("deletions", f"{deletions} wait for their receipt")
    if state.base_head() is None:
        yield warn("model", "there is no base model yet", "`streamtopic status` gives the reason")


def examine_words(connection: Connection, settings: Settings, fixed: ModelSettings) -> Iterator[Diagnosis]:
    """Examine words and word ids of each partition."""
    found = ModelState.find(connection, settings.model)
    # `examine_state` has reported both of these.
    if found is None or found.settings != fixed:
        return
    try:
        positions = Reader(connection, settings.model, settings.partitions).positions()
    except StateMissing:
        return
    for partition, meta in positions.items():
        yield _words(f"words of partition {partition}", meta)


def _words(name: str, meta: Meta) -> Diagnosis:
    """Examine the words and word ids of a partition."""
    shown = f"{meta.words:,}"
    if meta.next_word > NEARLY * MAX_WORD_IDS:
        detail = f"{shown}; {meta.next_word:,} of {MAX_WORD_IDS:,} word ids were given, most to words that are gone"
        return warn(name, detail, "run `streamtopic rebuild`, which gives new ids: without ids ingest stops")
    if meta.words > MANY_WORDS:
        return warn(name, f"{shown}: each costs memory everywhere", "keep ids, hashes and base64 out of the texts")
    return ok(name, shown)
