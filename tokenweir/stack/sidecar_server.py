"""The sidecar as a part of the stack."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenweir.secret_file import read_secret
from tokenweir.stack.part import Part, Port, contents_stamp, sources_stamp
from tokenweir.stack.probes import bracketed, http_ready, url_host
from tokenweir.stack.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def admin_url(settings: Settings) -> str:
    """Where the admin API answers, for a client on this machine."""
    admin = settings.config.admin
    return f"http://{url_host(admin.address)}:{admin.port}"


def admin_headers(settings: Settings) -> dict[str, str]:
    """What a request to the admin API must carry. Raises ConfigError when the token's file cannot be used."""
    admin = settings.config.admin
    token = admin.token
    if admin.token_file:
        token = read_secret(settings.path.parent / admin.token_file, "admin.token_file")
    return {"Authorization": f"Bearer {token}"} if token else {}


def part(settings: Settings) -> Part:
    """`python -m sidecar` with the stack's settings."""
    admin, redis = settings.config.admin, settings.config.redis
    keys = (key.key_file for key in settings.config.keys)
    secrets = (admin.token_file, redis.sidecar_password_file, redis.ca, *keys)
    url = f"{admin_url(settings)}/healthz"
    return Part(
        name="sidecar",
        title=f"sidecar on {bracketed(admin.address)}:{admin.port}",
        argv=[sys.executable, "-m", "sidecar", "--config", str(settings.path)],
        environment=settings.environment,
        folder=ROOT,
        log=settings.state.log / "sidecar.log",
        ports=[Port(admin.address, admin.port, "admin.port")],
        ready=lambda: http_ready(url),
        stamp=settings.path.read_text()
        + contents_stamp(settings.path.parent, *secrets)
        + sources_stamp(ROOT, "sidecar", "tokenweir")
        + contents_stamp(ROOT, "requirements.lock"),
        needs=frozenset({"redis"}),
    )
