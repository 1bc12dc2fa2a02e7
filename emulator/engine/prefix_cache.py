"""Which prefixes are in KV memory, and who uses them.

An entry stands for one hash block (a whole number of memory blocks). It is referenced by the requests that
hold it; without a reference it stays until its memory is needed, oldest first (`kv_memory` keeps that order).
"""

from collections.abc import Hashable, Sequence


class PrefixCache:
    """References of the hash blocks in memory."""

    def __init__(self) -> None:
        self.references: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.references)

    def match(self, hashes: Sequence[Hashable], most: int) -> int:
        """How many of the leading hashes, at most `most`, are in memory without a gap."""
        references = self.references
        count = 0
        for key in hashes[:most] if most < len(hashes) else hashes:
            if key not in references:
                break
            count += 1
        return count

    def unreferenced(self, keys: Sequence[Hashable]) -> int:
        """How many of these entries nobody holds (they count as free memory until taken)."""
        references = self.references
        return sum(1 for key in keys if references[key] == 0)
