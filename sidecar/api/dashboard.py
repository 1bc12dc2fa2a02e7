"""Routes: pages that show the fleet and describe the API. Their files hold no data, so they need no
token; what is shown there does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse

FOLDER: Final = Path(__file__).resolve().parent.parent / "dashboard"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def index() -> FileResponse:
    return FileResponse(FOLDER / "index.html", headers=HEADERS)


@router.get("/dashboard/style.css")
async def style() -> FileResponse:
    return FileResponse(FOLDER / "style.css", headers=HEADERS)


@router.get("/dashboard/fleet.js")
async def script() -> FileResponse:
    return FileResponse(FOLDER / "fleet.js", media_type="text/javascript", headers=HEADERS)


@router.get("/docs")
async def description() -> FileResponse:
    return FileResponse(FOLDER / "api.html", headers=HEADERS)


@router.get("/dashboard/api.js")
async def description_script() -> FileResponse:
    return FileResponse(FOLDER / "api.js", media_type="text/javascript", headers=HEADERS)
