"""The state of an instance or a service, as `status` shows it."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic.errors import SettingsError, StateMismatch
from streamtopic.monitoring.health import STALLED_AFTER
from streamtopic.service.log_history import END_TRANSACTION, departures, hidden
from streamtopic.service.publish.erasure import residue_fields
from streamtopic.service.publish.published import versions_of
from streamtopic.service.schedule.decide import decision_text
from streamtopic.signed.signing_keys import read_note
from streamtopic.state import Suppressed
from streamtopic.state.deletions import ResidueState
from streamtopic.state.stored_counts import CountsStore
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamtopic.service.log_history import Hidden
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.service.schedule.modeller import Base
    from streamtopic.service.schedule.situation import SituationReader
    from streamtopic.settings import Settings
    from streamtopic.signed import Alive
    from streamtopic.state import Meta, ModelState, Reader
    from streamtopic.streams import EventLog

__all__ = ["status_of"]


def _remarks(state: ModelState, base: Base | None) -> list[str]:
    """Return remarks on the model: no capacity, conditions of the proof that fail, a failed self-check."""
    remarks = []
    if base is not None and base.capacity == 0 and base.guarantee != "private":
        remarks.append("capacity 0: every deletion is a retrain")
    newest = state.releases(1)
    record = newest[0][1] if newest else {}
    checks = record.get("checks", [])
    failed = [check["name"] for check in checks if not check["holds"]]
    if failed:
        names = ", ".join(failed)
        remarks.append(f"{len(failed)} of {len(checks)} conditions of the proof fail: {names}")
    guided = record.get("guided", {})
    ended = [name for name, seeds in guided.items() if not seeds]
    if ended:
        names = ", ".join(ended)
        remarks.append(f"guided topics have ended, since the documents do not bear them any more: {names}")
    if "vacuity" in record:
        remarks.append(record["vacuity"])
    checked = state.checked()
    if checked is not None and not checked["passed"]:
        remarks.append(
            f"the service's own check did not bear out version {checked['version']}, which was not published: "
            f"{checked['detail']}; run `streamtopic verify`"
        )
    return remarks


def _self_check(settings: Settings, state: ModelState, situation: SituationReader, now: float) -> dict[str, Any]:
    """Return the last of the service's own checks.

    interval: seconds from one check to the next, None if updates are not checked.
    at: time of the last check, milliseconds since 1970.
    age: seconds since the last check.
    seconds: how long the last check took.
    unchecked: number of versions carried over in memory since the last version that was learned cold or checked.
    """
    last = state.checked() or {}
    at = last.get("at")
    # The clock of the scheduler's machine may be ahead of this one.
    age = None if at is None else round(max(0.0, now - at / 1000), 3)
    return {
        "interval": None if settings.self_check == "off" else settings.self_check,
        "version": last.get("version"),
        "passed": last.get("passed"),
        "detail": last.get("detail"),
        "at": at,
        "age": age,
        "seconds": last.get("seconds"),
        "unchecked": len(situation.suspects()),
    }


def _ledger(opened: Callable[[], LedgerWriter], now: float) -> dict[str, Any]:
    """Return the state of the ledger.

    size: number of entries.
    gaps: number of entries that its topic has lost.
    strays: number of records that are not part of it.
    witnesses: number of others who signed the newest checkpoint.
    alive: the last word on the versions, None before the first: when it was made in milliseconds since 1970, its age in
        seconds, the seconds until the promised next one (below 0 if it is late, None if none is promised), the
        newest version, and how many are withdrawn.
    unread: why it cannot be read here; then all else is None.
    """
    nothing: dict[str, Any] = dict.fromkeys(("size", "gaps", "strays", "witnesses", "alive", "unread"))
    try:
        writer = opened()
        writer.catch_up()
    except (SettingsError, StateMismatch) as error:
        # All other fields are of use also if there is no key to verify with.
        return nothing | {"unread": str(error)}
    ledger = writer.ledger
    return nothing | {
        "size": ledger.size,
        "gaps": len(ledger.gaps),
        "strays": ledger.strays,
        "witnesses": len(read_note(ledger.checkpoint).signatures) - 1 if ledger.checkpoint else 0,
        "alive": None if ledger.alive is None else _alive(ledger.alive, now),
    }


def _alive(alive: Alive, now: float) -> dict[str, Any]:
    """Return the last word on the versions. now: seconds since 1970."""
    age = now - alive.made / 1000
    return {
        "made": alive.made,
        "age": round(age, 3),
        "due": round(alive.interval / 1000 - age, 3) if alive.interval else None,
        "newest": alive.newest,
        "withdrawn": len(alive.withdrawn),
    }


def _moment(time_ms: int) -> str:
    """Return a time as people read it, in UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="seconds")


def status_of(
    settings: Settings,
    log: EventLog,
    state: ModelState,
    reader: Reader,
    situation: SituationReader,
    ledger: Callable[[], LedgerWriter],
    *,
    running: bool,
    now: float,
) -> dict[str, Any]:
    """Return the fields that `status --json` shows.

    ledger: opens it; a process without a key cannot.
    running: whether another process works on the instance, or on the service.
    now: seconds since 1970.

    The fields:

    ledger: as `_ledger`.
    lag: number of records that are not counted yet.
    words: number of words of live documents, by partition.
    word_ids: number of word ids given so far, also to words that are gone, by partition.
    counts: the co-occurrence counts of the working vocabulary, as `_counts_fields`.
    suppressed: number of ids and subjects that are suppressed.
    hidden: records that cannot be read before a transaction ends.
    guarantee, ratio, covered, unfitted: of the last version. ratio: of the noise to the model. unfitted: for each task
        without a head, the reason.
    remarks: on the last version, on transactions that hide records for too long, and on a documents topic that is not
        the one that was counted.
    healthy: whether every record that can be read is counted in time.

    Raises StateMissing before all partitions are counted, ComponentUnreachable.
    """
    positions = reader.positions()
    topic = TopicNames(settings.model).documents
    departed = departures(log, topic, settings.partitions, positions)
    hiding = hidden(log, topic, positions)
    now_ms = int(now * 1000)
    patience_ms = STALLED_AFTER * 1000
    overdue = [one for one in hiding if now_ms - one.since_ms > patience_ms]
    lag = receipts = 0
    outcomes = Counter[str]()
    stalled = []
    for partition, meta in positions.items():
        # Below 0 in a log that was cut, which is among `departed`.
        behind = max(log.end(topic, partition) - meta.next_offset, 0)
        lag += behind
        # A service is alive while it moves: a lag alone only says that there is work.
        if behind > 0 and now_ms - _waits_since(log, topic, partition, meta, now_ms - patience_ms) > patience_ms:
            stalled.append(partition)
        receipts += len(reader.forgets(partition))
        outcomes.update(meta.totals)
    residue = ResidueState(state.connection, settings.model).read()
    facts = _model(settings, state, situation, overdue, now)
    facts["remarks"] += [one.text for one in departed]
    facts["words"] = {partition: meta.words for partition, meta in positions.items()}
    facts["word_ids"] = {partition: meta.next_word for partition, meta in positions.items()}
    facts["counts"] = _counts_fields(state)
    facts["lag"] = lag
    kept = Suppressed(state.connection, settings.model).records()
    facts["suppressed"] = sum(value.startswith(b"suppress") for value in kept.values())
    facts["hidden"] = [_hidden_fields(one) for one in hiding]
    facts["stalled_partitions"] = stalled
    facts["receipts_waiting"] = receipts
    facts["outbox"] = state.waiting()
    facts["outcomes"] = dict(outcomes)
    facts["ledger"] = _ledger(ledger, now)
    facts["residue"] = residue_fields(residue)
    facts["running"] = running
    facts["healthy"] = not stalled and not overdue and not departed
    return facts


def _counts_fields(state: ModelState) -> dict[str, Any] | None:
    """Return the facts of the co-occurrence counts in Redis; None before the first, and for who may not read them.

    offsets: partition to the first offset that they do not reflect; what came later is in the changes.
    """
    try:
        about = CountsStore(state.connection, state.model).about()
    except SettingsError:
        return None
    if about is None:
        return None
    offsets = {str(partition): offset for partition, offset in about.offsets.items()}
    return {"words": about.words, "pairs": about.pairs, "bytes": about.size, "offsets": offsets}


def _waits_since(log: EventLog, topic: str, partition: int, meta: Meta, before_ms: float) -> int:
    """Return since when a partition with a lag does not move: its last commit, or the record that waits if it is newer.

    before_ms: a commit since then answers by itself. After a quiet hour the last commit is old, and nothing is wrong.
    """
    if meta.moved_ms > before_ms:
        return meta.moved_ms
    try:
        waiting_ms = log.appended_ms(topic, partition, meta.next_offset)
    except SettingsError:
        # A user who may not read documents, as that of `serve`, goes by the commit.
        waiting_ms = None
    return max(meta.moved_ms, waiting_ms or 0)


def _model(
    settings: Settings, state: ModelState, situation: SituationReader, overdue: Sequence[Hidden], now: float
) -> dict[str, Any]:
    """Return the facts about the model and its last version. overdue: transactions that hide records for too long."""
    present = situation.read()
    base = situation.base()
    # In private mode an update rests on the counts alone.
    capacity = None if math.isinf(present.capacity) else present.capacity
    rule = left = None
    if base is not None and capacity is not None:
        rule = base.capacity_rule
        left = max(capacity - present.forget_set, 0)
    decided: int | None = None
    noted = state.decision()
    if noted is not None:
        decision, decided = noted
    else:
        # No leader has decided yet: show the decision that one would take now.
        decision = decision_text(situation.decide(present))
    versions = versions_of(state, 1)
    last = versions[-1] if versions else {}
    late = [f"{one.text} since {_moment(one.since_ms)}: {END_TRANSACTION}" for one in overdue]
    return {
        "model": settings.model,
        "documents": present.documents,
        "version": last.get("version"),
        "base_documents": present.base_documents,
        "forget_set": present.forget_set,
        "capacity": capacity,
        "capacity_rule": rule,
        "capacity_left": left,
        "unserved_deletions": present.unserved,
        "new_documents": present.new_documents,
        "cumulative_epsilon": last.get("cumulative_epsilon", 0.0),
        "epsilon_budget": settings.budget,
        "guarantee": last.get("guarantee"),
        "ratio": last.get("ratio"),
        "covered": last.get("covered"),
        "unfitted": last.get("unfitted", {}),
        "self_check": _self_check(settings, state, situation, now),
        "remarks": [*_remarks(state, base), *late],
        "decision": decision,
        "decided": decided,
    }


def _hidden_fields(one: Hidden) -> dict[str, Any]:
    """Return the records that an open transaction hides as JSON shows them."""
    return {"partition": one.partition, "records": one.records, "since": _moment(one.since_ms)}
