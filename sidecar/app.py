"""The FastAPI application around a control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from sidecar.api import (
    actions,
    backends,
    control,
    dashboard,
    decisions,
    fleet,
    gateways,
    metrics,
    policy,
    predictor,
    prefetches,
    probes,
    problems,
    settings,
    stats,
)
from sidecar.api.guard import Guard
from sidecar.control_plane import ControlPlane
from tokenweir.secret_file import read_token

ROUTERS = (
    *(backends, fleet, control, decisions, actions, prefetches, policy, settings, gateways, stats),
    *(predictor, metrics, probes, dashboard),
)


def create(plane: ControlPlane) -> FastAPI:
    """The application; it starts the control plane with itself and stops it at its end. Raises ConfigError
    when the token's file cannot be read."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await plane.start()
        try:
            yield
        finally:
            await plane.stop()

    app = FastAPI(
        title="Tokenweir admin API",
        summary="The fleet, its decisions, and what an operator may change while it runs.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from elsewhere
        redoc_url=None,
    )
    app.state.plane = plane
    problems.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    app.add_middleware(Guard, token=admin_token(plane))
    return app


def admin_token(plane: ControlPlane) -> str | None:
    """The bearer token of the admin API, or None where it answers on loopback only. Raises ConfigError."""
    admin = plane.config.admin
    if admin.token_file:
        return read_token(plane.folder / admin.token_file, "admin.token_file")
    return admin.token
