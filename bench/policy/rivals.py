"""The rules of other routers, by their published formulas. Each sees what it sees in the field: its own
requests at once, the servers' metrics as often as it polls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import exp, inf

from bench.policy.cache_rivals import CacheAware, Dynamo, LlmD
from bench.policy.job import Job
from bench.policy.routing import WAIT, Reading, Router
from bench.policy.server import Server


class RoundRobin(Router):
    """nginx's default: each in its turn."""

    name = "nginx_round_robin"
    _last = -1

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """The next."""
        usable = set(candidates)
        while True:
            self._last = (self._last + 1) % self.count
            if self._last in usable:
                return self._last


class NginxLeastConn(Router):
    """nginx `least_conn`: fewest connections, among equals in turn."""

    name = "nginx_least_conn"
    _turn = 0

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Fewest connections."""
        self._turn += 1
        size = len(candidates)
        inflight = self.inflight
        return min((candidates[(self._turn + k) % size] for k in range(size)), key=lambda i: inflight[i])


class NginxRandomTwo(Router):
    """nginx `random two least_conn`."""

    name = "nginx_random_two"

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """The one with fewer connections of two."""
        two = self.random.sample(candidates, min(2, len(candidates)))
        return min(two, key=lambda i: self.inflight[i])


class KubernetesRandom(Router):
    """Kubernetes' service balancing: random per connection, a request each here."""

    name = "kubernetes_random"

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Any."""
        return self.random.choice(candidates)


class ConsistentHash(Router):
    """nginx `hash ... consistent`: 160 points a server, by session; a request without one by its own."""

    name = "consistent_hash"
    POINTS = 160

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._ring = sorted(
            (self._hash(f"{i}-{k}"), i) for i in range(self.count) for k in range(self.POINTS)
        )

    @staticmethod
    def _hash(text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """The next point on the ring."""
        value = self._hash(str(job.session if job.session is not None else job.number))
        usable = set(candidates)
        low, high = 0, len(self._ring)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._ring[middle][0] < value else (low, middle)
        for k in range(len(self._ring)):
            server = self._ring[(low + k) % len(self._ring)][1]
            if server in usable:
                return server
        return candidates[0]


class LeastMemory(Router):
    """Least KV use as the last look showed it: all that come between two looks go to one server."""

    name = "least_memory"

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Least memory in use."""
        readings = self.readings
        return min(candidates, key=lambda i: (readings[i].kv if readings[i].up else inf, i))


class LeastOutstanding(Router):
    """Fewest own requests in flight, among equals any."""

    name = "least_outstanding"

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Fewest in flight."""
        inflight = self.inflight
        least = min(inflight[i] for i in candidates)
        return self.random.choice([i for i in candidates if inflight[i] == least])


class LeastOutstandingHold(LeastOutstanding):
    """The same where a server takes no request that would bring the tokens in its memory over 80 %; where
    all are that full, requests wait. It counts prompts and the tokens that stream past."""

    name = "least_outstanding_hold"
    SHARE = 0.8

    @property
    def sees_progress(self) -> bool:
        """It counts tokens."""
        return True

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._prompts = [0] * self.count
        self._jobs: list[dict[int, Job]] = [{} for _ in range(self.count)]

    def _held(self, i: int) -> int:
        engine = self.servers[i].engine
        return self._prompts[i] + sum(
            engine.generated(job.request) for job in self._jobs[i].values() if job.request is not None
        )

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Fewest in flight of those with room."""
        held = {i: self._held(i) for i in candidates}
        room = [
            i
            for i in candidates
            if held[i] + job.prompt <= self.SHARE * self.servers[i].capacity or not self.inflight[i]
        ]
        return super().pick(job, now, room) if room else WAIT

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """Count its prompt."""
        self._prompts[chosen] += job.prompt
        self._jobs[chosen][job.number] = job

    def forget(self, job: Job, server: int) -> None:
        """Take it off."""
        self._prompts[server] -= job.prompt
        del self._jobs[server][job.number]


class PowerOfTwo(NginxRandomTwo):
    """Power of two choices by own requests in flight (vllm-router, SGLang's `power_of_two`)."""

    name = "power_of_two"


class Ewma(Router):
    """ingress-nginx's EWMA: `ewma * e^(-dt/10) + latency * (1 - e^(-dt/10))`, the best of two random."""

    name = "ewma"
    DECAY_S = 10.0

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._ewma = [0.0] * self.count
        self._touched = [0.0] * self.count

    def _score(self, i: int, now: float) -> float:
        return self._ewma[i] * exp(-max(0.0, now - self._touched[i]) / 1000 / self.DECAY_S)

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """The lower score of two."""
        two = self.random.sample(candidates, min(2, len(candidates)))
        return min(two, key=lambda i: self._score(i, now))

    def ended(self, job: Job, now: float) -> None:
        """Its latency counts."""
        super().ended(job, now)
        i = job.server
        weight = exp(-max(0.0, now - self._touched[i]) / 1000 / self.DECAY_S)
        self._ewma[i] = self._ewma[i] * weight + (now - job.sent) / 1000 * (1 - weight)
        self._touched[i] = now


class SmgLeastLoad(Router):
    """SMG's least load: `(queued tokens + own tokens in flight since the poll) / throughput + 0.15 kv / (1 -
    kv)`, polled every 10 s."""

    name = "smg_least_load"
    poll_ms = 10_000.0

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._since = [0] * self.count
        self._throughput = [1000.0] * self.count
        self._generated = [0] * self.count

    def looked(self, readings: list[Reading], now: float) -> None:
        """A poll."""
        super().looked(readings, now)
        for i, reading in enumerate(readings):
            rate = (reading.generated - self._generated[i]) / (self.poll_ms / 1000)
            self._generated[i] = reading.generated
            if rate > 0:
                self._throughput[i] = rate
        self._since = [0] * self.count

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Least load."""

        def load(i: int) -> float:
            reading = self.readings[i]
            kv = min(reading.kv, 0.999)
            queued = reading.waiting_tokens + self._since[i]
            return queued / self._throughput[i] + 0.15 * kv / (1 - kv)

        return min(candidates, key=lambda i: (load(i), i))

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """Own tokens since the poll."""
        self._since[chosen] += job.prompt


RIVALS: dict[str, Callable[[Sequence[Server], int], Router]] = {
    router.name: router
    for router in (
        RoundRobin,
        NginxLeastConn,
        NginxRandomTwo,
        KubernetesRandom,
        ConsistentHash,
        LeastMemory,
        LeastOutstanding,
        LeastOutstandingHold,
        PowerOfTwo,
        Ewma,
        SmgLeastLoad,
        LlmD,
        Dynamo,
        CacheAware,
    )
}
