"""The engine that costs nothing: one static nginx on sixteen ports, with the paths that routers ask for.

What `/v1/chat/completions` does goes by the length of the body, since not every router passes headers on:
below 1,000 bytes a stream of Server-Sent Events, the first at once and then one every `EVENT_MS`; from 10,000
bytes the body is read to its end, as an engine would, before the fixed JSON answer; between them the answer
comes at once (so small a body arrives with its head).
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.servers import nginx, ports

MODEL = "bench-model"
BACKENDS = 16
EVENT_MS = 10
EVENTS = 10
"""Events with text in one stream; a usage event and [DONE] follow."""

_ANSWER = {
    "id": "chatcmpl-bench",
    "object": "chat.completion",
    "created": 1700000000,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The quick brown fox jumps over the lazy dog. " * 4},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 500, "completion_tokens": 40, "total_tokens": 540},
}
_MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]}
_METRICS = "".join(
    f'vllm:{name}{{model_name="{MODEL}"}} 0\n'
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
)
_CHUNK = {
    "id": "chatcmpl-bench",
    "object": "chat.completion.chunk",
    "created": 1700000000,
    "model": MODEL,
    "choices": [{"index": 0, "delta": {"content": " token"}, "finish_reason": None}],
}
_LAST_CHUNK = {
    "id": "chatcmpl-bench",
    "object": "chat.completion.chunk",
    "created": 1700000000,
    "model": MODEL,
    "choices": [],
    "usage": {"prompt_tokens": 100, "completion_tokens": EVENTS, "total_tokens": 100 + EVENTS},
}

_CONFIGURATION = """
%(modules)s
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
    access_log off;
    default_type application/json;
    client_header_buffer_size 8k;
    client_body_buffer_size 1m;
    client_max_body_size 64m;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    keepalive_requests 100000000;
    tcp_nodelay on;
    map $content_length $kind {
        default       /large;
        "~^\\d{1,3}$" /stream;
        "~^\\d{4}$"   /small;
    }
    server {
        %(listens)s
        location = /v1/chat/completions { rewrite ^ $kind last; }
        location = /small { internal; return 200 '%(answer)s'; }
        location = /large {
            internal;
            content_by_lua_block {
                ngx.req.read_body()
                ngx.header["Content-Length"] = %(answer_length)d
                ngx.print([==[%(answer)s]==])
            }
        }
        location = /stream {
            internal;
            default_type text/event-stream;
            content_by_lua_block {
                ngx.req.read_body()
                for _ = 1, %(events)d do
                    ngx.print('data: %(chunk)s\\n\\n')
                    ngx.flush(true)
                    ngx.sleep(%(pace)s)
                end
                ngx.print('data: %(last_chunk)s\\n\\ndata: [DONE]\\n\\n')
            }
        }
        location = /v1/models { return 200 '%(models)s'; }
        location = /metrics { default_type "text/plain; version=0.0.4"; return 200 '%(metrics)s'; }
        location / { return 200 '{}'; }
    }
}
"""


class Upstream(nginx.Nginx):
    """Sixteen engines in one nginx process."""

    def __init__(self, folder: Path) -> None:
        self.ports = ports.free_ports(BACKENDS)
        super().__init__("upstream", nginx.write(folder, _render(self.ports)), self.ports[0])

    @property
    def urls(self) -> list[str]:
        """Base addresses of the engines."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]


def _render(listen: list[int]) -> str:
    answer = json.dumps(_ANSWER)
    return _CONFIGURATION % {
        "modules": nginx.load_lua(),
        "listens": " ".join(f"listen 127.0.0.1:{port} backlog=1024;" for port in listen),
        "answer": answer,
        "answer_length": len(answer),
        "models": json.dumps(_MODELS),
        "metrics": _METRICS,
        "events": EVENTS,
        "pace": EVENT_MS / 1000,
        "chunk": json.dumps(_CHUNK),
        "last_chunk": json.dumps(_LAST_CHUNK),
    }
