"""Judge a running model, and examine what it runs on, before a fault does harm. What did not pass has a remedy.

    examine   everything, for the doctor: keys, Redis, the log, then the model
    judge     the facts of the model alone
    concerns  those that a person must act on or look at, for the status and the overview of the pages

Nothing is changed. No finding of the model holds a document's id or text, or names a person.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamtopic import __version__
from streamtopic.console import duration
from streamtopic.errors import (
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateMismatch,
    StateMissing,
    StreamtopicError,
)
from streamtopic.monitoring.open_connections import is_loopback
from streamtopic.security.concealing import clear_address
from streamtopic.service.finding import Finding, doubt, fails, holds
from streamtopic.service.inspection.facts import ModelFacts
from streamtopic.service.instance import differing, present_key, signing_key, topic_settings
from streamtopic.service.log_history import END_TRANSACTION, count_remedy, wanted_partitions
from streamtopic.service.opened import fixed_of
from streamtopic.service.publish.publisher import ALIVE_EVERY
from streamtopic.service.publish.witnesses import Witnesses
from streamtopic.signed import PublicKey, load_secret
from streamtopic.state import ModelState
from streamtopic.state.connection import ModelKeys
from streamtopic.state.deletion_requests import RequestState
from streamtopic.state.meta import require_keys
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from streamtopic.service.inspection.facts import Counted
    from streamtopic.service.instance import KeyName
    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings
    from streamtopic.signed import Ledger, SigningKey
    from streamtopic.state import Connection
    from streamtopic.streams import EventLog

    # Whether something is wrong, what the finding is then, its detail, and the remedy.
    Rule = tuple[bool, Callable[[str, str, str], Finding], str, str]

__all__ = ["concerns", "examine", "examine_log", "examine_redis", "examine_state", "judge"]

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
_HARMFUL = {"cleanup.policy", "compression.type"}

# Seconds: an entry of the ledger takes its way, and clocks differ.
_GRACE = 60.0
_LOOK_AT_SCHEDULE = "look whether `streamtopic schedule` runs"


def examine(service: Opened) -> Iterator[Finding]:
    """Yield each finding as it is made. A part that cannot be opened is a finding too, and the others go on."""
    settings = service.settings
    yield holds("program", f"streamtopic {__version__}, Python {platform.python_version()}, model {settings.model}")
    yield from _guarded("keys", lambda: examine_keys(service))
    redis = yield from _guarded("redis", lambda: examine_redis(service.connection, service.clock))
    read = yield from _guarded("log", lambda: examine_log(service.log, settings, topic_settings(settings)))
    if redis and read:
        # It is not compared with the settings yet.
        state = ModelState(service.connection, settings.model, fixed_of(settings))
        known = ModelFacts(service, state)
        yield from _guarded("ledger", lambda: _ledger(known))
        yield from _guarded("state", lambda: examine_state(known))
    else:
        yield doubt("state", "not looked at", "make Redis and the log answer first")


def _judged(name: str, well: str, *rules: Rule) -> Finding:
    """Return the finding of a check: that of the first rule by which something is wrong.

    well: the detail if nothing is, and of rules that have none of their own.
    """
    for wrong, finding, detail, remedy in rules:
        if wrong:
            return finding(name, detail or well, remedy)
    return holds(name, well)


def _guarded(name: str, look: Callable[[], Iterator[Finding]]) -> Generator[Finding, None, bool]:
    """Yield the findings of one part; return whether the part could be examined."""
    try:
        yield from look()
    except StreamtopicError as error:
        # Its text ends with the remedy.
        yield fails(name, str(error), "")
        return False
    return True


def examine_keys(service: Opened) -> Iterator[Finding]:
    """Examine the secrets, which only their owner may read, and the public key that subscribers verify with."""
    settings, signing = service.settings, None
    for name, users in _USERS.items():
        path = present_key(settings, name)
        if path is None:
            # Off by default: a model has a key of suppressions only if somebody made it.
            if name != "suppression.key":
                detail = f"it is not in the folder of keys ({settings.key_folder or 'none is set'})"
                remedy = f"fine here unless {users} on this machine; else restore it from your backup"
                yield (doubt if settings.dir is None else fails)(name, detail, remedy)
            continue
        try:
            if name == "signing.key":
                signing = signing_key(settings)
            else:
                load_secret(path)
        except SettingsError as error:
            yield fails(name, str(error), "")
            continue
        yield holds(name, f"{path}, readable by its owner only")
    yield from _public_key(service, signing)


def _public_key(service: Opened, signing: SigningKey | None) -> Iterator[Finding]:
    """Examine whether the public key, or the key list of its root key, verifies the signatures of the service."""
    settings = service.settings
    ledger: Ledger | None = None
    # That log or Redis does not answer, or that no key is here, is a finding of its own.
    with suppress(ComponentUnreachable, SettingsError, StateMismatch):
        service.ledger.catch_up()
        ledger = service.ledger.ledger
    if ledger is not None and ledger.foreign:
        yield fails(
            "signing.pub",
            f"{service.names.ledger} holds a key list of a root key that is not known here: if it revoked "
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
    listed = "no key list" if keys is None else f"key list {keys.sequence}"
    believed = (public,) if keys is None else keys.trusted
    # Without the private key here, nobody can say whether the two belong together.
    unknown = signing is not None and signing.public not in believed
    signs = "" if signing is None else f": key {signing.public.key_id} signs"
    detail = f"{path}, key {public.key_id}, {listed}{signs}"
    remedy = (
        "subscribers refuse what it signs: put the key that `streamtopic keys rotate` made in place of signing.key, "
        "give the signing.pub that was made with it, or publish a key list (`streamtopic keys rotate`)"
    )
    yield _judged("signing.pub", detail, (unknown, fails, "", remedy))


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
    remedy = "run NTP on both: receipts carry these times"
    yield _judged("clock", f"this machine is {skew:+.1f} s from Redis", (abs(skew) > _SKEW_SECONDS, doubt, "", remedy))
    found = clear_address(connection.address)
    if found is not None and found["scheme"] != "unix":
        remedy = "use rediss:// (docs/deploy.md): the network can read counts, ids and the password"
        yield from _network(
            "redis", found["server"], found["scheme"], remedy, secure=found["scheme"].startswith("rediss")
        )


def _network(name: str, servers: str, protocol: str, remedy: str, *, secure: bool) -> Iterator[Finding]:
    """Examine whether what servers are told can be read on the way to another machine."""
    if secure:
        yield holds(f"{name} tls", f"{protocol}: the connection is encrypted, and each server's certificate is checked")
    elif _elsewhere(servers):
        yield doubt(f"{name} tls", f"{servers} is reached by {protocol}, without TLS", remedy)


def _elsewhere(servers: str) -> bool:
    """Return whether one of `host:port,host:port` is another machine."""
    places = servers.split(",")
    hosts = [place.rpartition(":")[0].strip("[]") or place for place in places]
    return not all(map(is_loopback, hosts))


def _server(place: str, info: dict[str, Any]) -> Iterator[Finding]:
    version = str(info["redis_version"])
    release = tuple(int(part) for part in version.split(".")[:2])
    server = f"{place}, {info.get('server_name', 'redis')} {version}"
    yield _judged("redis", server, (release < _OLDEST_REDIS, fails, "", "use Redis 6.2 or later, or Valkey"))
    policy = str(info.get("maxmemory_policy", "unknown"))
    remedy = (
        "CONFIG SET maxmemory-policy noeviction, and in redis.conf: any other policy evicts counts when memory is full"
    )
    yield _judged("eviction", f"maxmemory-policy {policy}", (policy != "noeviction", fails, "", remedy))
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    of = f"of {limit / 2**20:,.0f} MiB" if limit else "no maxmemory of its own"
    full = 0 < _FULL * limit < used
    remedy = "raise maxmemory: at the limit ingest stops"
    yield _judged("memory", f"{used / 2**20:,.0f} MiB used, {of}", (full, doubt, "", remedy))
    yield _persistence(info)
    yield from _replicas(place, info)


def _persistence(info: dict[str, Any]) -> Finding:
    """Examine the append-only file."""
    off = "CONFIG SET appendonly yes, and in redis.conf: without it a restart sets counts and receipts back"
    unsaved = "the last snapshot failed: where `save` is set, Redis refuses writes until one succeeds"
    grows = "the append-only file could not be rewritten: it grows, and deleted documents stay in it"
    return _judged(
        "persistence",
        "append-only file on",
        (not info.get("aof_enabled"), fails, "the append-only file is off", off),
        (info.get("aof_last_write_status") != "ok", fails, "the append-only file cannot be written", _DISK),
        (info.get("rdb_last_bgsave_status", "ok") != "ok", fails, unsaved, _DISK),
        (info.get("aof_last_bgrewrite_status", "ok") != "ok", doubt, grows, _DISK),
    )


def _replicas(place: str, info: dict[str, Any]) -> Iterator[Finding]:
    """Examine how much a replica may have missed when it takes its master's place."""
    replicas = int(info.get("connected_slaves", 0))
    promoted = bool(info.get("cluster_enabled")) or "+sentinel://" in place
    alone = "give it a replica: if it is lost, so are its partitions until `streamtopic rebuild`"
    forgets = (
        f"{replicas}, and a master that has lost them goes on writing (min-replicas-to-write 0). A replica that is "
        "promoted lacks these writes: counts, deletions, receipts and versions come back from the log, keys of "
        "months that were made meanwhile do not"
    )
    remedy = "CONFIG SET min-replicas-to-write 1, and in redis.conf of every node"
    # Redis shows this only where min-replicas-to-write is set.
    unsafe = "min_slaves_good_slaves" not in info
    if replicas or promoted:
        yield _judged(
            "replicas",
            f"{replicas}; without them nothing is written",
            (not replicas, doubt, "none", alone),
            (unsafe, fails if promoted else doubt, forgets, remedy),
        )


def examine_log(log: EventLog, settings: Settings, topics: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Examine each topic: partitions, settings, and whether deletes stay long enough to be read."""
    if settings.kafka is not None:
        protocol = settings.kafka_security_protocol
        remedy = "set kafka_security_protocol to SASL_SSL (docs/deploy.md): the network can read every document"
        yield from _network("kafka", settings.kafka, protocol, remedy, secure=protocol.endswith("SSL"))
    names = TopicNames(settings.model)
    for topic, wanted in topics.items():
        count, right = log.partitions(topic), wanted_partitions(names, topic, settings.partitions)
        changed = differing(log, topic, wanted) if count == right else {}
        detail = ", ".join(f"{name} is {have or 'not set'}, not {value}" for name, (have, value) in changed.items())
        harmful = _HARMFUL | _RETENTION if topic == names.ledger else _HARMFUL
        lost = (
            f"{_INIT}: else documents or receipts are lost, deleted text stays, or a small record may unfold into "
            "gigabytes before anybody can refuse it"
        )
        yield _judged(
            topic,
            f"{count} partition(s), {'in files' if settings.kafka is None else 'settings as they should be'}",
            (not count, fails, "there is no such topic", _INIT),
            (count != right, fails, f"{count} partitions, not {right}", count_remedy(names, topic, count)),
            (not harmful.isdisjoint(changed), fails, detail, lost),
            (bool(changed), doubt, detail, _INIT),
        )
        if count == right:
            yield from _topic_copies(log, settings, topic)


def _topic_copies(log: EventLog, settings: Settings, topic: str) -> Iterator[Finding]:
    """Examine how many brokers may be lost before records of a topic are lost, or cannot be written."""
    servers = settings.kafka
    if servers is None:
        return
    name = f"copies of {topic}"
    known = log.describe(topic)
    replicas, in_sync = known.replicas, known.in_sync
    least = int(log.settings(topic).get("min.insync.replicas", 1))
    detail = f"{replicas} replica(s), {in_sync} in sync, min.insync.replicas {least}"
    # A broker on this machine alone is one for trying out.
    unsafe = not 1 < least < replicas and (replicas > 1 or _elsewhere(servers))
    down = "bring brokers back, or lower min.insync.replicas: until then nothing can be written"
    few = (
        "use three replicas and min.insync.replicas 2 (docs/deploy.md): else one broker that is lost takes records "
        "with it, or nothing can be written without it"
    )
    yield _judged(
        name,
        detail,
        (in_sync < least, fails, "", down),
        (in_sync < replicas, doubt, "", "see the logs of the brokers: a replica does not follow"),
        (unsafe, doubt, "", few),
    )


def examine_state(facts: ModelFacts) -> Iterator[Finding]:
    """Examine the state against settings and log, and judge the model that it holds."""
    connection, model, fixed = facts.state.connection, facts.state.model, facts.state.settings
    if ModelState.find(connection, model) is None:
        yield doubt("state", "there is none yet", "run `streamtopic init`, then `run`, or `ingest` and `schedule`")
        return
    # For its checks: one that does not fit the settings is an error with its remedy.
    ModelState.open(connection, model, fixed)
    yield holds("state", f"made for {fixed.partitions} partitions, cap {fixed.cap}")
    try:
        positions = facts.positions
    except StateMissing:
        yield doubt("counts", "nothing is counted yet", "start `streamtopic ingest`, or `run`")
        return
    for partition in positions:
        try:
            require_keys(connection, ModelKeys(model).partition(partition))
        except StateCorrupt as error:
            remedy = "stop ingest and run `streamtopic rebuild`; then see why Redis lost them (docs/operations.md)"
            yield fails(f"keys of partition {partition}", str(error), remedy)
    yield from _model(facts)


def concerns(facts: ModelFacts) -> list[Finding]:
    """Return what is wrong with a running model, or worth a look.

    That there is nothing is a promise: what should run does run, records are counted, deletions are in time, and the
    service's own checks passed.
    """
    return [finding for finding in judge(facts) if finding.passed is not True]


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """Yield every finding of a running model. Raises StateMissing before all partitions are counted."""
    yield from _ledger(facts)
    yield from _model(facts)


def _model(facts: ModelFacts) -> Iterator[Finding]:
    if not facts.at_rest:
        yield from _parts(facts)
    yield from _version(facts)
    yield from _deletions(facts)
    yield from _records(facts)


def _parts(facts: ModelFacts) -> Iterator[Finding]:
    """Examine whether what should run does run."""
    nobody = "no scheduler leads: no version is made, and no receipt"
    wrong = facts.leader is None
    yield _judged("scheduler", f"{facts.leader} leads", (wrong, fails, nobody, "start `streamtopic schedule`"))
    nobody = "nobody counts the partitions: no record takes effect"
    unknown = "whether somebody counts the partitions cannot be seen here"
    right = "give this user of Kafka the right to describe the consumer group: `deploy/kafka-acls.sh`"
    yield _judged(
        "ingest",
        "somebody counts the partitions",
        (facts.counting is False, fails, nobody, "start `streamtopic ingest`"),
        (facts.counting is None, doubt, unknown, right),
    )


def _version(facts: ModelFacts) -> Iterator[Finding]:
    """Examine the model and its newest version: what it bears, what was proved of it, and the service's own check."""
    name = "model"
    if facts.base is None:
        yield doubt(name, "there is no base model yet", "the last decision in `streamtopic status` says why")
    elif facts.capacity == 0:
        yield doubt(name, "capacity 0: every deletion is a retrain", "")
    _, record = facts.newest
    checks = record.get("checks", [])
    failed = [check["name"] for check in checks if not check["holds"]]
    if failed:
        yield doubt(name, f"{len(failed)} of {len(checks)} conditions of the proof fail: {', '.join(failed)}", "")
    ended = ", ".join(topic for topic, seeds in record.get("guided", {}).items() if not seeds)
    if ended:
        yield doubt(name, f"guided topics have ended, since the documents do not bear them any more: {ended}", "")
    if "vacuity" in record:
        yield doubt(name, record["vacuity"], "")
    if checked := facts.state.checked():
        well = f"version {checked['version']} passed the service's own check"
        wrong = f"the service's own check did not bear out version {checked['version']}: {checked['detail']}"
        remedy = "run `streamtopic verify`, and test the machine's memory"
        yield _judged("self-check", well, (not checked["passed"], fails, wrong, remedy))


def _deletions(facts: ModelFacts) -> Iterator[Finding]:
    """Examine whether deletions get on."""
    waiting, asked = facts.waiting, facts.requests
    late = f"a deletion has waited {duration(waiting.age)}; it may wait {duration(waiting.limit)}"
    remedy = f"{_LOOK_AT_SCHEDULE}; the last decision in `streamtopic status` says why no version is made"
    # Without a process nobody breaks a promise: `streamtopic unlearn` keeps it.
    wrong = doubt if facts.at_rest else fails
    yield _judged("deletions", f"{waiting.number:,} wait for their receipt", (waiting.late, wrong, late, remedy))
    number = len(facts.requested(RequestState.PAUSED))
    paused = f"the brake has paused requests for deletions: {number:,}"
    remedy = "decide about them: `streamtopic deletions approve` or `streamtopic deletions cancel`"
    yield _judged("requests", f"{len(asked):,} have not ended", (number > 0, fails, paused, remedy))


def _ledger(facts: ModelFacts) -> Iterator[Finding]:
    """Examine whether the ledger is whole, whether witnesses sign it, and whether its service has spoken lately."""
    ledger, settings = facts.ledger, facts.settings
    if isinstance(ledger, Exception):
        # Who has no key may still look at all else; a log that lost entries or refuses its reader is a fault.
        keyless = present_key(settings, "root.pub", "signing.pub", "signing.key") is None
        yield (doubt if keyless else fails)("ledger", f"it cannot be read here: {ledger}", "")
        return
    shown, gaps = f"{ledger.size:,} entries", ", ".join(ledger.missing)
    whole = f"{shown}, one tree; {ledger.strays} other records passed over"
    lost = f"{shown}, but {gaps} are missing from the log"
    yield _judged("ledger", whole, (bool(gaps), fails, lost, "restore its topic from a backup"))
    if settings.witnesses is not None and ledger.checkpoint:
        witnesses = Witnesses.load(settings.witnesses)
        signed = witnesses.signers(ledger.checkpoint)
        met = bool(signed) and witnesses.quorum.met_by(signed)
        names = ", ".join(sorted(signed)) or "no witness"
        detail = f"{names} signed the newest checkpoint, which is {'' if met else 'not '}the quorum"
        wrong = fails if settings.require_witnesses else doubt
        yield _judged("witnesses", detail, (not met, wrong, "", "the log of `streamtopic schedule` says why"))
    yield _alive(facts, ledger)


def _alive(facts: ModelFacts, ledger: Ledger) -> Finding:
    """Examine the age of the service's last word on which version is the newest."""
    alive, name = ledger.alive, "alive"
    missed = doubt if facts.at_rest else fails
    if alive is None:
        detail, remedy = "the service has not said yet which version is the newest", "start `schedule` or `run`"
        return (missed if facts.newest[0] else doubt)(name, detail, remedy)
    age, promised = facts.now - alive.made / 1000, alive.interval / 1000
    # A process that has ended promised no next entry, and where one should run another one should have written it.
    due = promised or ALIVE_EVERY
    late = age > due + _GRACE and bool(promised or not facts.at_rest)
    detail = f"the last word on the newest version is {age:,.0f} s old, and one was due every {due:,.0f} s"
    return _judged(name, detail, (late, missed, "", f"{_LOOK_AT_SCHEDULE}; subscribers notice it too"))


def _records(facts: ModelFacts) -> Iterator[Finding]:
    """Examine how far the documents topic is counted, and whether it is the one that was counted."""
    for one in facts.overdue:
        yield fails("transaction", f"{one.text} since {one.since}, deletes perhaps among them", END_TRANSACTION)
    for counted in facts.partitions:
        if counted.partition not in {one.partition for one in facts.departures}:
            yield _progress(facts, counted)
    for departure in facts.departures:
        place = "partitions" if departure.partition is None else f"partition {departure.partition}"
        yield fails(place, departure.fault, departure.remedy)


def _progress(facts: ModelFacts, one: Counted) -> Finding:
    """Examine how far a partition is counted."""
    well = f"{one.meta.documents} documents, {one.lag} records to count"
    stalled = one.stalled and not facts.at_rest
    still = f"{well}, and none was counted for {duration(one.still)}"
    look = "look whether `streamtopic ingest` runs, and what it logs; `streamtopic doctor` says which server is away"
    return _judged(f"partition {one.partition}", well, (stalled, fails, still, look))
