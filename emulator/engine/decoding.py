"""The sequences that decode. All advance by one token a step, so none is touched on the way.

Each remembers the step at which it joined; a heap knows the next to finish; sixteen counters know how many
need a new block in which step. Any number of steps is then one addition.
"""

from heapq import heappop, heappush

from emulator.engine.request import Request, State
from tokenweir.facts import BLOCK


class DecodingGroup:
    """The decoding sequences of one engine, after `steps` steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.count = 0
        self.kv = 0
        """Tokens that they hold."""
        self._phases = [0] * BLOCK
        self._finishing: list[tuple[int, int, Request]] = []

    def join(self, request: Request) -> None:
        """Add a sequence whose `target` tokens are in memory and whose next token is the next step's."""
        request.state = State.DECODE
        request.joined, request.context = self.steps, request.target
        request.finish_step = self.steps + request.output - request.base
        self.count += 1
        self.kv += request.context
        self._phases[(request.joined + 1 - request.context) % BLOCK] += 1
        heappush(self._finishing, (request.finish_step, request.number, request))

    def leave(self, request: Request) -> None:
        """Take a sequence out; its `base` becomes what it has produced."""
        self.kv -= self.tokens(request)
        request.base = self.generated(request)
        self.count -= 1
        self._phases[(request.joined + 1 - request.context) % BLOCK] -= 1

    def generated(self, request: Request) -> int:
        """Tokens that a decoding sequence has produced."""
        return request.base + self.steps - request.joined

    def tokens(self, request: Request) -> int:
        """Tokens that it holds in memory."""
        return request.context + self.steps - request.joined

    def blocks_for(self, count: int) -> int:
        """New blocks that the group needs for its next `count` steps."""
        rounds, rest = divmod(count, BLOCK)
        phases, steps = self._phases, self.steps
        needed = rounds * self.count
        for i in range(1, rest + 1):
            needed += phases[(steps + i) % BLOCK]
        return needed

    def steps_within(self, free: int) -> int:
        """How many steps the group can do until its first sequence finishes or `free` blocks are used up."""
        finishing = self._finishing
        while not self._current(finishing[0]):
            heappop(finishing)
        count = finishing[0][0] - self.steps
        if self.blocks_for(count) > free:
            count = min(count, BLOCK * (free // self.count) + BLOCK - 1)
            while self.blocks_for(count) > free:
                count -= 1
        return count

    def step(self, count: int = 1) -> None:
        """Advance all by `count` tokens."""
        self.kv += self.count * count
        self.steps += count

    def due(self) -> list[Request]:
        """The sequences whose last token is out. They are still in the group."""
        finishing, due = self._finishing, []
        while finishing and finishing[0][0] <= self.steps:
            entry = heappop(finishing)
            if self._current(entry):
                due.append(entry[2])
        return due

    @staticmethod
    def _current(entry: tuple[int, int, Request]) -> bool:
        """Whether a heap entry still holds: its sequence may have been dropped, or preempted and joined
        anew."""
        step, _, request = entry
        return request.state is State.DECODE and request.finish_step == step
