"""Witnesses: what a policy file says, what is made of their answers, and a real one."""

import http.server
import logging
import tempfile
import threading
import time
from pathlib import Path

import pytest
from ledger_world import World

from cosigning import cosignature, witness
from servers.litewitness import NAME, LiteWitness
from streamtopic.errors import SettingsError, StateError
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.publish.witnesses import Witnesses, read_policy
from streamtopic.signed import (
    Alive,
    Checkpoint,
    KeyRing,
    LedgerProof,
    SigningKey,
    cosigned,
    leaf_hash,
    open_note,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of
from whole_tree import Tree

KEY = SigningKey.from_seed(bytes(32), "test/news")


def vkey(number=1):
    """The key of a witness as its operator publishes it."""
    return str(witness(number, f"w{number}.example")[1])


def policy(*lines):
    """A policy of these lines."""
    return read_policy("".join(f"{line}\n" for line in lines).encode(), "witnesses.policy")


THREE = [f"witness X{number} {vkey(number)} https://w{number}.example/{number}/" for number in (1, 2, 3)]


# The policy file.


def test_the_example_of_the_specification_reads():
    """Two of three of one kind, and any of three of another."""
    names = [f"{kind}{number}" for kind in "XY" for number in (1, 2, 3)]
    keys = [f"witness {name} {vkey(place)}" for place, name in enumerate(names, 1)]
    found = policy(
        f"log {KEY.public}",
        "",
        *keys[:3],
        "group X-witnesses 2 X1 X2 X3",
        "",
        *keys[3:],
        "group Y-witnesses any Y1 Y2 Y3",
        "",
        "group X-and-Y all X-witnesses Y-witnesses",
        "quorum X-and-Y",
    )
    assert set(found.witnesses) == set(names)
    assert not found.addresses
    enough = [["X1", "X2", "Y1"], ["X1", "X3", "Y3", "unknown"], names]
    few = [[], ["X1", "X2", "X3"], ["Y1", "Y2", "Y3", "X1"], ["x1", "x2", "y1"]]
    assert all(found.quorum.met_by(some) for some in enough)
    assert not any(found.quorum.met_by(some) for some in few)


@pytest.mark.parametrize(
    ("lines", "number", "why"),
    [
        ([], 0, "no line of the quorum"),
        (["quorum X9"], 4, "not defined above"),
        (["quorum none", "quorum none"], 5, "does not begin a line"),
        (["quorum"], 4, "does not begin a line"),
        (["witness X4"], 4, "does not begin a line"),
        (["witnesses X4"], 4, "does not begin a line"),
        (["group g 1 X1 g"], 4, "not defined above"),
        (["group g any"], 4, "does not begin a line"),
        (["group g 0 X1"], 4, "cannot be asked for"),
        (["group g 3 X1 X2"], 4, "cannot be asked for"),
        (["group g 01 X1 X2"], 4, "cannot be asked for"),
        (["group g most X1 X2"], 4, "cannot be asked for"),
        (["group g all X1 X1"], 4, "in a group already"),
        (["group g all X1", "group h all X1"], 5, "in a group already"),
        (["group g all none"], 4, "in a group already"),
        (["group X1 all X2"], 4, "has a meaning already"),
        (["group none all X2"], 4, "has a meaning already"),
        ([f"witness X1 {vkey(4)}"], 4, "has a meaning already"),
        ([f"witness X4 {vkey(1)}"], 4, "key is in the file already"),
        ([f"witness X4 {KEY.public}"], 4, "not in the form"),
        ([f"log {vkey(4)}"], 4, "not in the form"),
        ([f"witness X4 {vkey(4)} ftp://w"], 4, "not the address"),
        ([f"witness X4 {vkey(4)} https://user@w"], 4, "not the address"),
        ([f"witness X4 {vkey(4)} https://w:99999999"], 4, "not the address"),
        (["quorum none\r"], 4, "control character"),
    ],
)
def test_a_policy_that_says_something_else_is_refused_with_its_line(lines, number, why):
    """Nothing in it is passed over: a rule that is read wrongly is no rule."""
    with pytest.raises(SettingsError, match=why) as error:
        policy(*THREE, *lines)
    assert not number or f"line {number}:" in str(error.value)


# Witnesses that answer as a test says.


class Speaker:
    """A witness over HTTP. says: takes the body of a request, and returns status and text. bodies: those that came."""

    def __init__(self, says=None, number=1):
        self.key, self.known = witness(number, f"w{number}.example")
        self.says = says or self.sign
        self.bodies = []
        speaker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                speaker.bodies.append((self.path, body))
                status, text = speaker.says(body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # Whoever asked may have left.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.line = f"witness W{number} {vkey(number)} http://127.0.0.1:{self.server.server_port}/of/{number}"

    def sign(self, body):
        """What an honest witness says that has seen nothing yet."""
        return 200, cosignature(self.key, asked_text(body))


def asked_text(body):
    """The text of the checkpoint in a request."""
    return body.partition("\n\n")[2].rpartition("\n\n")[0] + "\n"


@pytest.fixture
def speakers():
    """Makes witnesses, which end with the test."""
    made = []

    def make(*said):
        start = len(made) + 1
        made.extend(Speaker(says, number) for number, says in enumerate(said, start))
        return made[-len(said) :]

    yield make
    for speaker in made:
        speaker.server.shutdown()
        speaker.server.server_close()


TREE = Tree()
for number in range(20):
    TREE.append(leaf_hash(b"%d" % number))


def checkpoint_of(size):
    """The checkpoint of a tree of 20 entries when it had this size."""
    return sign_note(Checkpoint(KEY.name, size, TREE.root(size)).text, KEY)


def asking(*speakers, quorum="quorum none", **options):
    """The witnesses of a policy. quorum: the lines that say which are enough."""
    return Witnesses(policy(*(speaker.line for speaker in speakers), *quorum.split("; ")), **options)


def test_all_witnesses_are_asked_and_their_signatures_stand_below(speakers):
    """At once, with the checkpoint as it is; the answer verifies for a reader with its keys, and for one without."""
    together = threading.Barrier(3)

    def wait_for_the_others(speaker):
        def says(body):
            together.wait(10)
            return speaker.sign(body)

        return says

    some = speakers(None, None, None)
    for speaker in some:
        speaker.says = wait_for_the_others(speaker)
    asked, note = asking(*some), checkpoint_of(7)
    signed = asked.cosign(note, TREE.consistency)
    assert signed.startswith(note)
    assert all(cosigned(signed, speaker.known) for speaker in some)
    assert asked.signers(signed) == {"W1", "W2", "W3"}
    assert asked.signers(note) == frozenset()
    assert open_note(signed, [KEY.public])[1] == KEY.public
    # The next time each is told what grew since.
    later = checkpoint_of(9)
    asked.cosign(later, TREE.consistency)
    path = "".join(f"{text_of(one)}\n" for one in TREE.consistency(7, 9))
    for number, speaker in enumerate(some, 1):
        place = f"/of/{number}/add-checkpoint"
        assert speaker.bodies == [(place, f"old 0\n\n{note}"), (place, f"old 7\n{path}\n{later}")]


@pytest.mark.parametrize(
    ("quorum", "seconds", "least", "most"),
    [("group enough any W1 W2; quorum enough", 60, 0, 30), ("quorum none", 0.5, 0.5, 30)],
)
def test_nobody_is_waited_for_once_enough_have_signed(speakers, quorum, seconds, least, most):
    """Without a quorum everybody is waited for, and for the given time at most."""
    end = threading.Event()
    some = speakers(None, lambda _: (500, "") if end.wait(60) else None)
    asked, start = asking(*some, quorum=quorum, seconds=seconds), time.monotonic()
    assert asked.signers(asked.cosign(checkpoint_of(7), TREE.consistency)) == {"W1"}
    assert least <= time.monotonic() - start < most
    end.set()


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda _: (409, "12\n"), "lost records"),
        (lambda _: (409, "4\n"), "does not say which entries"),
        (lambda _: (409, "many\n"), "answered 409: many"),
        (lambda _: (409, "-1\n"), "answered 409"),
        (lambda _: (404, "unknown log"), "answered 404: unknown log"),
        (lambda _: (403, "\x1b[2J"), r"answered 403: \x1b"),
        (lambda _: (500, ""), "answered 500"),
        (lambda _: (200, ""), "no signature"),
        (lambda _: (200, "— w1.example AAAA\n"), "no signature"),
        (lambda body: (200, cosignature(witness(2)[0], asked_text(body))), "no signature"),
        (lambda _: (200, cosignature(witness(1, "w1.example")[0], "another text\n")), "no signature"),
        (lambda _: (200, "x" * 1_000_000), "no signature"),
        (lambda _: (200, sign_note("a\n", KEY)), "no signature"),
    ],
)
def test_other_answers_are_no_signature(speakers, caplog, says, why):
    """They hold nothing up, are told once, and end when the witness signs again."""
    bad, good = speakers(says, None)
    now = [0.0]
    asked = asking(bad, good, clock=lambda: now[0])
    caplog.set_level(logging.INFO, "streamtopic.service")
    for size in (8, 9):
        signed = asked.cosign(checkpoint_of(size), TREE.consistency)
        assert asked.signers(signed) == {"W2"}
        assert signed.count("— ") == 2
        now[0] += 60
    (record,) = caplog.records
    assert why in record.getMessage()
    assert (record.event, record.witness) == ("witness_failed", "W1")
    bad.says = bad.sign
    assert asked.signers(asked.cosign(checkpoint_of(10), TREE.consistency)) == {"W1", "W2"}
    assert [record.event for record in caplog.records] == ["witness_failed", "witness_signs"]


# A real one.


@pytest.fixture(scope="module")
def litewitness():
    """A running litewitness."""
    with tempfile.TemporaryDirectory() as folder, LiteWitness(Path(folder)) as real:
        yield real


class WitnessedWorld(World):
    """A model whose ledger a real witness signs."""

    def __init__(self, connection, folder, real):
        super().__init__(connection, folder)
        self.real, self.policy = real, folder / "witnesses.policy"
        self.policy.write_text(f"witness real {real.key} {real.url}\nquorum real\n")

    def writer(self, log=None, *, required=True):
        """A process that has just started."""
        witnesses = Witnesses.load(self.policy, required=required)
        ring, log = self.keys(), log or self.log
        writer = LedgerWriter(self.connection, log, self.model, ring, self.key, witnesses=witnesses)
        writer.catch_up()
        return writer

    def signed(self, writer):
        """Whether the witness has signed the newest checkpoint."""
        return Witnesses.load(self.policy).signers(writer.ledger.checkpoint) == {"real"}


@pytest.fixture
def world(connection, tmp_path, litewitness):
    """A model that the witness knows."""
    made = WitnessedWorld(connection, tmp_path, litewitness)
    litewitness.add_log(made.key.public)
    return made


def page(number, entries=1):
    """A page of entries."""
    return [Alive(number, 0, place) for place in range(entries)]


def test_a_real_witness_signs_every_page(world):
    """Pages of all sizes, of processes that have just started, after it was restarted; proofs carry its signature."""
    writer = world.writer()
    for number in range(12):
        assert writer.append(page(number, 1 + number * 40))
        assert world.signed(writer)
        if number % 4 == 3:
            writer = world.writer()
        if number == 6:
            world.real.stop()
            world.real.start()
    proof = LedgerProof.parse(writer.proof(300).text)
    assert proof.verify(KeyRing.load(world.key.public, world.model)).index == 300
    assert "— " + NAME in proof.checkpoint


def test_a_real_witness_signs_no_second_history(world):
    """A service whose topic was set back draws other entries: the witness has seen more, and then other ones."""
    writer = world.writer()
    for number in range(3):
        assert writer.append(page(number, 5))
    # Another topic and another state: nothing here remembers the first history.
    world.connection.call("DEL", *world.connection.call("KEYS", f"{{st:{world.model}}}:ledger:*"))
    other = world.opened("other")
    fork = world.writer(other)
    with pytest.raises(StateError, match="nobody of real signed"):
        fork.append(page(7))
    assert fork.ledger.size == 0
    # Without a quorum it may go on, but nobody signs: also not once it is longer than the first one.
    alone = world.writer(other, required=False)
    for number in range(9, 13):
        alone.append(page(number, 6))
        assert not world.signed(alone)
    assert alone.ledger.size > writer.ledger.size


def test_pages_wait_while_the_witness_is_away(world):
    """The draft stands in the topic, and its page counts once the witness signs: it is the same one."""
    writer = world.writer()
    assert writer.append(page(1))
    world.real.stop()
    try:
        with pytest.raises(StateError, match="waits for its witnesses"):
            writer.append(page(2))
        waiting = writer.ledger.pending
        assert (writer.ledger.size, waiting.after.size) == (1, 2)
    finally:
        world.real.start()
    later = world.writer()
    later.complete()
    assert (later.ledger.size, later.ledger.root) == (2, waiting.after.root)
    assert world.signed(later)
