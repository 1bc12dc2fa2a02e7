# Debian 13 with what the gateway's integration tests need, all of it from its own packages.
FROM debian:trixie-slim
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      nginx libnginx-mod-http-lua lua-cjson redis-server openssl procps curl \
      python3 python3-pytest python3-pytest-asyncio python3-pytest-timeout python3-pytest-xdist python3-hypothesis \
      python3-httpx python3-h2 python3-openai python3-requests python3-redis python3-pydantic python3-pydantic-settings python3-yaml python3-jinja2 \
      python3-typer python3-rich python3-structlog python3-aiohttp python3-prometheus-client \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/tokenweir
ENV PYTHONDONTWRITEBYTECODE=1
