"""A URL that is told what to do, signed by Standard Webhooks, over real HTTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.webhook import WebhookDriver, headers, secret_of
from tokenweir.config.actuators import WebhookConfig

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Receiver:
    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append(({k.lower(): v for k, v in request.headers.items()}, await request.read()))
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 302:
            return web.Response(status=302, headers={"Location": self.url + "/elsewhere"})
        return web.Response(status=status, text=None if status == 204 else "because")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield made
    await runner.cleanup()


def driver(url: str) -> WebhookDriver:
    return WebhookDriver(WebhookConfig(url=url, secret_file="x"), secret_of(SECRET), pause_s=0.01)


ORDER = Order("abc", "gpu-a", Action.APPLY, ("--x", "1"), "another variant")


async def test_the_receiver_is_told_the_whole_order(receiver):
    assert "answered 204" in await driver(receiver.url).act(ORDER)
    ((_, body),) = receiver.got
    message = json.loads(body)
    assert message["type"] == "engine.apply"
    assert message["data"] == {
        "backend": "gpu-a",
        "action": "apply",
        "arguments": ["--x", "1"],
        "reason": "another variant",
    }


async def test_the_signature_is_what_a_receiver_computes_itself(receiver):
    await driver(receiver.url).act(ORDER)
    ((sent, body),) = receiver.got
    signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert sent["webhook-signature"] == f"v1,{expected}"
    assert sent["webhook-id"] == "msg_abc"
    assert abs(int(sent["webhook-timestamp"]) - time.time()) < 5


def test_the_signature_is_that_of_the_specifications_example():
    # standard-webhooks/spec: the reference libraries' own test vector.
    found = headers(
        secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_receiver_that_falters_is_told_again_under_the_same_id(receiver):
    receiver.statuses = [503, 429]
    await driver(receiver.url).act(ORDER)
    assert len(receiver.got) == 3
    assert {sent["webhook-id"] for sent, _ in receiver.got} == {"msg_abc"}


async def test_a_receiver_that_refuses_is_not_asked_twice(receiver):
    receiver.statuses = [400]
    with pytest.raises(ActuationError, match="answers 400: because"):
        await driver(receiver.url).act(ORDER)
    assert len(receiver.got) == 1


async def test_a_redirect_is_not_followed(receiver):
    receiver.statuses = [302]
    with pytest.raises(ActuationError, match="answers 302"):
        await driver(receiver.url).act(ORDER)
    assert len(receiver.got) == 1


async def test_nobody_there_is_said():
    with pytest.raises(ActuationError, match="Cannot connect"):
        await driver("http://127.0.0.1:9/hook").act(ORDER)


def test_a_secret_is_plain_text_or_base64_and_long_enough():
    assert secret_of(SECRET) == b"0123456789abcdef0123456789abcdef"
    assert secret_of("a plain secret of thirty chars") == b"a plain secret of thirty chars"
    with pytest.raises(ValueError, match="at least 24 bytes"):
        secret_of("short")
    with pytest.raises(ValueError, match="not base64"):
        secret_of("whsec_!!!")
