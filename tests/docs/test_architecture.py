"""The architecture page is true: its files exist, and documents, deletions and releases pass them."""

import ast
import functools
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import streamtopic
from embedded_service import embedded, two_topics
from streamtopic.client import ModelSubscriber
from streamtopic.documents.events import encode_add
from streamtopic.service.ingest import partition_ingest
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.leading import publish
from streamtopic.service.schedule.scheduler import Scheduler
from streamtopic.state import ModelSettings, ModelState
from streamtopic.streams import FileLog, TopicNames

PROGRAM = Path(streamtopic.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
# Files on each trip. They may only become fewer, unless a decision says what for: the ledger has a file for each of
# keys, canonical JSON, entries, and tree and proofs (0017); the order of shown words reads Q (0009); what is left of
# the base is followed (0004); rows of Q may not be counted yet (0010).
MOST = {"document": 14, "deletion": 57, "settled": 60, "release": 12, "version": 33, "staging": 2}

# Kafka's own files, a record that is not plain, what Lua and compiled loops hide from a trace.
NOT_ON_THIS_TRIP = {
    "words/text.py",
    "streams/kafka_log.py",
    "streams/kafka_clients.py",
    "state/lua/change.lua",
}


def named(text):
    """The program's files that a text names."""
    return set(re.findall(r"`([a-z_/0-9]+\.(?:py|lua))`", text))


@functools.cache
def own_file(filename):
    """A file of the program by its place in it; None for any other."""
    path = Path(filename)
    return str(path.relative_to(PROGRAM)) if path.is_relative_to(PROGRAM) else None


class Trip:
    """Files of the program whose functions are entered while it is open."""

    def __init__(self):
        self.files = set()

    def _enter(self, frame, event, _argument):
        name = own_file(frame.f_code.co_filename)
        # What compiles a function is entered on a machine's first run alone, and passes nothing on.
        if event == "call" and name not in {None, "compiled.py"}:
            self.files.add(name)

    def __enter__(self):
        threading.setprofile(self._enter)
        # Only a thread that begins from here on is followed.
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(partition_ingest, "_reading", ThreadPoolExecutor(1))
        sys.setprofile(self._enter)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)
        partition_ingest._reading.shutdown()
        self._patch.undo()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """An instance with a published model."""
    with embedded(tmp_path_factory.mktemp("house"), topics=2, min_df=1) as instance:
        # Without suppressions, which most services do not have.
        given = {"settings": instance.state.settings, "clock": instance.clock}
        instance.ingests = [
            Ingest(instance.connection, instance.log, instance.names, partition, **given)
            for partition in range(instance.settings.partitions)
        ]
        instance.add(two_topics(0, 60))
        instance.settle()
        yield instance


QUESTIONS = re.findall(r"^\| ([A-Z].+?\?) \| (.+) \|$", SECTIONS["Where is ...?"], re.MULTILINE)


def defined(name):
    """Functions and classes of a file of the program."""
    tree = ast.parse((PROGRAM / name).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_a_question_is_answered_by_three_files_at_most(question, answer):
    """A stranger opens three files at most, and finds in each the name that the page gives."""
    assert question.endswith("?")
    assert 1 <= len(named(answer)) <= 3
    places = re.findall(r"`([a-z_/0-9]+\.py)`[^`]*\(`(\w+)`\)", answer)
    assert places
    for name, wanted in places:
        assert wanted in defined(name), f"{name} has no {wanted}"


def test_every_folder_has_its_line():
    """The drawing shows the whole house."""
    folders = {path.parent.relative_to(PROGRAM).parts[:2] for path in PROGRAM.rglob("*.py")} - {()}
    wanted = {"/".join(f if f[0] == "service" else f[:1]) for f in folders} - {"service"}
    assert wanted <= {name.rstrip("/") for name in re.findall(r"`([a-z_/]+/)`", SECTIONS["The house"])}


def test_a_document_passes_the_files_that_the_page_names(connection, tmp_path):
    """From the log's end to Redis, those and no other."""
    names = TopicNames("walked")
    log = FileLog(tmp_path)
    log.create(names.documents, 1)
    log.create(names.rejected, 1)
    ingest = Ingest(connection, log, names, 0, settings=ModelSettings(1, 256), clock=lambda: 1_700_000_000.0)
    with Trip() as trip:
        log.append_many(names.documents, [encode_add("x", text="apple banana iron tin")])
        assert ingest.step().records == 1
    assert trip.files == named(SECTIONS["A document"]) - NOT_ON_THIS_TRIP
    assert len(trip.files) <= MOST["document"]


def test_a_deletion_and_its_release_pass_the_files_that_the_page_names(service):
    """What the page names is on the way; a subscriber passes few others."""
    told = SECTIONS["A deletion"]
    service.delete(["d3"])
    with Trip() as deletion:
        for ingest in service.ingests:
            ingest.step()
        assert service.scheduler.step().version is not None
        assert publish(service.publisher) == 1
    assert len(deletion.files) <= MOST["deletion"]
    # Traces, requests and word statistics are looked for as well, on the way of every deletion and after it.
    with Trip() as rest:
        service.settle()
    settled = deletion.files | rest.files
    assert len(settled) <= MOST["settled"]
    subscriber = ModelSubscriber(service.log, model=service.settings.model, public_key=service.public_key)
    with Trip() as release:
        while subscriber.poll() is not None:
            pass
    own = {"topics/learner.py"}
    assert named(told) - own <= settled | release.files
    walked = named(told[told.index("A subscriber") :])
    assert walked <= release.files
    assert len(release.files) <= MOST["release"]


@pytest.mark.parametrize(
    ("trip", "owner", "function"),
    [("version", Scheduler, "_make_version"), ("staging", ModelState, "stage")],
    ids=["version", "staging"],
)
def test_a_model_becomes_a_version_on_a_short_way(service, monkeypatch, trip, owner, function):
    """From a model to its bytes, and from these into the outbox, a reader opens few files."""
    trips = []
    real = getattr(owner, function)

    def traced(self, *arguments, **options):
        with Trip() as found:
            step = real(self, *arguments, **options)
        trips.append(found)
        return step

    monkeypatch.setattr(owner, function, traced)
    service.delete(["d5" if trip == "version" else "d7"])
    service.settle()
    (found,) = trips
    assert "state/model_state.py" in found.files
    assert len(found.files) <= MOST[trip]
