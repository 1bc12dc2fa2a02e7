"""Two agents in one process, over real links: what they fetch, what they refuse, how links come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer

from kv_agent import link
from kv_agent.agent import Agent, AgentError
from kv_agent.server import make_app

TOKEN = "a-token-of-the-agents"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
WIDTH = 64
MS = 20_000


class Cache:
    """A cache of named rows; the request lists the names."""

    def __init__(self, width: int = WIDTH) -> None:
        self.block_tokens, self.block_bytes = 16, width
        self.rows: dict[Hashable, Any] = {}

    def fill(self, *names: str) -> None:
        for name in names:
            self.rows[name] = torch.randint(0, 256, (self.block_bytes,), dtype=torch.uint8)

    def blocks(self, kind: str, request: Mapping[str, Any]) -> Sequence[Hashable]:
        if kind != "chat":
            raise ValueError("no chat")
        return list(request["names"])

    def held(self, names: Sequence[Hashable]) -> int:
        return next((k for k, name in enumerate(names) if name not in self.rows), len(names))

    def read(self, names: Sequence[Hashable]) -> Any:
        return torch.stack([self.rows[name] for name in names])

    def write(self, names: Sequence[Hashable], first: int, blocks: Any) -> int:
        self.rows.update(zip(names[first:], blocks, strict=False))
        return self.held(names)


class Side:
    """A cache and its agent, on a port."""

    def __init__(self, token: str | None = TOKEN, width: int = WIDTH, pace: float | None = None) -> None:
        self.cache = Cache(width)
        self.agent = Agent(self.cache, "127.0.0.1", token, pace=pace)
        self.server = TestServer(make_app(self.agent, token))

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")


Start = Callable[..., Awaitable[Side]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Side] = []

    async def make(**options: Any) -> Side:
        side = Side(**options)
        await side.server.start_server()
        started.append(side)
        return side

    yield make
    for side in started:
        await side.server.close()


def same(one: Cache, other: Cache, *names: str) -> bool:
    return all(torch.equal(one.rows[name], other.rows[name]) for name in names)


async def test_a_fetch_brings_the_leading_blocks_that_the_other_has(start: Start) -> None:
    giver, taker = await start(), await start()
    giver.cache.fill("a", "b", "c", "e")
    found = await taker.agent.fetch(giver.url, "chat", {"names": ["a", "b", "c", "d", "e"]}, MS)
    assert (found.tokens, found.bytes) == (48, 3 * WIDTH)
    assert same(giver.cache, taker.cache, "a", "b", "c")
    assert set(taker.cache.rows) == {"a", "b", "c"}
    assert (taker.agent.counts.fetched, taker.agent.counts.bytes_in) == (1, 3 * WIDTH)


async def test_what_is_there_already_is_not_sent_again(start: Start) -> None:
    giver, taker = await start(), await start()
    giver.cache.fill("a", "b", "c")
    for names, size in ((["a"], WIDTH), (["a", "b", "c"], 2 * WIDTH), (["a", "b", "c"], 0)):
        found = await taker.agent.fetch(giver.url, "chat", {"names": names}, MS)
        assert (found.tokens, found.bytes) == (16 * len(names), size)
    assert same(giver.cache, taker.cache, "a", "b", "c")


async def test_large_caches_go_in_pieces_and_at_a_pace(start: Start) -> None:
    width = link.PIECE // 2
    giver, taker = await start(width=width, pace=10 * width), await start(width=width)
    names = [str(k) for k in range(5)]
    giver.cache.fill(*names)
    found = await taker.agent.fetch(giver.url, "chat", {"names": names}, MS)
    assert found.bytes == 5 * width
    assert found.ms > 300
    assert same(giver.cache, taker.cache, *names)


async def test_both_ways_and_many_at_once(start: Start) -> None:
    one, other = await start(), await start()
    one.cache.fill(*(f"one-{k}" for k in range(20)))
    other.cache.fill(*(f"other-{k}" for k in range(20)))
    await asyncio.gather(
        *(one.agent.fetch(other.url, "chat", {"names": [f"other-{k}"]}, MS) for k in range(20)),
        *(other.agent.fetch(one.url, "chat", {"names": [f"one-{k}"]}, MS) for k in range(20)),
    )
    assert same(one.cache, other.cache, *one.cache.rows)
    assert len(one.cache.rows) == 40


async def test_where_the_other_has_nothing_nothing_comes(start: Start) -> None:
    giver, taker = await start(), await start()
    found = await taker.agent.fetch(giver.url, "chat", {"names": ["a"]}, MS)
    assert (found.tokens, found.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "request_", "says"),
    [
        ("chat", {"names": []}, "fills no block"),
        ("completions", {"names": ["a"]}, "no chat"),
    ],
)
async def test_what_cannot_be_fetched_is_told(
    start: Start, kind: str, request_: dict[str, Any], says: str
) -> None:
    giver, taker = await start(), await start()
    with pytest.raises(AgentError, match=says):
        await taker.agent.fetch(giver.url, kind, request_, MS)


async def test_caches_of_another_form_do_not_mix(start: Start) -> None:
    giver, taker = await start(width=32), await start()
    giver.cache.fill("a")
    with pytest.raises(AgentError, match="a block has 32 bytes here, and 64 there"):
        await taker.agent.fetch(giver.url, "chat", {"names": ["a"]}, MS)
    assert not taker.cache.rows


async def test_an_agent_that_is_not_there_or_wants_another_token_is_told(start: Start) -> None:
    giver, taker = await start(token="another-token-of-others"), await start()
    with pytest.raises(AgentError, match="answers 401"):
        await taker.agent.fetch(giver.url, "chat", {"names": ["a"]}, MS)
    with pytest.raises(AgentError, match=r"127\.0\.0\.1:1"):
        await taker.agent.fetch("http://127.0.0.1:1", "chat", {"names": ["a"]}, MS)


async def test_one_that_takes_too_long_is_given_up_and_the_next_has_a_new_link(start: Start) -> None:
    width = link.PIECE
    giver, taker = await start(width=width, pace=2 * width), await start(width=width)
    names = [str(k) for k in range(8)]
    giver.cache.fill(*names)
    with pytest.raises(AgentError):
        await taker.agent.fetch(giver.url, "chat", {"names": names}, 700)
    assert not taker.cache.rows
    assert taker.agent.counts.failed == 1
    found = await taker.agent.fetch(giver.url, "chat", {"names": names[:1]}, MS)
    assert found.tokens == 16
    assert same(giver.cache, taker.cache, names[0])


async def test_an_agent_that_was_started_anew_is_met_anew(start: Start) -> None:
    giver, taker = await start(), await start()
    giver.cache.fill("a", "b")
    await taker.agent.fetch(giver.url, "chat", {"names": ["a"]}, MS)
    giver.agent._to.clear()  # as a new process begins
    found = await taker.agent.fetch(giver.url, "chat", {"names": ["a", "b"]}, MS)
    assert found.tokens == 32
    assert same(giver.cache, taker.cache, "a", "b")


class TestRoutes:
    """What the agent answers over HTTP."""

    @pytest.fixture
    async def client(self, start: Start) -> AsyncIterator[tuple[TestClient[Any, Any], Side]]:
        side = await start()
        side.cache.fill("a")
        async with TestClient(side.server) as client:
            yield client, side

    async def test_without_the_token_nothing(self, client: tuple[TestClient[Any, Any], Side]) -> None:
        for path in ("/kv/fetch", "/kv/send"):
            assert (await client[0].post(path, json={})).status == 401
        assert (await client[0].get("/kv/counts")).status == 401

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"source": "http://x", "request": {}, "timeout_ms": 0},
            {"source": "http://x", "request": [], "timeout_ms": 5},
            {"source": 5, "request": {}, "timeout_ms": 5},
        ],
    )
    async def test_a_fetch_that_is_none(
        self, client: tuple[TestClient[Any, Any], Side], body: dict[str, Any]
    ) -> None:
        answer = await client[0].post("/kv/fetch", json=body, headers=HEADERS)
        assert answer.status == 400

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{}", b'{"kind":"chat","request":{"names":["a"]},"meet":5}']
    )
    async def test_a_question_that_is_none(
        self, client: tuple[TestClient[Any, Any], Side], body: bytes
    ) -> None:
        answer = await client[0].post("/kv/send", data=body, headers=HEADERS)
        assert answer.status == 409

    async def test_a_fetch_tells_what_came(
        self, client: tuple[TestClient[Any, Any], Side], start: Start
    ) -> None:
        giver = await start()
        giver.cache.fill("b", "c")
        body = {"source": giver.url, "kind": "chat", "request": {"names": ["b", "c"]}, "timeout_ms": MS}
        answer = await client[0].post("/kv/fetch", json=body, headers=HEADERS)
        assert answer.status == 200
        told = await answer.json()
        assert (told["tokens"], told["bytes"]) == (32, 2 * WIDTH)
        counts = await (await client[0].get("/kv/counts", headers=HEADERS)).json()
        assert (counts["fetched"], counts["fetching"]) == (1, 0)


@pytest.mark.parametrize(("receiver", "sender"), [("", ""), ("GPU-1", ""), ("", "GPU-1"), ("GPU-1", "GPU-1")])
def test_without_a_gpu_for_each_it_is_gloo(receiver: str, sender: str) -> None:
    assert link.backend_between(receiver, sender) == "gloo"


def test_with_a_gpu_for_each_it_is_nccl_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    assert link.backend_between("GPU-1", "GPU-2") == "nccl"
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    assert link.backend_between("GPU-1", "GPU-2") == "gloo"
