"""A small engine over real HTTP that a test can make load, fail, freeze and serve others' requests."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeEngine:
    """Speaks what the sidecar asks of a vLLM server. Set its members at any time."""

    def __init__(self, model: str = "m") -> None:
        self.model = model
        self.running = 0
        self.waiting = 0
        self.kv_use = 0.1
        self.tokens = 0
        self.loading = False
        self.frozen = False
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                while engine.frozen:
                    time.sleep(0.02)
                if engine._server is None:
                    self.close_connection = True
                    return
                status, body = engine.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = b'data: {"choices": []}\n\ndata: [DONE]\n\n'
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._handler = Handler
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the port it had before if it had one."""
        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening; what is connected stays connected until it asks again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def restart(self) -> None:
        """Another process: gone for a moment, its counters at zero."""
        self.stop()
        time.sleep(0.3)
        self.tokens = 0
        self.start()

    def answer(self, path: str) -> tuple[int, bytes]:
        if self.loading:
            return 503, b'{"error": {"message": "Loading model"}}'
        if path == "/health":
            return 200, b""
        if path == "/v1/models":
            entry = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": 4096}
            return 200, json.dumps({"object": "list", "data": [entry]}).encode()
        if path == "/metrics":
            return 200, self.metrics().encode()
        return 404, b""

    def metrics(self) -> str:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        figures = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": self.kv_use,
            "generation_tokens_total": self.tokens,
        }
        lines = [f"# TYPE vllm:{name} gauge\nvllm:{name}{labels} {value}" for name, value in figures.items()]
        lines.append(
            "# TYPE vllm:cache_config_info gauge\n"
            'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0'
        )
        return "\n".join(lines) + "\n"
