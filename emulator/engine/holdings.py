"""What each running request holds of the KV memory, and under which names it stays there afterwards."""

from emulator.engine.decoding import DecodingGroup
from emulator.engine.kv_memory import KvMemory
from emulator.engine.limits import Limits
from emulator.engine.request import Request, State
from tokenweir.facts import BLOCK


class Holdings:
    """The memory of one engine's running requests."""

    def __init__(self, memory: KvMemory, limits: Limits, decoding: DecodingGroup) -> None:
        self._memory, self._limits, self._decoding = memory, limits, decoding

    def tokens(self, request: Request) -> int:
        """Tokens of a running request that are in memory."""
        return self._decoding.tokens(request) if request.state is State.DECODE else request.computed

    def enter(self, request: Request, hits: int) -> None:
        """Let a request begin with its first `hits` hash blocks, which are in memory."""
        request.shared = list(request.hashes[:hits])
        self._memory.hold(request.shared)
        request.computed = hits * self._limits.hash_tokens
        request.allocated = hits * self._memory.hash_blocks

    def needed(self, request: Request, chunk: int) -> int:
        """New blocks that the next `chunk` tokens of a prompt need."""
        return -(-(request.computed + chunk) // BLOCK) - request.allocated

    def extend(self, request: Request, chunk: int) -> None:
        """Take the blocks of the next `chunk` tokens of a prompt and name those that they fill."""
        needed = self.needed(request, chunk)
        self._memory.take(needed)
        request.allocated += needed
        self._name(request, request.computed + chunk)

    def name_own(self, request: Request) -> None:
        """Name the full blocks of a request that have no hash: when it comes back they may still be there."""
        if not self._limits.prefix_caching:
            return
        known, full = len(request.hashes), self.tokens(request) // self._limits.hash_tokens
        if full > known:
            own = [("own", request.number, i) for i in range(known, full)]
            request.hashes = [*request.hashes, *own]

    def free(self, request: Request, *, planned: bool = False) -> None:
        """Free what a running request holds; its named blocks stay in the prefix cache as long as nobody
        needs them.

        `planned`: it decodes, and a step is in progress that has given it room for one more token."""
        blocks = request.allocated
        if request.state is State.DECODE:
            tokens = self.tokens(request)
            blocks = -(-(tokens + planned) // BLOCK)
            self._name(request, tokens)
        self._memory.give(blocks - len(request.shared) * self._memory.hash_blocks, request.shared)
        request.shared, request.computed, request.allocated = [], 0, 0

    def _name(self, request: Request, tokens: int) -> None:
        """Put the hash blocks of a request that are full at `tokens` tokens into the prefix cache."""
        if not self._limits.prefix_caching:
            return
        shared, hashes = request.shared, request.hashes
        for i in range(len(shared), min(len(hashes), tokens // self._limits.hash_tokens)):
            self._memory.name(hashes[i])
            shared.append(hashes[i])
