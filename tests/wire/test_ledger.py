"""The rules of the ledger, one after another (`streamtopic/signed/ledger.py` numbers them)."""

import dataclasses
import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger_maker import LedgerMaker, key_of, receipt_of
from memory_log import MemoryLog
from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.signed import (
    Alive,
    Checkpoint,
    End,
    Frontier,
    KeyRing,
    Ledger,
    Receipt,
    Revoked,
    Runs,
    SigningKey,
    leaf_hash,
    line_of,
    page_record,
    seal_keys,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of
from whole_tree import Tree

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))

NOW = 1_764_000_000
ROOT = key_of("news", 9)
KEYS = [key_of("news", number) for number in range(4)]


def read(keys, *values, tail=False):
    """What a new reader knows after these records."""
    ledger = Ledger(keys, tail=tail)
    for value in values:
        ledger.take(value)
    return ledger


def sent(maker):
    """The values of the ledger topic."""
    return maker.log.values(maker.names.ledger)


def receipts(maker, *offsets):
    """Receipts of these deletions."""
    return [maker.receipt(offset) for offset in offsets]


def offsets_of(logged):
    """The offsets of the receipts among entries."""
    return [one.entry.offset for one in logged if isinstance(one.entry, Receipt)]


def record(**fields):
    """A record of these fields."""
    return json.dumps(fields).encode()


def draft_of(before, after, lines, hashes, key=KEYS[0], **more):
    """A draft that says whatever a test wants; the note is signed with a key."""
    note = sign_note(f"streamtopic draft\n{before.size}\n{after.text}", key)
    return record(**{"draft": note, "entries": lines, "frontier": list(map(text_of, hashes)), "keys": ""} | more)


def checkpoint_of(size, root, key=KEYS[0], origin="test/news"):
    """A checkpoint record that says whatever a test wants."""
    return page_record(sign_note(Checkpoint(origin, size, root).text, key))


class Parts:
    """The parts of an honest draft behind a ledger: two receipts, if no other entries are given."""

    def __init__(self, maker, *entries):
        grown = Frontier(maker.ledger.size, maker.ledger.tree.hashes)
        self.hashes = grown.hashes
        self.lines = [line_of(entry) for entry in entries or receipts(maker, 7, 8)]
        after = grown.grown(leaf_hash(line.encode()) for line in self.lines)
        self.before = Checkpoint("test/news", maker.ledger.size, maker.ledger.root)
        self.after = Checkpoint("test/news", after.size, after.root)

    def draft(self, **changes):
        parts = {"before": self.before, "after": self.after, "lines": self.lines, "hashes": self.hashes} | changes
        return draft_of(**parts)

    def stolen(self, number):
        """Both records, signed with the key of this number, whatever its ledger says of it."""
        key = KEYS[number]
        return self.draft(key=key), checkpoint_of(self.after.size, self.after.root, key)


@pytest.fixture
def three(maker):
    """A ledger of three receipts, in one page."""
    maker.append(*receipts(maker, 0, 1, 2))
    return maker


@pytest.fixture
def listed():
    """A ledger whose first page brings the first list of keys; a reader is given the root key."""
    maker = LedgerMaker(MemoryLog(), key=KEYS[0], root=ROOT)
    maker.begin_list()
    return maker


# 1. A draft is signed by a key of the ledger, and its hashes are those of the tree that it names.


def test_any_changed_byte_of_a_page_makes_no_other_page(three):
    """Whatever byte of its two records is changed, a reader takes none of its entries."""
    draft, checkpoint = three.records(receipts(three, 3, 4))
    assert read(three.keys(), *sent(three), draft, checkpoint).size == 5
    for place in range(len(draft)):
        changed = draft[:place] + bytes([draft[place] ^ 1]) + draft[place + 1 :]
        assert read(three.keys(), *sent(three), changed, checkpoint).root == three.ledger.root
    for place in range(len(checkpoint)):
        changed = checkpoint[:place] + bytes([checkpoint[place] ^ 1]) + checkpoint[place + 1 :]
        assert read(three.keys(), *sent(three), draft, changed).root == three.ledger.root


def test_a_draft_whose_hashes_are_others_is_passed_over(three):
    """Even one that the right key has signed: entries and frontier are those of the tree and the size that it names."""
    parts = Parts(three)
    assert read(three.keys(), *sent(three), parts.draft()).pending is not None
    before, after, lines, hashes = parts.before, parts.after, parts.lines, parts.hashes
    other = bytes(32)
    # Of the tree with the first of its entries: a draft of the second one alone would hide the first.
    one_more = Frontier(3, hashes).grown([leaf_hash(lines[0].encode())]).hashes
    changes = [
        {"lines": lines[::-1]},
        {"lines": lines[:1]},
        {"lines": [*lines, lines[0]]},
        {"lines": []},
        {"hashes": [other, *hashes[1:]]},
        {"hashes": hashes[::-1]},
        {"hashes": hashes[:1]},
        {"before": dataclasses.replace(before, size=2)},
        {"lines": lines[1:], "hashes": one_more},
        {"after": dataclasses.replace(after, root=other)},
        {"after": dataclasses.replace(after, size=6)},
        {"after": dataclasses.replace(after, origin="other/news")},
        {"before": after, "after": before},
        {"key": KEYS[1]},
    ]
    for change in changes:
        ledger = read(three.keys(), *sent(three), parts.draft(**change))
        assert (ledger.pending, ledger.strays) == (None, 1), change


def test_a_ledger_keeps_to_its_origin(three):
    """A second key of the same model under another name goes on with no ledger but its own."""
    elsewhere = SigningKey.from_seed(bytes(32), "elsewhere/news")
    ring = KeyRing.load(three.pinned, "news", [elsewhere.public])
    parts = Parts(three)
    named = [dataclasses.replace(one, origin="elsewhere/news") for one in (parts.before, parts.after)]
    draft = parts.draft(before=named[0], after=named[1], key=elsewhere)
    ledger = read(ring, *sent(three), draft)
    assert (ledger.origin, ledger.pending, ledger.strays) == ("test/news", None, 1)
    with pytest.raises(SettingsError, match="name its own key"):
        ledger.draft(receipts(three, 7), elsewhere)


# 2. The first such draft for the present tree is the next page.


def test_of_two_drafts_the_first_one_is_the_next_page(three):
    """Whoever wrote it; the other one is passed over, and its checkpoint as well."""
    first, second = three.fork(), three.fork()
    one, two = first.records(receipts(three, 3)), second.records(receipts(three, 4, 5))
    ledger = read(three.keys(), *sent(three), one[0], two[0], two[1])
    assert offsets_of([*ledger.take(one[1])]) == [3]
    assert (ledger.size, ledger.strays) == (4, 2)
    assert ledger.take(one[1]) == ledger.take(two[1]) == ()


def test_a_draft_of_long_ago_is_passed_over(three):
    """A writer slept with it in its hands while others went on."""
    sleeper = three.fork().records(receipts(three, 9))
    three.append(*receipts(three, 3))
    ledger = read(three.keys(), *sent(three), *sleeper)
    assert (ledger.root, ledger.strays) == (three.ledger.root, 2)


# 3. A page counts once a checkpoint with its very size and root stands behind its draft.


def test_a_page_counts_only_with_its_own_checkpoint(three):
    """Of its size, its root, its origin, signed by a key of the ledger, and behind its draft."""
    draft, checkpoint = three.records(receipts(three, 3, 4))
    whole = read(three.keys(), *sent(three), draft, checkpoint)
    wrong = [
        checkpoint_of(5, bytes(32)),
        checkpoint_of(4, whole.root),
        checkpoint_of(5, whole.root, KEYS[1]),
        checkpoint_of(5, whole.root, origin="elsewhere/news"),
        sent(three)[1],
    ]
    for value in wrong:
        ledger = read(three.keys(), *sent(three), draft, value)
        assert (ledger.size, ledger.strays) == (3, 1)
        assert offsets_of(ledger.take(checkpoint)) == [3, 4]
    assert read(three.keys(), *sent(three), checkpoint, draft).size == 3


# 4. Keys: those that the user gave, or those of the newest list of the root key.


# 5. A revoked key signs nothing more, and what it may not have signed is void.


def test_entries_of_a_revoked_key_are_void_from_where_the_list_says(listed):
    """They stay in the tree, and do not count: not for readers of then, who read again, nor for new ones."""
    listed.append(*receipts(listed, 1))
    listed.append(*receipts(listed, 2), Alive(1, 0, 2, Runs((1, 1))))
    listed.rotate(KEYS[1])
    listed.append(*receipts(listed, 3))
    reader = read(listed.keys(), *sent(listed))
    behind = len(sent(listed))
    listed.revoke(KEYS[0], 2)
    assert (reader.withdrawn, reader.outdated) == ({1}, False)
    for value in sent(listed)[behind:]:
        reader.take(value)
    assert reader.outdated
    ledger = Ledger(reader.keys)
    found = []
    for value in sent(listed):
        found += ledger.take(value)
    assert (ledger.root, ledger.withdrawn, ledger.outdated) == (listed.ledger.root, set(), False)
    # The rotation came in time, and the list of keys counts by its own signature.
    assert offsets_of(found) == [1]
    assert [ledger.is_void(index) for index in range(ledger.size)] == [False, False, True, True, True, True, False]


def test_of_two_keys_that_a_list_revokes_each_makes_readers_read_again(listed):
    """Entries of the second one count no more either, though nothing of the first one was void."""
    listed.rotate(KEYS[1])
    listed.append(*receipts(listed, 1))
    listed.rotate(KEYS[2])
    reader = read(listed.keys(), *sent(listed))
    size = listed.ledger.size
    for number, first in ((0, size), (1, 2)):
        listed.listed = listed.listed.without(Revoked(KEYS[number].public, first, size, 9))
    listed.list_keys(listed.listed)
    for value in sent(listed)[-2:]:
        reader.take(value)
    assert reader.outdated


def test_a_revoked_key_signs_no_further_page(listed):
    """Neither a draft nor the checkpoint of another's draft."""
    listed.rotate(KEYS[1])
    listed.revoke(KEYS[0], 1)
    draft, checkpoint = listed.records(receipts(listed, 1))
    stolen = Parts(listed).stolen(0)
    root = Parts(listed, *receipts(listed, 1)).after.root
    ledger = read(listed.keys(), *sent(listed), *stolen, draft, checkpoint_of(4, root, KEYS[0]))
    assert (ledger.size, ledger.strays) == (3, 3)
    assert offsets_of(ledger.take(checkpoint)) == [1]


@pytest.mark.parametrize("claimed", [1, 10**6])
def test_a_thief_leads_no_reader_at_the_tail_astray(listed, claimed):
    """Records of a revoked key with the list of before: they do not count where nobody read what stands before them."""
    old = seal_keys(listed.listed, ROOT)
    listed.rotate(KEYS[1])
    listed.revoke(KEYS[0], 3)
    listed.append(*receipts(listed, 1))
    # A tree of the thief's own: small, so that what the key signed before vouches for it, or ahead of everybody.
    hashes = [leaf_hash(b"%d" % number) for number in range(claimed.bit_count())]
    before = Frontier(claimed, hashes)
    lines = [line_of(Alive(1, 0, 3, Runs((1, 3)))), line_of(Alive(NOW * 1000, 0, 0))]
    after = before.grown(leaf_hash(line.encode()) for line in lines)
    trees = [Checkpoint("test/news", one.size, one.root) for one in (before, after)]
    forged = [draft_of(*trees, lines, hashes, keys=old), checkpoint_of(after.size, after.root)]
    listed.append(*receipts(listed, 2))
    honest = sent(listed)[-2:]
    ring = listed.keys()
    ledger = read(ring, *forged, *honest, tail=True)
    # The reader has learned by now that the key is revoked, and begins again.
    assert ledger.outdated
    ledger = read(ring, *forged, *honest, tail=True)
    assert (ledger.root, ledger.withdrawn, ledger.alive) == (listed.ledger.root, set(), None)


def test_a_thief_completes_no_draft_for_a_reader_at_the_tail(listed):
    """An honest draft that came second, with a checkpoint of a revoked key, is no page to who knows the revocation."""
    listed.rotate(KEYS[1])
    draft, checkpoint = listed.records([Alive(1, 0, 3, Runs((1, 3)))])
    listed.append(*receipts(listed, 1))
    listed.revoke(KEYS[0], 3)
    listed.append(*receipts(listed, 2))
    text = json.loads(checkpoint)["checkpoint"].partition("\n\n")[0]
    forged = page_record(sign_note(f"{text}\n", KEYS[0]))
    ring = listed.keys()
    for outdated in (True, False):
        ledger = read(ring, draft, forged, *sent(listed)[-2:], tail=True)
        assert ledger.outdated is outdated
    assert (ledger.root, ledger.withdrawn, ledger.alive) == (listed.ledger.root, set(), None)


# 6. A page for a tree that is ahead counts, and leaves a gap.


def test_lost_records_leave_a_gap(three):
    """The reader goes on, and knows which entries it has not seen."""
    begin = sent(three)
    three.append(*receipts(three, 3, 4))
    lost = len(sent(three))
    three.append(*receipts(three, 5))
    ledger = read(three.keys(), *begin, *sent(three)[lost:])
    assert (ledger.gaps, ledger.root) == ({3, 4}, three.ledger.root)
    three.append(*receipts(three, 6))
    for value in sent(three)[lost + 2 :]:
        ledger.take(value)
    assert (ledger.gaps, ledger.root, ledger.strays) == ({3, 4}, three.ledger.root, 0)


def test_a_draft_ahead_of_another_tree_is_no_page_once_its_size_is_reached(three):
    """A page of somebody else came first: a draft for the tree that never was is passed over with its checkpoint."""
    begin, fork = sent(three), three.fork()
    fork.take(*fork.records(receipts(three, 3)))
    ahead = fork.records(receipts(three, 4))
    honest = three.records(receipts(three, 5))
    ledger = read(three.keys(), *begin, ahead[0], *honest, ahead[1])
    three.take(*honest)
    assert (ledger.size, ledger.root, ledger.strays) == (4, three.ledger.root, 1)


def test_a_reader_may_begin_anywhere(three):
    """At any record of a long topic it has, once it is at the end, the tree of a reader of the whole."""
    for offset in range(3, 20):
        three.append(*receipts(three, offset))
    values = sent(three)
    for first in range(len(values)):
        ledger = read(three.keys(), *values[first:], tail=True)
        expected = three.ledger if first < len(values) - 1 else Ledger(three.keys())
        assert ledger.root == expected.root
        # What is before its first page, and no more.
        assert len(ledger.gaps.edges) <= 2
        assert ledger.strays == first % 2


def test_drafts_ahead_do_not_fill_the_memory(three):
    """Of many that never get their checkpoint the last one is kept."""
    ledger = read(three.keys(), *sent(three))
    for offset in range(3, 40):
        three.append(*receipts(three, offset))
        ledger.take(three.records(receipts(three, 99))[0])
    assert len(ledger.waiting) == 1
    assert offsets_of(ledger.take(three.records(receipts(three, 99))[1])) == [99]


# 7. The first entry of a version counts. Withdrawals are never taken back.


def test_withdrawals_are_never_taken_back(maker):
    """Whatever later entries say: those of a version, those by themselves, and all that an `alive` names."""
    maker.append(maker.made(3, withdrawn=(1,))[1])
    maker.append(Alive(1, 0, 3, Runs((2, 2))))
    maker.append(maker.made(9)[1], Alive(1, 0, 9, Runs((4, 6))))
    maker.append(Alive(2, 0, 9))
    ledger = read(maker.keys(), *sent(maker))
    assert ledger.withdrawn == {1, 2, 4, 5, 6}
    assert [version in ledger.withdrawn for version in (1, 3)] == [True, False]
    # A reader of the tail learns from the `alive` alone.
    assert read(maker.keys(), *sent(maker)[4:6], tail=True).withdrawn == {4, 5, 6}


# 8. A version's bytes count if a proof leads from its entry to a checkpoint, and they fit.


def test_any_changed_byte_of_a_version_is_refused(maker):
    """Bytes, entry, path and checkpoint."""
    made = maker.publish(1, n=2, r=1)
    ledger = read(maker.keys(), *sent(maker))
    for place in range(len(made.data)):
        changed = made.data[:place] + bytes([made.data[place] ^ 1]) + made.data[place + 1 :]
        with pytest.raises(InvalidRelease):
            ledger.open_release(1, changed, made.proof)
    proof = made.proof.encode()
    for place in range(len(proof)):
        changed = proof[:place] + bytes([proof[place] ^ 1]) + proof[place + 1 :]
        with pytest.raises(InvalidRelease):
            ledger.open_release(1, made.data, changed.decode(errors="replace"))


def test_a_version_is_proved_before_its_page_is_read(maker):
    """Records of two topics come in any order: an entry that lies after what was read is proved by itself."""
    one, two = maker.publish(1), maker.publish(2, seed=2)
    ledger = Ledger(maker.keys())
    assert ledger.open_release(1, one.data, one.proof).version == 1
    ledger = read(maker.keys(), *sent(maker)[:2])
    assert ledger.open_release(2, two.data, two.proof).version == 2


def test_versions_are_not_mixed(maker):
    """Neither the number, nor the proof, nor the bytes of another version, nor an entry of another kind or model."""
    one, two = maker.publish(1), maker.publish(2, seed=2)
    maker.append(*receipts(maker, 1), dataclasses.replace(maker.made(3)[1], model="mail"))
    ledger = read(maker.keys(), *sent(maker))
    wrong = [(2, one.data, one.proof), (1, two.data, one.proof), (1, one.data, two.proof)]
    wrong += [(3, one.data, maker.proof(2)), (3, maker.made(3)[0], maker.proof(3)), (1, one.data, "")]
    for version, data, proof in wrong:
        with pytest.raises(InvalidRelease):
            ledger.open_release(version, data, proof)


# 9. A reader is out of date if entries, the newest version or the last word are missing.


def stale(ledger, holds=lambda _: None, *, now=NOW, max_age=None, remembered=0):
    """Why a reader is out of date."""
    return ledger.stale(now, max_age, holds, remembered)


def spoken(maker, **changes):
    """Append a version and an `alive` of a moment ago; return what a reader of the version holds."""
    maker.publish(1)
    maker.append(Alive(**{"made": NOW * 1000 - 5000, "interval": 60_000, "newest": 1} | changes))
    return {1: maker.ledger.digest(1)}.get


@pytest.mark.parametrize(
    ("age", "interval", "max_age", "said"),
    [
        (119, 60_000, None, None),
        (121, 60_000, None, "121 s old, more than 120"),
        (10**6, 0, None, None),
        (121, 0, 120, "121 s old, more than 120"),
        (1000, 60_000, 2000, None),
        (-299, 60_000, 10, None),
        (-301, 60_000, None, "301 s ahead"),
        (-301, 0, None, "301 s ahead"),
    ],
)
def test_the_last_word_must_not_be_too_old_nor_of_the_future(maker, age, interval, max_age, said):
    """Twice the interval that the service promises, or the age that the reader asks for."""
    holds = spoken(maker, made=(NOW - age) * 1000, interval=interval)
    why = stale(maker.ledger, holds, max_age=max_age)
    assert why is None if said is None else said in why


def test_a_ledger_is_shorter_from_one_entry_on(three):
    """Whoever had one entry more than there are now says so, whatever the age of the last word."""
    assert stale(three.ledger, remembered=3) is None
    assert "has 3 entries, and had 4 before" in stale(three.ledger, remembered=4)


def test_an_older_word_takes_no_version_back(maker):
    """The newest version is the one of the largest number, and a second entry of it stays without effect."""
    first = maker.publish(2)
    maker.append(Alive(NOW * 1000, 60_000, 1))
    maker.publish(2, seed=5)
    assert (maker.ledger.newest, maker.ledger.index_of(2)) == (2, first.index)


# 10. Whatever else is in the topic is passed over and counted.


JUNK = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"draft":1}', b'{"checkpoint":[]}', b'{"draft":"x"}']
    ),
    st.dictionaries(
        st.sampled_from(["draft", "checkpoint", "entries", "frontier", "keys"]),
        st.none() | st.integers() | st.text(st.characters()) | st.lists(st.text(), max_size=2),
    ).map(lambda fields: json.dumps(fields).encode()),
)


@settings(max_examples=EXAMPLES)
@given(values=st.lists(JUNK, max_size=6))
def test_anything_else_is_passed_over_and_counted(values):
    """Any bytes: the reader neither fails nor takes them for an entry."""
    maker = LedgerMaker(MemoryLog())
    maker.append(*receipts(maker, 1))
    ledger = Ledger(maker.keys())
    for value in (*sent(maker), *values):
        ledger.take(value)
    assert (ledger.root, ledger.strays) == (maker.ledger.root, len(values))


def test_an_entry_of_a_newer_program_stays_in_the_tree(three):
    """Its line is one leaf as all others, and no entry of this reader."""
    parts = Parts(three)
    lines = ['{"kind":"news of tomorrow"}', parts.lines[0]]
    after = Frontier(3, parts.hashes).grown(leaf_hash(line.encode()) for line in lines)
    ledger = read(three.keys(), *sent(three), parts.draft(lines=lines, after=Checkpoint("test/news", 5, after.root)))
    assert offsets_of(ledger.take(checkpoint_of(5, after.root))) == [7]
    assert (ledger.size, ledger.page.lines) == (5, tuple(lines))


# What a reader keeps.


def long_history():
    """The records of a ledger with lists, a rotation, a revocation, versions, withdrawals, strays and a gap."""
    maker = LedgerMaker(MemoryLog(), key=KEYS[0], root=ROOT)
    maker.begin_list()
    maker.append(maker.made(1)[1], *receipts(maker, 1, 2))
    maker.send(b"junk", *maker.fork().records(receipts(maker, 50), KEYS[2]))
    maker.append(Alive(NOW * 1000, 60_000, 1))
    maker.rotate(KEYS[1])
    maker.append(maker.made(2, withdrawn=(1,))[1], Alive(1, 0, 2, Runs((1, 1))))
    maker.revoke(KEYS[0], 4)
    lost = maker.records(receipts(maker, 3, 4))
    maker.take(*lost)
    maker.send(maker.records(receipts(maker, 60))[0])
    waiting = maker.records(receipts(maker, 5))
    maker.send(waiting[0], waiting[0], waiting[1])
    maker.take(*waiting)
    maker.append(Alive(NOW * 1000 + 1, 60_000, 2, Runs((1, 1))), End(NOW, 1, 2, 0, ledger_kept=True))
    return maker


def known(ledger):
    """All that a reader can ask."""
    names = ("size", "root", "gaps", "strays", "checkpoint", "origin", "newest", "withdrawn", "alive", "end")
    facts = [getattr(ledger, name) for name in names]
    void = [ledger.is_void(index) for index in range(ledger.size)]
    versions = [(ledger.index_of(version), ledger.digest(version)) for version in range(4)]
    return (*facts, void, versions, ledger.keys.note, ledger.foreign, ledger.tail)


@pytest.mark.parametrize("tail", [False, True])
def test_a_reader_goes_on_from_its_dump(tail):
    """From each place of a long history, with the drafts that wait read again, as if it had never stopped."""
    maker = long_history()
    values = sent(maker)
    whole = read(maker.keys(), *values, tail=tail)
    assert whole.size == maker.ledger.size
    ledger, waiting = Ledger(maker.keys(), tail=tail), {}
    for place, value in enumerate(values):
        ledger.take(value)
        waiting = {one.before.size: waiting.get(one.before.size, place) for one in ledger.waiting}
        first = min([*waiting.values(), place + 1])
        again = Ledger.restore(ledger.dump(), maker.keys())
        assert known(again) == known(ledger)
        for later in values[first:]:
            again.take(later)
        counted_twice = len(values[first : place + 1]) - len(waiting)
        assert known(again)[4:] == known(whole)[4:]
        assert (again.root, again.gaps) == (whole.root, whole.gaps)
        assert again.strays <= whole.strays + counted_twice
    assert len(whole.dump()) < 4000


# All rules together.


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("draft"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("sign"), st.integers(0, 2)),
        st.tuples(st.just("read"), st.integers(0, 2)),
        st.tuples(st.just("again"), st.integers(0, 30)),
        st.tuples(st.just("forge"), st.integers(1, 3)),
    ),
    max_size=40,
)


@settings(max_examples=EXAMPLES)
@given(steps=STEPS)
# The second of two drafts comes before the checkpoint of the first.
@example(steps=[("draft", 0, 1), ("read", 0), ("draft", 1, 2), ("sign", 0), ("read", 1), ("sign", 1)])
def test_no_two_checkpoints_contradict_each_other(steps):
    """Writers that read late, never, or write again what is there: one tree has every root that was ever signed."""
    topic, signed, numbers = [], [], iter(range(10_000))
    readers = [(Ledger(KeyRing.load(KEYS[0].public, "news")), [0]) for _ in range(3)]
    for name, who, *more in steps:
        ledger, offset = readers[who % 3]
        if name == "draft":
            lines = [receipt_of(next(numbers)) for _ in range(more[0])]
            topic.append(ledger.draft(lines, KEYS[0]))
        elif name == "sign" and ledger.pending is not None:
            note = ledger.sign(ledger.pending, KEYS[0])
            signed.append(Checkpoint.parse(note.partition("\n\n")[0] + "\n"))
            topic.append(page_record(note))
        elif name == "read":
            for value in topic[offset[0] :]:
                ledger.take(value)
            offset[0] = len(topic)
        elif name == "again" and topic:
            topic.append(topic[who % len(topic)])
        elif name == "forge":
            topic.append(ledger.draft([receipt_of(next(numbers))], KEYS[1]))
    whole, tree = Ledger(KeyRing.load(KEYS[0].public, "news")), Tree()
    for value in topic:
        whole.take(value)
        for line in whole.page.lines if whole.page else ():
            tree.append(leaf_hash(line.encode()))
    assert (tree.size, whole.gaps) == (whole.size, set())
    for checkpoint in signed:
        assert tree.root(checkpoint.size) == checkpoint.root
    for ledger, _ in readers:
        assert tree.root(ledger.size) == ledger.root


def test_a_gap_closes_where_its_draft_was_not_lost(three):
    """A checkpoint that is lost, and signed again by somebody else, completes the page of a draft that waits."""
    draft, checkpoint = three.records(receipts(three, 3))
    three.take(draft, checkpoint)
    following = three.records(receipts(three, 4))
    ledger = read(three.keys(), *sent(three), draft, following[0], checkpoint, following[1])
    assert (ledger.size, ledger.gaps, ledger.strays) == (5, set(), 0)


def test_old_versions_are_forgotten_and_stay_proved(maker):
    """A reader remembers the entries of the newest ones; the proof beside its bytes is enough for an old one."""
    first = maker.publish(1)
    for version in range(2, 80):
        maker.append(maker.made(version)[1])
    ledger = read(maker.keys(), *sent(maker))
    assert (ledger.newest, ledger.digest(1)) == (79, None)
    assert ledger.digest(79) is not None
    assert ledger.open_release(1, first.data, first.proof).version == 1


def test_a_reader_with_the_one_key_passes_lists_over(listed):
    """A list of a root that is not known makes a page no stray, and goes on with the drafts for those who know it."""
    ledger = Ledger(KeyRing.load(KEYS[0].public, "news"))
    for value in sent(listed):
        ledger.take(value)
    assert (ledger.root, ledger.strays, ledger.keys.sequence) == (listed.ledger.root, 0, 0)
    draft = ledger.draft(receipts(listed, 1), KEYS[0])
    assert json.loads(draft)["keys"] == ledger.foreign == seal_keys(listed.listed, ROOT)
    again = Ledger.restore(ledger.dump(), KeyRing.load(KEYS[0].public, "news"))
    assert again.foreign == ledger.foreign
