"""Sends small real prompts to an engine that has just come up, and measures the time to its first token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from sidecar.clock import monotonic_ms
from sidecar.telemetry.http import Origin

PROMPT: Final = "Warm-up. Count from one to eight in words, with a comma between each two."
OUTPUT: Final = 8
TIMEOUT_S: Final = 30.0
OTHERWISE: Final = frozenset({400, 404, 405, 422, 501})
"""Answers of an engine that may be asked in another way."""
NOT_FOR_US: Final = frozenset({401, 403})


class WarmUpError(Exception):
    """The engine did not answer the prompt; the text says why. `refused`: it serves no such prompt."""

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


def bodies(model: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """(path, body) of the prompt, the likeliest kind first: chat, completion, embedding."""
    common = {"model": model, "max_tokens": OUTPUT, "stream": True, "temperature": 0}
    return (
        ("/v1/chat/completions", {**common, "messages": [{"role": "user", "content": PROMPT}]}),
        ("/v1/completions", {**common, "prompt": PROMPT}),
        ("/v1/embeddings", {"model": model, "input": PROMPT}),
    )


class Warmer:
    """Sends the prompts. One for the whole sidecar."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        """Base URL -> which of the kinds the engine answered last."""

    async def prompt(self, origin: Origin, model: str) -> float:
        """Send one prompt and return the ms to its first token. Raises WarmUpError."""
        kinds = bodies(model)
        refused, status = "", 0
        for kind in range(self._kinds.get(origin.base, 0), len(kinds)):
            path, body = kinds[kind]
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    status, ms = await _send(origin, path, body)
            except TimeoutError:
                raise WarmUpError(f"{path}: no token within {TIMEOUT_S:.0f} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise WarmUpError(f"{path}: {str(error) or type(error).__name__}") from None
            if status == 200:
                self._kinds[origin.base] = kind
                return ms
            refused = f"{path} answers {status}"
            if status not in OTHERWISE:
                break
        self._kinds.pop(origin.base, None)
        raise WarmUpError(refused, status in OTHERWISE | NOT_FOR_US)


async def _send(origin: Origin, path: str, body: Mapping[str, Any]) -> tuple[int, float]:
    headers = {"Content-Type": "application/json", "Host": origin.host_header}
    if origin.api_key:
        headers["Authorization"] = f"Bearer {origin.api_key}"
    began = monotonic_ms()
    # A connection of its own: a prompt must neither wait for a scrape nor hold one up.
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            origin.base + path,
            data=json.dumps(body).encode(),
            headers=headers,
            ssl=origin.tls if origin.tls is not None else True,
            server_hostname=origin.server_name,
        ) as answer,
    ):
        if answer.status != 200:
            return answer.status, 0.0
        await answer.content.readany()
        first = monotonic_ms() - began
        await answer.read()
        return 200, first
