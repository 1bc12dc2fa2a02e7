"""Whether a waiting request may join the batch: its whole sequence must fit, so that a long prompt is not
started in vain."""

from emulator.engine.kv_memory import KvMemory
from emulator.engine.limits import Limits
from emulator.engine.request import Request
from tokenweir.facts import BLOCK


def cached_blocks(memory: KvMemory, limits: Limits, request: Request) -> int:
    """How many leading hash blocks of a request are in memory. Its last token is always computed: its output
    is wanted."""
    if not limits.prefix_caching or not request.hashes:
        return 0
    return memory.cache.match(request.hashes, (request.target - 1) // limits.hash_tokens)


def fits(memory: KvMemory, request: Request, hits: int, reserve: int) -> bool:
    """Whether a request whose first `hits` hash blocks are in memory fits and leaves `reserve` blocks
    free."""
    needed = -(-request.target // BLOCK) - hits * memory.hash_blocks
    if hits:
        # Cached blocks that nobody holds count as free until they are taken up.
        needed += memory.hash_blocks * memory.cache.unreferenced(request.hashes[:hits])
    return needed + reserve <= memory.free
