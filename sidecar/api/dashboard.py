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

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/docs": ("api.html", "text/html"),
    "/dashboard/style.css": ("style.css", "text/css"),
    "/dashboard/session.js": ("session.js", "text/javascript"),
    "/dashboard/fleet.js": ("fleet.js", "text/javascript"),
    "/dashboard/api.js": ("api.js", "text/javascript"),
}
"""Path -> file below `sidecar/dashboard/`, and its type."""

router = APIRouter(include_in_schema=False)


def _serve(path: str, name: str, media_type: str) -> None:
    async def file() -> FileResponse:
        return FileResponse(FOLDER / name, media_type=media_type, headers=HEADERS)

    router.add_api_route(path, file)


for path, (name, media_type) in FILES.items():
    _serve(path, name, media_type)
