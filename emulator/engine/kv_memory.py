"""KV memory in blocks, with freed blocks reused oldest first.

Blocks are counted, not numbered: a block without a hash is like any other. Freed memory forms a queue of
runs: a run of plain blocks, or one hash block that a later request may take up again as long as it is in the
queue.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Protocol

from emulator.engine.prefix_cache import PrefixCache


class BlockWatch(Protocol):
    """Hears of the hash blocks in memory."""

    def filled(self, key: Hashable) -> None:
        """A block was given a hash."""

    def lost(self, key: Hashable) -> None:
        """Its memory is used for something else."""


class KvMemory:
    """`blocks` blocks of KV memory; one hash block is `hash_blocks` of them."""

    def __init__(self, blocks: int, hash_blocks: int = 1, watch: BlockWatch | None = None) -> None:
        if blocks < 1 or hash_blocks < 1:
            raise ValueError(f"KV memory needs at least one block, got {blocks} of {hash_blocks}")
        self.blocks, self.hash_blocks = blocks, hash_blocks
        self.free = blocks
        self.watch = watch
        self.cache = PrefixCache()
        # Plain runs have negative keys and their length as value; hash blocks their hash and `hash_blocks`.
        self._queue: OrderedDict[Hashable, int] = OrderedDict({-1: blocks})
        self._run = -1

    @property
    def usage(self) -> float:
        """Share of the blocks that requests hold, 0 to 1. Cached blocks that nobody holds count as free, as
        in vLLM."""
        return 1 - self.free / self.blocks

    def take(self, count: int) -> None:
        """Take `count` free blocks, forgetting the prefixes whose memory is reused. The caller has checked
        `free`."""
        if count > self.free:
            raise MemoryError(f"{count} blocks asked for, {self.free} free")
        self.free -= count
        queue = self._queue
        while count > 0:
            key, length = queue.popitem(last=False)
            if length > count:
                self._run -= 1
                queue[self._run] = length - count
                queue.move_to_end(self._run, last=False)
            if key in self.cache.references:
                del self.cache.references[key]
                if self.watch is not None:
                    self.watch.lost(key)
            count -= length

    def give(self, plain: int, shared: Sequence[Hashable]) -> None:
        """Free a request's memory: `plain` blocks at its end, before them the hash blocks `shared`. The end
        goes first, so that the beginning of a prefix outlives its end."""
        queue, references = self._queue, self.cache.references
        if plain > 0:
            self._run -= 1
            queue[self._run] = plain
            self.free += plain
        for key in reversed(shared):
            references[key] -= 1
            if references[key] == 0:
                queue[key] = self.hash_blocks
                self.free += self.hash_blocks

    def hold(self, keys: Sequence[Hashable]) -> None:
        """Take up hash blocks that are in memory, whether others hold them or not."""
        queue, references = self._queue, self.cache.references
        for key in keys:
            if references[key] == 0:
                del queue[key]
                self.free -= self.hash_blocks
            references[key] += 1

    def name(self, key: Hashable) -> bool:
        """Give a hash to blocks that the caller just filled and holds. False when the same content is in
        memory already: the caller then holds that instead and its own blocks are free again."""
        references = self.cache.references
        if key not in references:
            references[key] = 1
            if self.watch is not None:
                self.watch.filled(key)
            return True
        self.hold((key,))
        self.give(self.hash_blocks, ())
        return False

    def adopt(self, keys: Sequence[Hashable]) -> int:
        """Put hash blocks that come from elsewhere into memory, in order, as long as free memory lasts;
        nobody holds them then. Returns how many of the leading ones are in memory."""
        have = self.cache.match(keys, len(keys))
        held = list(keys[:have])
        self.hold(held)
        for key in keys[have:]:
            if self.free < self.hash_blocks:
                break
            self.take(self.hash_blocks)
            self.name(key)
            held.append(key)
        self.give(0, held)
        return len(held)
