"""The tree of the ledger, held against vectors of others; `test_interop` holds it against Go's own tree."""

import hashlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import InvalidRelease
from streamtopic.signed import Frontier, leaf_hash
from streamtopic.signed.checkpoints import (
    EMPTY_ROOT,
    consistency_path,
    inclusion_path,
    range_hash,
    verify_inclusion,
)
from whole_tree import Tree

# Above two of the tiles in which a tree keeps its hashes.
LARGEST = 700
# Entries and roots that implementations of Certificate Transparency share as test vectors.
COMMON_ENTRIES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
COMMON_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
SIZES = st.integers(1, LARGEST)


def entries_of(size):
    """So many entries, each another."""
    return [b"entry %d" % number for number in range(size)]


@cache
def tree():
    """The tree of the largest size; a test only reads it."""
    whole = Tree()
    for entry in entries_of(LARGEST):
        whole.append(leaf_hash(entry))
    return whole


def test_roots_are_those_of_the_common_vectors():
    """The eight roots that others publish come out, and that of no entry."""
    entries = [bytes.fromhex(text) for text in COMMON_ENTRIES]
    frontier = Frontier()
    assert frontier.root == EMPTY_ROOT == hashlib.sha256(b"").digest() == Tree().root(0)
    for size, expected in enumerate(COMMON_ROOTS, 1):
        frontier = frontier.grown([leaf_hash(entries[size - 1])])
        assert frontier.root.hex() == expected


def test_a_frontier_has_the_root_of_the_tree():
    """At each size up to two tiles and more, whatever the size at which the frontier was taken up."""
    frontier = Frontier()
    for size, entry in enumerate(entries_of(LARGEST)):
        assert frontier.root == tree().root(size)
        frontier = Frontier(size, frontier.hashes).grown([leaf_hash(entry)])


def damaged(path):
    """Paths that are not this one: a hash of it changed, left out, or one too many."""
    other = leaf_hash(b"nothing of this tree")
    for place in range(len(path)):
        yield [*path[:place], other, *path[place + 1 :]]
        yield [*path[:place], *path[place + 1 :]]
        if len(set(path)) > 1:
            yield [*path[place + 1 :], *path[: place + 1]] if place + 1 < len(path) else path[::-1]
    yield [*path, other]
    yield [other, *path]


@given(data=st.data(), size=SIZES)
@settings(max_examples=100)
def test_any_other_inclusion_is_refused(data, size):
    """Another entry, place, root or path proves nothing; its own proves it."""
    index = data.draw(st.integers(0, size - 1))
    leaf, path, root = leaf_hash(b"entry %d" % index), tree().inclusion(index, size), tree().root(size)
    verify_inclusion(leaf, index, size, path, root)
    other = leaf_hash(b"nothing of this tree")
    wrong = [(other, index, path, root), (leaf, index, path, other)]
    wrong += [(leaf, place, path, root) for place in {-1, (index + 1) % size, size - 1 - index, size} - {index}]
    wrong += [(leaf, index, one, root) for one in damaged(path)]
    for changed_leaf, place, changed_path, changed_root in wrong:
        with pytest.raises(InvalidRelease, match="ledger"):
            verify_inclusion(changed_leaf, place, size, changed_path, changed_root)


def test_proofs_of_a_long_ledger_ask_for_few_hashes():
    """A tree of 2^62 entries is proved by paths of 62 hashes at most, from whole subtrees alone."""
    asked = []

    def node(level, index):
        asked.append((level, index))
        return leaf_hash(b"%d/%d" % (level, index))

    size = (1 << 62) - 1
    root = range_hash(node, 0, size)
    asked.clear()
    path = inclusion_path(node, size // 3, size)
    assert len(path) <= 62
    # The right edge of the tree is made of one whole subtree for each bit.
    assert len(asked) <= 2 * 62
    grown = consistency_path(node, size // 3, size)
    assert len(grown) <= 63
    # Each node is a made-up hash, so only those that the paths name fit together: the root over the same parts.
    verify_inclusion(node(0, size - 1), size - 1, size, inclusion_path(node, size - 1, size), root)
