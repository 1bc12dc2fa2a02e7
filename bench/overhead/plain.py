"""Plain nginx: what the users of Tokenweir have today, with the directives that let a stream flow."""

from __future__ import annotations

from pathlib import Path

from bench.servers import nginx, ports

CONFIGURATION = """
worker_processes %(workers)d;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 16384; }
http {
    server_tokens off;
    tcp_nodelay on;
    gzip off;
    reset_timedout_connection on;
    keepalive_timeout 75s;
    keepalive_requests 10000;
    client_max_body_size 64m;
    client_body_buffer_size 4m;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    log_format json escape=json '{"time":"$time_iso8601","id":"$request_id","status":$status,'
        '"request_time":"$request_time","upstream":"$upstream_addr","upstream_status":"$upstream_status",'
        '"connect":"$upstream_connect_time","header":"$upstream_header_time","response":"$upstream_response_time",'
        '"in":$request_length,"out":$bytes_sent}';
    access_log logs/access.log json buffer=64k flush=1s;
    upstream engines {
        %(servers)s
        keepalive 256;
        keepalive_timeout 4s;
        keepalive_requests 10000;
    }
    proxy_http_version 1.1;
    proxy_buffering off;
    proxy_request_buffering on;
    proxy_max_temp_file_size 0;
    proxy_buffer_size 16k;
    proxy_buffers 8 16k;
    proxy_busy_buffers_size 32k;
    proxy_connect_timeout 1s;
    proxy_send_timeout 30s;
    proxy_read_timeout 600s;
    proxy_socket_keepalive on;
    proxy_set_header Host $http_host;
    proxy_set_header Connection "";
    proxy_set_header X-Request-Id $request_id;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header Accept-Encoding "";
    server {
        listen 127.0.0.1:%(port)d backlog=4096;
        location / { proxy_pass http://engines; }
    }
}
"""


class PlainNginx(nginx.Nginx):
    """nginx with `proxy_pass` before the upstreams, round robin, and a buffered access log."""

    def __init__(self, upstreams: list[int], workers: int, folder: Path) -> None:
        port = ports.free_ports(1)[0]
        servers = " ".join(f"server 127.0.0.1:{upstream};" for upstream in upstreams)
        text = CONFIGURATION % {"workers": workers, "servers": servers, "port": port}
        super().__init__(f"nginx-{workers}", nginx.write(folder, text), port)
