"""Asks a part whether it is ready."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx


def url_host(address: str) -> str:
    """The host part of a URL that reaches a server listening on `address` from this machine."""
    address = address.strip("[]")
    return bracketed({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address))  # noqa: S104


def bracketed(address: str) -> str:
    """An address as it stands before `:` and a port."""
    address = address.strip("[]")
    return f"[{address}]" if ":" in address else address


def http_ready(url: str, *, verify: bool = True) -> str | None:
    """None once `url` answers 200; else what it answered."""
    ready, text = http_answer(url, verify=verify)
    return None if ready else text


def http_answer(url: str, *, verify: bool = True) -> tuple[bool, str]:
    """Whether `url` answers 200, and what it says, or why not."""
    context: ssl.SSLContext | bool = (
        ssl.create_default_context() if verify and url.startswith("https") else False
    )
    try:
        answer = httpx.get(url, timeout=2, verify=context, trust_env=False)
    except httpx.HTTPError as error:
        return False, f"no answer yet ({type(error).__name__})"
    text = " ".join(answer.text.split())[:160]
    if answer.status_code == 200:
        return True, text
    if "html" in answer.headers.get("content-type", ""):
        return False, f"answers {answer.status_code} with a web page: is that another program?"
    return False, f"answers {answer.status_code} {text}"


def redis_ready(host: str, port: int, user: str, password: Path) -> str | None:
    """None once Redis answers this user's PING."""
    import redis  # noqa: PLC0415  (takes long, and only `up` needs it)

    client = redis.Redis(
        host=host, port=port, username=user, password=password.read_text(), socket_timeout=2, protocol=2
    )
    try:
        client.ping()
    except redis.RedisError as error:
        return str(error)[:160]
    finally:
        client.close()
    return None
