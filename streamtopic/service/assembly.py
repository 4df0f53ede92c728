"""The parts of the service, made from settings and from what `opened` opens. Whoever needs a part asks for it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.client import ModelSubscriber
from streamtopic.errors import CheckFailed, SettingsError, StateMissing, UsageError
from streamtopic.monitoring.metrics import RECORDS
from streamtopic.paper.theorem import TheoremOptions
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.service.ingest.missed_deletes import delete_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.suppressions import Suppressions
from streamtopic.service.instance import secret, signing_key, suppression_key
from streamtopic.service.private_mode import PrivateModeller, PrivateRule
from streamtopic.service.publish.publisher import Publisher
from streamtopic.service.schedule.modeller import CertifiedModeller
from streamtopic.service.theorem_mode import TheoremModeller
from streamtopic.service.watching import Watch
from streamtopic.state import Reader
from streamtopic.state.stored_counts import CountsStore
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions, words_given
from streamtopic.words.text import tokenize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.service.opened import Opened
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.settings import Settings
    from streamtopic.signed import Release
    from streamtopic.state import ModelState

__all__ = [
    "ingest_opener",
    "learner_options",
    "modeller_of",
    "publisher_of",
    "reader_of",
    "release_of",
]


def learner_options(settings: Settings) -> LearnerOptions:
    """Return the learner's part of the settings."""
    return LearnerOptions(
        n_topics=settings.topics,
        learner=settings.learner,
        min_df=settings.min_df,
        min_share=settings.min_share,
        max_df=settings.max_df,
        anchor_min_df=settings.anchor_min_df,
        max_words=settings.max_words,
        tolerance=settings.tolerance,
        guided=tuple(GuidedTopic(name, seeds) for name, seeds in settings.guided.items()),
        exclude_words=words_given(settings.exclude_words),
    )


def modeller_of(service: Opened) -> Modeller:
    """Return the modeller of the mode that `guarantee` names, with nothing in memory yet."""
    settings, state = service.settings, service.state
    learner = learner_options(settings)
    if settings.guarantee == "theorem":
        return TheoremModeller(learner, _theorem_options(settings), state.base)
    if settings.guarantee == "private":
        return PrivateModeller(learner, _private_rule(settings), state.base)
    sums = CountsStore(service.connection, settings.model).read
    guarded = CalibratedGuarantee(settings.epsilon, settings.delta, settings.tolerance)
    return CertifiedModeller(learner, guarded, carries=settings.publish == "topics", sums=sums)


def _theorem_options(settings: Settings) -> TheoremOptions:
    """Return the settings of theorem mode."""
    found = settings.theorem
    set_by_hand = {
        "a": found.topic_imbalance,
        "p_sep": found.separability,
        "gamma": found.topic_condition,
        "eps0": found.base_error,
    }
    # A constant that is not set is estimated from the model.
    known = {name: value for name, value in set_by_hand.items() if value is not None}
    return TheoremOptions(1, settings.epsilon, settings.delta, found.constant, known=known)


def _private_rule(settings: Settings) -> PrivateRule:
    """Return the settings of private mode. Raises SettingsError for a file without words."""
    found = settings.private
    words = None if found.words is None else _vocabulary(found.words, found.size)
    return PrivateRule(found.epsilon, found.delta, found.versions, words, found.size, settings.max_df)


def _vocabulary(file: Path, most: int) -> tuple[str, ...]:
    """Return the words of a file, ascending. Raises SettingsError."""
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"setting `private.words`: {file} cannot be read: {error}") from None
    found = sorted({line.strip() for line in lines} - {""})
    for word in found:
        if tokenize(word) != [word]:
            raise SettingsError(
                f"setting `private.words`: {word!r} in {file} is not a word as the service reads texts: correct it"
            )
    if not 0 < len(found) <= most:
        raise SettingsError(
            f"setting `private.words`: {file} has {len(found)} words, and `private.size` allows 1 to {most}: shorten "
            "the file or raise the size"
        )
    return tuple(found)


def ingest_opener(service: Opened, watch: Watch | None = None) -> Callable[[int], Ingest]:
    """Return what takes ownership of a partition, and deletes documents whose deletes have left the log.

    It raises as `Ingest` and `delete_missed_if_due`.
    """
    settings, log, clock = service.settings, service.log, service.clock
    watch = watch or Watch()
    suppressions = Suppressions(service.connection, log, settings.model, suppression_key(settings))

    def open_ingest(partition: int) -> Ingest:
        with watch.health.exempt("recovering"):
            ingest = Ingest(
                service.connection,
                log,
                service.names,
                partition,
                settings=service.state.settings,
                clock=clock,
                suppressions=suppressions,
            )
            ingest.residue_max_age = settings.residue_max_age
            retention_ms = int(settings.delete_retention * 1000)
            # Before the first step: a new record would make the state look as if it had never been away.
            missed = delete_missed_if_due(ingest, log, int(clock() * 1000), retention_ms)
        if missed:
            watch.add(RECORDS, "missed", amount=missed)
        return ingest

    return open_ingest


def reader_of(service: Opened) -> Reader:
    """Return a reader of the counts, which works while their writers work."""
    settings = service.settings
    reader = Reader(service.connection, settings.model, settings.partitions)
    if service.leads:
        try:
            reader.positions()
        except StateMissing:
            # A new instance has no state before its writers open it.
            open_ingest = ingest_opener(service)
            for partition in range(settings.partitions):
                open_ingest(partition)
    return reader


def release_of(service: Opened, version: int | None) -> Release:
    """Return a published version, the newest for None.

    Raises UsageError if it does not exist or is withdrawn, CheckFailed if it does not verify.
    """
    state, found = service.state, None
    with ModelSubscriber(service.log, model=state.model, public_key=service.keys, idle_seconds=0) as subscriber:
        for release in subscriber:
            if version in (None, release.version):
                found = release
        # Redis knows a withdrawal before the log does: the version that withdraws may still wait in the outbox.
        withdrawn = state.withdrawn() | subscriber.withdrawn
    number = version if found is None else found.version
    if number in withdrawn:
        raise UsageError(f"version {number} is withdrawn: it holds documents deleted since; take a later one")
    if found is None:
        recorded = {number for number, _ in state.releases()}
        if version in recorded:
            raise CheckFailed(
                f"version {version} is not proved by a ledger with this instance's key: compare the public key here "
                "with that of the service"
            )
        name = "no version" if version is None else f"no version {version}"
        raise UsageError(
            f"there is {name}: `streamtopic versions` lists them, `streamtopic status` shows the next step"
        )
    return found


def publisher_of(
    service: Opened,
    state: ModelState,
    ledger: LedgerWriter,
    *,
    watch: Watch | None = None,
    alive_every: float = 0.0,
) -> Publisher:
    """Return a publisher for the thread that has this state and this ledger. Raises SettingsError without its keys.

    alive_every: seconds within which the next `alive` is promised. A process that ends must promise none: readers
        would wait for it and raise an alarm.
    """
    settings = service.settings
    # Here, where its absence is an error of the settings: the ledger may be read without it.
    signing_key(settings)
    return Publisher(
        state,
        service.log,
        ledger,
        secret=secret(settings, "receipt.key"),
        interval_ms=int(alive_every * 1000),
        link_months=settings.link_months,
        clock=service.clock,
        watch=watch,
    )
