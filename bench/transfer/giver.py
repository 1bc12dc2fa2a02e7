"""`python -m bench.transfer.giver BLOCK_BYTES BLOCKS`: an agent with a full cache; it prints its URL."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from bench.transfer.cache import Cache
from kv_agent.agent import Agent
from kv_agent.server import make_app


async def serve(block_bytes: int, blocks: int) -> None:
    """Serve for ever."""
    agent = Agent(Cache(block_bytes, blocks), "127.0.0.1")
    runner = web.AppRunner(make_app(agent, None), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
