"""The tree of a ledger with every hash in memory, which what the program keeps and proves is held against."""

from streamtopic.signed.checkpoints import EMPTY_ROOT, consistency_path, inclusion_path, node_hash, range_hash


class Tree:
    """The hash of every complete subtree. size: number of entries."""

    def __init__(self):
        self._levels, self.size = [[]], 0

    def append(self, leaf):
        """Add the hash of the next entry."""
        self._levels[0].append(leaf)
        self.size += 1
        for level in range((self.size & -self.size).bit_length() - 1):
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(node_hash(*self._levels[level][-2:]))

    def root(self, size):
        """The root that the tree had with so many entries."""
        return range_hash(self.node, 0, size) if size else EMPTY_ROOT

    def inclusion(self, index, size):
        """The proof that the entry at an index was in the tree of so many entries."""
        return inclusion_path(self.node, index, size)

    def consistency(self, old, size):
        """The proof that a tree begins with that of fewer entries."""
        return consistency_path(self.node, old, size)

    def node(self, level, index):
        """The hash of a complete subtree."""
        return self._levels[level][index]
