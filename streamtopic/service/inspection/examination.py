"""Examine an instance or a service for faults before they do harm. Each line of the doctor names a remedy.

The doctor looks at keys, Redis, the log, the ledger, the state and its words, in this order. It changes nothing.
"""

from __future__ import annotations

import platform
from dataclasses import replace
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
from streamtopic.service.instance import differing, key_file, present_key
from streamtopic.service.log_history import END_TRANSACTION, count_remedy, departures, hidden, wanted_partitions
from streamtopic.service.publish.witnesses import Witnesses
from streamtopic.service.verify.finding import Finding, doubt, fails, holds
from streamtopic.signed import PublicKey, SigningKey, check_origin, load_secret
from streamtopic.state import MAX_WORD_IDS, ModelState, Reader
from streamtopic.state.meta import require_keys
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.word_ids import MANY_WORDS, NEARLY
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from streamtopic.service.instance import KeyName
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.settings import Settings
    from streamtopic.signed import Ledger
    from streamtopic.state import Connection, Meta, ModelSettings
    from streamtopic.streams import EventLog

__all__ = ["examine", "examine_log", "examine_state"]

_USERS: Mapping[KeyName, str] = {
    **dict.fromkeys(("signing.key", "noise.key", "receipt.key"), "schedule runs"),
    "suppression.key": "ingest or verify runs",
}
"""The secrets, and the processes that need them."""

_OLDEST_REDIS = (6, 2)
# Above this share of maxmemory a large hash that grows, and is there twice for a while, may find no memory.
_FULL = 0.8
_DISK = "see Redis's log; is its disk full?"
_SKEW_SECONDS = 5.0

_INIT = "run `streamtopic init`"
_RETENTION = {"retention.ms", "retention.bytes"}

_BUSY_OUTBOX = 1_000
_RUNNING = "is `streamtopic schedule` running?"


def examine(
    settings: Settings,
    fixed: ModelSettings,
    topics: Mapping[str, Mapping[str, str]],
    clock: Callable[[], float],
    *,
    connection: Callable[[], Connection],
    log: Callable[[], EventLog],
    ledger: Callable[[], LedgerWriter],
) -> Iterator[Finding]:
    """Yield each finding as it is made. A part that does not answer is a finding too, and the others go on.

    fixed: the settings that are fixed when a model is made, as they are now.
    topics: name of each topic to the settings that it should have.
    clock: seconds since 1970.
    connection, log, ledger: open each of them.
    """
    yield holds("program", f"streamtopic {__version__}, Python {platform.python_version()}, model {settings.model}")
    yield from _guarded("keys", lambda: examine_keys(settings, ledger))
    redis = yield from _guarded("redis", lambda: examine_redis(connection(), clock))
    read = yield from _guarded("log", lambda: examine_log(log(), settings, topics))
    if redis and read:
        yield from _guarded("ledger", lambda: examine_ledger(ledger(), settings, clock))
        yield from _guarded("state", lambda: examine_state(connection(), log(), settings, fixed, clock))
    else:
        yield doubt("state", "not looked at", "make Redis and the log answer first")


def _judged(name: str, detail: str, remedy: str, otherwise: Callable[[str, str, str], Finding] = doubt) -> Finding:
    """Return the finding of a check. remedy: "" if nothing is wrong; otherwise: what it is if something is."""
    return otherwise(name, detail, remedy) if remedy else holds(name, detail)


def _guarded(name: str, look: Callable[[], Iterator[Finding]]) -> Generator[Finding, None, bool]:
    """Yield the findings of one part; return whether the part could be examined."""
    try:
        yield from look()
    except StreamtopicError as error:
        # Its text ends with the remedy.
        yield fails(name, str(error), "")
        return False
    return True


def examine_keys(settings: Settings, ledger: Callable[[], LedgerWriter]) -> Iterator[Finding]:
    """Examine the secrets, which only their owner may read, and the public key that subscribers verify with."""
    signing: SigningKey | None = None
    for name, users in _USERS.items():
        path = key_file(settings, name)
        if path is None or not path.exists():
            # Off by default: a model has a key of suppressions only if somebody made it.
            if name != "suppression.key":
                own = settings.dir is not None and path is not None
                detail = "no folder of keys is set" if path is None else f"{path} is not here"
                remedy = f"fine here unless {users} on this machine; else restore it from your backup"
                yield (fails if own else doubt)(name, detail, remedy)
            continue
        try:
            if name == "signing.key":
                loaded = SigningKey.load(path)
                check_origin(loaded, settings.model)
                signing = loaded
            else:
                load_secret(path)
        except SettingsError as error:
            yield fails(name, str(error), "")
            continue
        yield holds(name, f"{path}, readable by its owner only")
    yield from _public_key(settings, ledger, signing)


def _public_key(
    settings: Settings, opened: Callable[[], LedgerWriter], signing: SigningKey | None
) -> Iterator[Finding]:
    """Examine whether the public key, or the key list of its root key, verifies the signatures of the service."""
    ledger = _read_ledger(opened)
    if ledger is not None and ledger.foreign:
        yield fails(
            "signing.pub",
            f"{TopicNames(settings.model).ledger} holds a key list of a root key that is not known here: if it revoked "
            "the signing key, subscribers refuse everything that it signs",
            "put root.pub and the newest signing.key into the folder of keys, as after a restore of older ones",
        )
        return
    path = present_key(settings, "root.pub", "signing.pub")
    if path is None:
        if signing is not None:
            yield holds("signing.pub", f"key {signing.public.key_id}, from the signing key")
        return
    public = PublicKey.load(path)
    keys = None if ledger is None else ledger.keys.keys
    if keys is not None:
        if signing is not None and signing.public not in keys.trusted:
            detail = f"key list {keys.sequence} does not name key {signing.public.key_id}, which signs"
            yield fails(
                "signing.pub", detail, "put the key that `streamtopic keys rotate` made in the place of signing.key"
            )
        else:
            detail = f"{path}, root key {public.key_id}, key list {keys.sequence}: key {keys.current.key_id} signs"
            yield holds("signing.pub", detail)
    elif signing is not None and signing.public != public:
        yield fails(
            "signing.pub",
            f"{path} holds key {public.key_id}, but key {signing.public.key_id} signs",
            "give the signing.pub that was made with the signing key, or publish a key list (`streamtopic keys "
            "publish`); subscribers refuse everything else",
        )
    else:
        # Without the private key here, nobody can say whether the two belong together.
        belongs = ", belongs to the signing key" if signing else ""
        yield holds("signing.pub", f"{path}, key {public.key_id}{belongs}")


def _read_ledger(opened: Callable[[], LedgerWriter]) -> Ledger | None:
    """Return the ledger; None if log or Redis does not answer, or no key is here, which are findings of their own."""
    try:
        writer = opened()
        writer.catch_up()
    except (ComponentUnreachable, SettingsError, StateMismatch):
        return None
    return writer.ledger


def examine_redis(connection: Connection, clock: Callable[[], float]) -> Iterator[Finding]:
    """Examine each server that holds keys: its version, its clock, and that it does not lose data."""
    servers = connection.servers()
    for place, info in servers.items():
        for finding in _server(place, info):
            # What is wrong with one node of a cluster says which.
            yield finding if len(servers) == 1 else replace(finding, name=f"{finding.name} {place}")
    told = (int(s) + int(micros) / 1e6 for s, micros in connection.everywhere("TIME").values())
    skews = [clock() - seconds for seconds in told]
    skew = max(skews, key=abs)
    detail = f"this machine is {skew:+.1f} s from Redis"
    yield _judged("clock", detail, "run NTP on both: receipts carry these times" if abs(skew) > _SKEW_SECONDS else "")
    yield from _redis_network(connection.address)


def _redis_network(address: str) -> Iterator[Finding]:
    """Examine whether what Redis is told can be read on the way to another machine."""
    found = clear_address(address)
    if found is None or found["scheme"] == "unix":
        return
    if found["scheme"].startswith("rediss"):
        yield holds("redis tls", "the connection is encrypted, and the server's certificate is checked")
    elif _elsewhere(found["server"]):
        remedy = "use rediss:// (docs/deploy.md): the network can read counts, ids and the password"
        yield doubt("redis tls", f"{found['server']} is reached without TLS", remedy)


def _elsewhere(servers: str) -> bool:
    """Return whether one of `host:port,host:port` is another machine."""
    places = servers.split(",")
    hosts = [place.rpartition(":")[0].strip("[]") or place for place in places]
    return not all(map(is_loopback, hosts))


def _server(place: str, info: dict[str, Any]) -> Iterator[Finding]:
    version = str(info["redis_version"])
    where = f"{place}, {info.get('server_name', 'redis')} {version}"
    release = tuple(int(part) for part in version.split(".")[:2])
    if release < _OLDEST_REDIS:
        yield fails("redis", where, "use Redis 6.2 or later, or Valkey")
    elif info["role"] != "master":
        yield fails("redis", f"{where}, a replica", "set redis_url to the primary")
    else:
        yield holds("redis", where)
    yield _policy(info)
    yield _memory(info)
    yield _persistence(info)
    yield from _replicas(place, info)


def _policy(info: dict[str, Any]) -> Finding:
    """Examine whether Redis may evict keys."""
    policy = str(info.get("maxmemory_policy", "unknown"))
    remedy = (
        "CONFIG SET maxmemory-policy noeviction, and in redis.conf: any other policy evicts counts when memory is full"
    )
    return _judged("eviction", f"maxmemory-policy {policy}", "" if policy == "noeviction" else remedy, fails)


def _memory(info: dict[str, Any]) -> Finding:
    """Examine the memory in use against the limit."""
    used = int(info["used_memory"])
    limit = int(info.get("maxmemory", 0))
    of = f"of {limit / 2**20:,.0f} MiB" if limit else "no maxmemory of its own"
    remedy = "raise maxmemory: at the limit ingest stops" if limit and used > _FULL * limit else ""
    return _judged("memory", f"{used / 2**20:,.0f} MiB used, {of}", remedy)


def _persistence(info: dict[str, Any]) -> Finding:
    """Examine the append-only file."""
    name = "persistence"
    if not info.get("aof_enabled"):
        remedy = "CONFIG SET appendonly yes, and in redis.conf: without it a restart sets counts and receipts back"
        return fails(name, "the append-only file is off", remedy)
    if info.get("aof_last_write_status") != "ok":
        return fails(name, "the append-only file cannot be written", _DISK)
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        detail = "the last snapshot failed: where `save` is set, Redis refuses writes until one succeeds"
        return fails(name, detail, _DISK)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        detail = "the append-only file could not be rewritten: it grows, and deleted documents stay in it"
        return doubt(name, detail, _DISK)
    return holds(name, "append-only file on")


def _replicas(place: str, info: dict[str, Any]) -> Iterator[Finding]:
    """Examine how much a replica may have missed when it takes its master's place."""
    name, replicas = "replicas", int(info.get("connected_slaves", 0))
    promoted = bool(info.get("cluster_enabled")) or "+sentinel://" in place
    if not replicas:
        if promoted:
            remedy = "give it a replica: if it is lost, so are its partitions until `streamtopic rebuild`"
            yield doubt(name, "none", remedy)
    elif "min_slaves_good_slaves" not in info:  # Redis shows this only where min-replicas-to-write is set
        detail = (
            f"{replicas}, and a master that has lost them goes on writing (min-replicas-to-write 0). A replica that is "
            "promoted lacks these writes: counts, deletions, receipts and versions come back from the log, keys of "
            "months that were made meanwhile do not"
        )
        remedy = "CONFIG SET min-replicas-to-write 1, and in redis.conf of every node"
        yield fails(name, detail, remedy) if promoted else doubt(name, detail, remedy)
    else:
        yield holds(name, f"{replicas}; without them nothing is written")


def examine_log(log: EventLog, settings: Settings, topics: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Examine each topic: partitions, settings, and whether deletes stay long enough to be read."""
    yield from _kafka_network(settings)
    names = TopicNames(settings.model)
    for topic, wanted in topics.items():
        count = log.partitions(topic)
        right = wanted_partitions(names, topic, settings.partitions)
        if not count:
            yield fails(topic, "there is no such topic", _INIT)
        elif count != right:
            remedy = count_remedy(names, topic, count)
            yield fails(topic, f"{count} partitions, not {right}", remedy)
        else:
            yield _topic_settings(log, settings, topic, count, wanted)
            yield from _topic_copies(log, settings, topic)


def _kafka_network(settings: Settings) -> Iterator[Finding]:
    """Examine whether what Kafka is told can be read on the way to another machine."""
    protocol = settings.kafka_security_protocol
    if settings.kafka is None:
        return
    if protocol.endswith("SSL"):
        yield holds("kafka tls", f"{protocol}: the connection is encrypted, and each broker's certificate is checked")
    elif _elsewhere(settings.kafka):
        remedy = "set kafka_security_protocol to SASL_SSL (docs/deploy.md): the network can read every document"
        yield doubt("kafka tls", f"{settings.kafka} is reached by {protocol}, without TLS", remedy)


def _topic_copies(log: EventLog, settings: Settings, topic: str) -> Iterator[Finding]:
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
        yield fails(name, detail, remedy)
    elif replicas == 1 and _elsewhere(servers):
        remedy = "use three replicas and min.insync.replicas 2 (docs/deploy.md): a lost disk loses these records"
        yield doubt(name, detail, remedy)
    elif in_sync < replicas:
        yield doubt(name, detail, "see the logs of the brokers: a replica does not follow")
    elif replicas > 1 and least == 1:
        remedy = "set min.insync.replicas to 2: a record that one broker confirmed alone is lost with it"
        yield doubt(name, detail, remedy)
    elif replicas > 1 and least == replicas:
        yield doubt(name, detail, "set min.insync.replicas one lower: without one broker nothing can be written")
    else:
        yield holds(name, detail)


def _topic_settings(log: EventLog, settings: Settings, topic: str, count: int, wanted: Mapping[str, str]) -> Finding:
    """Examine the settings of a topic."""
    if settings.kafka is None:
        return holds(topic, f"{count} partition(s), in files")
    changed = differing(log, topic, wanted)
    if not changed:
        return holds(topic, f"{count} partition(s), settings as they should be")
    detail = ", ".join(f"{name} is {have or 'not set'}, not {value}" for name, (have, value) in changed.items())
    loses_receipts = topic == TopicNames(settings.model).ledger and changed.keys() & _RETENTION
    if "cleanup.policy" in changed or loses_receipts:
        return fails(topic, detail, f"{_INIT}: documents or receipts would be lost, or deleted text would stay")
    if "compression.type" in changed:
        return fails(topic, detail, f"{_INIT}: a small record could unfold into gigabytes before anybody can refuse it")
    return doubt(topic, detail, _INIT)


def examine_ledger(writer: LedgerWriter, settings: Settings, clock: Callable[[], float]) -> Iterator[Finding]:
    """Examine whether the ledger is whole, whether witnesses sign it, and whether its service has spoken lately."""
    writer.catch_up()
    ledger = writer.ledger
    shown = f"{ledger.size:,} entries"
    if ledger.missing:
        gaps = ", ".join(ledger.missing)
        yield fails("ledger", f"{shown}, but {gaps} are missing from the log", "restore its topic from a backup")
    else:
        yield holds("ledger", f"{shown}, one tree; {ledger.strays} other records passed over")
    if settings.witnesses is not None and ledger.checkpoint:
        yield _witnesses(Witnesses.load(settings.witnesses), settings, ledger.checkpoint)
    yield _alive(ledger, clock())


def _witnesses(witnesses: Witnesses, settings: Settings, checkpoint: str) -> Finding:
    """Examine whether enough witnesses have signed the newest checkpoint."""
    signed = witnesses.signers(checkpoint)
    met = bool(signed) and witnesses.quorum.met_by(signed)
    names = ", ".join(sorted(signed)) or "no witness"
    detail = f"{names} signed the newest checkpoint, which is {'' if met else 'not '}the quorum"
    remedy = "" if met else "the log of `streamtopic schedule` says why"
    return _judged("witnesses", detail, remedy, fails if settings.require_witnesses else doubt)


def _alive(ledger: Ledger, now: float) -> Finding:
    """Examine the age of the service's last word on which version is the newest. now: seconds since 1970."""
    alive, name = ledger.alive, "alive"
    if alive is None:
        return doubt(name, "the service has not said yet which version is the newest", "start `schedule` or `run`")
    age = now - alive.made / 1000
    promised = f", and one was promised every {alive.interval / 1000:,.0f} s" if alive.interval else ""
    late = alive.interval and age > 2 * alive.interval / 1000
    detail = f"the last word on the newest version is {age:,.0f} s old{promised}"
    return _judged(name, detail, _RUNNING if late else "")


def examine_state(
    connection: Connection, log: EventLog, settings: Settings, fixed: ModelSettings, clock: Callable[[], float]
) -> Iterator[Finding]:
    """Examine the state against settings and log, and whether the parts of the service keep up."""
    found = ModelState.find(connection, settings.model)
    if found is None:
        remedy = "run `streamtopic init`, then `run`, or `ingest` and `schedule`"
        yield doubt("state", "there is none yet", remedy)
        return
    # For its checks: one that does not fit the settings is an error with its remedy.
    ModelState.open(connection, settings.model, fixed)
    yield holds("state", f"made for {fixed.partitions} partitions by {fixed.partitioner}, cap {fixed.cap}")
    reader = Reader(connection, settings.model, settings.partitions)
    try:
        positions = reader.positions()
    except StateMissing:
        yield doubt("counts", "nothing is counted yet", "start `streamtopic ingest`, or `run`")
        return
    for partition, meta in positions.items():
        yield _position(log, settings, clock(), partition, meta)
        yield from _lost_keys(connection, settings.model, partition)
        yield _words(f"words of partition {partition}", meta)
    yield from _open_transactions(log, settings.model, positions, clock)
    yield from _waiting(found)


def _position(log: EventLog, settings: Settings, now: float, partition: int, meta: Meta) -> Finding:
    """Examine how far a partition is counted. now: seconds since 1970."""
    name = f"partition {partition}"
    topic = TopicNames(settings.model).documents
    departed = departures(log, topic, settings.partitions, {partition: meta})
    if departed:
        return fails(name, departed[0].fault, departed[0].remedy)
    lag = log.end(topic, partition) - meta.next_offset
    age_ms = now * 1000 - meta.time_ms
    # Half of the retention, in milliseconds: from then on ingest compares all documents with the log.
    if lag and meta.time_ms and age_ms > settings.delete_retention * 500:
        days = age_ms / 86_400_000
        detail = f"the newest record counted is {days:.0f} days old, {lag} wait: deletes may have left the log"
        return doubt(name, detail, "start ingest: it compares all documents with the log before it goes on")
    return holds(name, f"{meta.documents} documents, {lag} records to count")


def _lost_keys(connection: Connection, model: str, partition: int) -> Iterator[Finding]:
    """Report keys of a partition that Redis has lost."""
    try:
        require_keys(connection, ModelKeys(model).partition(partition))
    except StateCorrupt as error:
        remedy = "stop ingest and run `streamtopic rebuild`; then see why Redis lost them (docs/operations.md)"
        yield fails(f"keys of partition {partition}", str(error), remedy)


def _open_transactions(
    log: EventLog, model: str, positions: Mapping[int, Meta], clock: Callable[[], float]
) -> Iterator[Finding]:
    """Report transactions that have hidden records for too long."""
    patience = STALLED_AFTER * 1000
    for one in hidden(log, TopicNames(model).documents, positions):
        age_ms = 1000 * clock() - one.since_ms
        if age_ms > patience:
            yield fails(
                "transaction", f"{one.text} for {age_ms / 1000:.0f} s, deletes perhaps among them", END_TRANSACTION
            )


def _waiting(state: ModelState) -> Iterator[Finding]:
    """Examine the outbox, and whether there is a model."""
    waiting = state.waiting()
    yield _judged("outbox", f"{waiting} records wait to be published", _RUNNING if waiting >= _BUSY_OUTBOX else "")
    if state.base_head() is None:
        yield doubt("model", "there is no base model yet", "`streamtopic status` gives the reason")


def _words(name: str, meta: Meta) -> Finding:
    """Examine the words and word ids of a partition."""
    remedy = ""
    if meta.next_word > NEARLY * MAX_WORD_IDS:
        remedy = "run `streamtopic rebuild`, which gives new ids: without ids ingest stops"
    elif meta.words > MANY_WORDS:
        remedy = "keep ids, hashes and base64 out of the texts: each word costs memory everywhere"
    return _judged(name, f"{meta.words:,}; {meta.next_word:,} of {MAX_WORD_IDS:,} word ids were given", remedy)
