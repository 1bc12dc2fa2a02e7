"""A line of requests before a backend that takes one at a time."""

from __future__ import annotations

from typing import Any

from tests.integration.proxy.gateway import Gateway, sha256
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, held

KEYS = [{"id": name, "sha256": sha256(f"key-{name}")} for name in ("flood", "other")]


def as_key(name: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer key-{name}", **headers}


class Line:
    """A gateway before a backend that takes one request at a time, which a first request holds."""

    def __init__(self, gateway: Gateway, upstream: Upstream, **headers: str) -> None:
        self.gateway, self.upstream = gateway, upstream
        self.permits = held()
        upstream.answer = Answer(permits=self.permits)
        self.connections = [gateway.open(headers=headers, user="first")]
        wait_until(lambda: gateway.inflight() == 1, what="the first request")

    def wait(self, user: str, headers: dict[str, str] | None = None, **members: Any) -> None:
        """One more waits."""
        before = self.depth()
        self.connections.append(self.gateway.open(headers=headers, user=user, **members))
        wait_until(lambda: self.depth() == before + 1, what=f"{user} in the queue")

    def depth(self, **labels: str) -> float:
        return self.gateway.metric("tokenweir_queue_depth", **labels)

    def served(self) -> list[str]:
        """Everybody is served; returns the order in which they came to the backend, the first left out."""
        for _ in self.connections:
            self.permits.release()
        for connection in self.connections:
            assert connection.getresponse().status == 200
        self.gateway.settle()
        return [received.json["user"] for received in self.upstream.received[1:]]
