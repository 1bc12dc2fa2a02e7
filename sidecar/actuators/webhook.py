"""Tells a URL what to do with an engine, for fleets that are run by something of their own.

Signed as Standard Webhooks says, so that receivers verify it with a ready-made library:
`webhook-signature: v1,base64(HMAC-SHA256(secret, "id.timestamp.body"))`.
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import ssl
import time
from typing import Final

import aiohttp

from sidecar.actuators.actuator import ActuationError, Order
from tokenweir.config.actuators import WebhookConfig

PREFIX: Final = "whsec_"
SHORTEST_SECRET: Final = 24
"""Bytes, as the specification has them."""
TRIES: Final = 3
PAUSE_S: Final = 1.0
ANSWER_SHOWN: Final = 200


class WebhookDriver:
    """One URL. A delivery that meets no answer, 408, 429 or a 5xx is repeated under the same id."""

    kind = "webhook"

    def __init__(
        self,
        config: WebhookConfig,
        secret: bytes,
        tls: ssl.SSLContext | None = None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._config = config
        self._secret = secret
        self._tls = tls
        self._pause_s = pause_s

    async def act(self, order: Order) -> str:
        """As in `Driver`."""
        body = json.dumps(
            {
                "type": f"engine.{order.action.value}",
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "data": {
                    "backend": order.backend,
                    "action": order.action.value,
                    "arguments": list(order.arguments),
                    "reason": order.reason,
                },
            },
            separators=(",", ":"),
        ).encode()
        problem = ""
        async with aiohttp.ClientSession(trust_env=False) as session:
            for attempt in range(TRIES):
                if attempt:
                    await asyncio.sleep(self._pause_s * 2 ** (attempt - 1))
                status, problem = await self._deliver(session, order, body)
                if 200 <= status < 300:
                    return f"told {self._config.url}, which answered {status}"
                if status and status not in {408, 429} and status < 500:
                    break
        raise ActuationError(f"{self._config.url}: {problem}")

    def describe(self, order: Order) -> str:
        """As in `Driver`."""
        return f"tell {self._config.url} to {order.action}"

    async def _deliver(self, session: aiohttp.ClientSession, order: Order, body: bytes) -> tuple[int, str]:
        """(status, problem in words); status 0 without an answer."""
        try:
            async with session.post(
                self._config.url,
                data=body,
                headers=headers(self._secret, f"msg_{order.id}", int(time.time()), body),
                ssl=self._tls or True,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=15),
            ) as response:
                text = (await response.content.read(ANSWER_SHOWN)).decode("utf-8", "replace").strip()
                return response.status, f"answers {response.status}" + (f": {text}" if text else "")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, str(error) or "no answer within 15 s"


def headers(secret: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that carry the signature."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    signature = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {
        "Content-Type": "application/json",
        "User-Agent": "tokenweir-sidecar",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


def secret_of(text: str) -> bytes:
    """The bytes of a secret as its file has it: `whsec_` and base64, or plain text. Raises ValueError."""
    if text.startswith(PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise ValueError(f"what follows {PREFIX} is not base64") from None
    else:
        secret = text.encode()
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(
            f"the secret needs at least {SHORTEST_SECRET} bytes: whsec_$(openssl rand -base64 32)"
        )
    return secret
