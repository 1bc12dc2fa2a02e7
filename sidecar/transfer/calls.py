"""JSON over HTTP to engines, controllers and agents, with every failure as a TransferError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from sidecar.telemetry.http import Origin
from sidecar.transfer.port import TransferError

ANSWER_LIMIT: Final = 32 * 1024**2


class Calls:
    """One pool of connections for all transfers. It is made inside the event loop."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "tokenweir-sidecar", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None),  # a move has a time limit of its own
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the pool."""
        await self._session.close()

    async def engine(self, origin: Origin, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST to an engine, as it wants to be spoken to. Raises TransferError."""
        return await self._post(
            origin.base + path,
            body,
            dict(origin.headers),
            ssl=origin.tls if origin.tls is not None else True,
            server_hostname=origin.server_name,
        )

    async def service(
        self, base: str, path: str, body: Mapping[str, Any], token: str | None = None
    ) -> dict[str, Any]:
        """POST to a controller or an agent. Raises TransferError."""
        return await self._post(base + path, body, {"Authorization": f"Bearer {token}"} if token else {})

    async def _post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], **options: Any
    ) -> dict[str, Any]:
        try:
            async with self._session.post(
                url, data=json.dumps(body).encode(), headers=headers, allow_redirects=False, **options
            ) as answer:
                if (answer.content_length or 0) > ANSWER_LIMIT:
                    raise TransferError(f"{url}: the answer is longer than {ANSWER_LIMIT} bytes")
                text = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TransferError(f"{url}: {str(error) or type(error).__name__}") from None
        if status != 200:
            # What it says besides may quote the prompt.
            raise TransferError(f"{url} answers {status}")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise TransferError(f"{url} answers no JSON object")
        return found
