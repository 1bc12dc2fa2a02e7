"""A gateway under test: nginx with the shared state and the endpoints of `probe.lua`, and its documents."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from tests.integration.servers import Nginx, applied_everywhere, wait_until

HERE = Path(__file__).resolve().parent

LOCATIONS = (
    "hold",
    "claim",
    "view",
    "own",
    "state",
    "emit",
    "fail",
    "wait",
    "stall",
    "keys",
    "use",
    "let_go",
    "offer",
    "tell",
    "die_in_sums",
    "suspect",
    "crash",
    "published",
)

HTTP = """
  lua_shared_dict tokenweir_documents 16m;
  lua_shared_dict tokenweir_handover 16m;
  lua_shared_dict tokenweir_limits 4m;
  lua_shared_dict tokenweir_metrics 4m;
  lua_shared_dict tokenweir_quarantine 4m;
  lua_shared_dict test_applied 1m;
  lua_shared_dict test_held 1m;
  lua_socket_log_errors off;
  init_by_lua_block {
    package.path = "%(here)s/?.lua;%(here)s/../?.lua;" .. package.path
    require("tokenweir.init").start("{folder}/gateway.json")
    require("probe")
    require("observe")
  }
  init_worker_by_lua_block {
    require("observe").start()
    require("tokenweir.init_worker").start()
    require("probe").start()
  }
  exit_worker_by_lua_block { require("tokenweir.init_worker").stop() }
  server {
    listen 127.0.0.1:{port};
%(locations)s
    location = /applied { content_by_lua_block { require("observe").serve() } }
    location = /metrics { content_by_lua_block { require("tokenweir.exposition").serve() } }
  }
"""


def http_block(extra: str = "") -> str:
    """The inside of the http block, after `extra` directives; `Nginx` fills in `{port}` and `{folder}`."""
    locations = "\n".join(
        f'    location = /{name} {{ content_by_lua_block {{ require("probe").{name}() }}'
        + (' log_by_lua_block { require("probe").hold_log() }' if name == "hold" else "")
        + " }"
        for name in LOCATIONS
    )
    return extra + HTTP % {"here": HERE, "locations": locations}


def backend(name: str, **changes: Any) -> dict[str, Any]:
    """A backend of a snapshot."""
    return {
        "id": name,
        "host": "127.0.0.1",
        "port": 8000,
        "models": {"llama": "llama-3-8b"},
        "state": "ready",
        "capacity": 40000,
        "cost": {"prefill": 0.1, "base": 15, "per_sequence": 0.01, "per_kv_token": 0.0001},
        **changes,
    }


def snapshot(fence: int, sequence: int, **changes: Any) -> str:
    """A snapshot of two backends, as JSON."""
    return json.dumps(
        {
            "schema": 1,
            "fence": fence,
            "sequence": sequence,
            "time_ms": int(time.time() * 1000),
            "backends": [backend("gpu-a"), backend("gpu-b")],
            **changes,
        }
    )


def settings(version: int = 1, **changes: Any) -> str:
    """Settings, as JSON."""
    return json.dumps({"schema": 1, "version": version, "models": [{"name": "llama"}], **changes})


class Gateway:
    """One gateway under test."""

    def __init__(self, nginx: Nginx) -> None:
        self.nginx = nginx
        # A connection for each request, so that any worker may answer.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self.http = httpx.Client(base_url=nginx.url, timeout=90, limits=limits, verify=False)

    def get(self, path: str, **query: Any) -> httpx.Response:
        """A GET on a connection of its own."""
        return self.http.get(f"/{path}", params=query)

    def json(self, path: str, **query: Any) -> Any:
        """The JSON that it answers with."""
        return self.get(path, **query).raise_for_status().json()

    def offer(self, name: str, text: str) -> Any:
        """Offers a document to whichever worker answers; what becomes of it there."""
        answer = self.http.post("/offer", params={"name": name}, content=text)
        return answer.raise_for_status().json()

    def let_go(self) -> None:
        """Ends the requests that are held."""
        self.get("let_go").raise_for_status()

    def wait_for(self, document: str, number: float) -> None:
        """Waits until the workers have applied this version of a document, or a later one."""

        def everywhere() -> bool:
            nginx = self.nginx
            lines = self.get("applied").text
            return applied_everywhere(lines, nginx.workers(), nginx.workers_expected, document, number)

        wait_until(everywhere, what=f"{document} {number} in all workers")

    def metrics(self) -> dict[str, float]:
        """Its metrics by series."""
        lines = self.get("metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}
