"""Where Tokenweir listens, and where its Redis is: `listen`, `admin`, `redis`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from tokenweir.config.file_name import FileName
from tokenweir.config.section import Section

Port = Annotated[int, Field(ge=1, le=65535)]
ORIGIN: Final = re.compile(r"\*|[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
"""As browsers send it: `https://chat.example`, `http://localhost:3000`, `chrome-extension://abc`."""
MOST_ORIGIN: Final = 300


class ServerTls(Section):
    """TLS towards clients."""

    certificate: Annotated[FileName, Field(description="PEM file: the certificate and its chain")]
    key: Annotated[FileName, Field(description="PEM file: the private key")]
    http2: Annotated[bool, Field(description="offer HTTP/2 besides HTTP/1.1")] = True


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches what listens there."""
    return address in {"127.0.0.1", "::1", "[::1]", "localhost"}


class Listen(Section):
    """Where the gateway listens."""

    address: Annotated[str, Field(description="0.0.0.0 or :: lets other machines in; set `keys` then")] = (
        "127.0.0.1"
    )
    port: Annotated[Port, Field(description="TCP port for clients")] = 8080
    tls: ServerTls | None = None
    workers: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | Literal["auto"], Field(description="nginx worker processes")
    ] = "auto"
    metrics_port: Annotated[
        Port | None,
        Field(description="loopback port of the gateway's /metrics; null: the listen port + 1000"),
    ] = None
    trusted_proxies: Annotated[
        list[str],
        Field(description="proxies in front, whose X-Forwarded-For is believed: [10.0.0.5, 10.1.0.0/16]"),
    ] = []

    cors_origins: Annotated[
        list[str],
        Field(
            max_length=256,
            description="pages that may call the gateway from a browser: [https://chat.example], or ['*']",
        ),
    ] = []

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: list[str]) -> list[str]:
        origins = []
        for entry in value:
            plain = re.sub(r"^(https://.*):443$|^(http://.*):80$", r"\1\2", entry.lower().removesuffix("/"))
            if len(plain) > MOST_ORIGIN or not ORIGIN.fullmatch(plain):
                raise ValueError(
                    f"{entry!r} is no origin: scheme, host and port as in the browser's address bar, no path"
                )
            if plain not in origins:
                origins.append(plain)
        return origins

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        networks = []
        for entry in value:
            try:
                networks.append(str(ipaddress.ip_network(entry, strict=False)))
            except ValueError:
                raise ValueError(f"{entry!r} is no IP address or network like 10.1.0.0/16") from None
        return networks

    @field_validator("address")
    @classmethod
    def _plain_address(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9.:_\[\]-]+", value):
            raise ValueError("an IP address or a host name is wanted")
        return value


class Admin(Section):
    """The sidecar's admin API, dashboard and metrics."""

    address: Annotated[str, Field(description="beyond loopback only with a token")] = "127.0.0.1"
    port: Annotated[Port, Field(description="TCP port for operators and Prometheus")] = 8081
    token: Annotated[
        str | None,
        Field(min_length=16, description="bearer token; without one the API answers on loopback only"),
    ] = None
    token_file: Annotated[FileName | None, Field(description="file that holds the token")] = None
    files_dir: Annotated[
        FileName,
        Field(min_length=1, description="folder below which backends added by the admin API may name files"),
    ] = "secrets"

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.token and self.token_file:
            raise ValueError("give `token` or `token_file`, not both")
        if not is_loopback(self.address) and not (self.token or self.token_file):
            raise ValueError(
                f"`address` {self.address} is reachable from outside: set `token_file` (or `token`), "
                "or listen on 127.0.0.1"
            )
        return self


class Redis(Section):
    """Where Redis is. The gateway and the sidecar each have a user of their own."""

    host: Annotated[
        str, Field(description="name or address; not set: `make up` starts a Redis of its own")
    ] = "127.0.0.1"
    port: Annotated[Port, Field(description="for the Redis of `make up`: 16379 unless set")] = 6379
    db: Annotated[int, Field(ge=0, le=15, description="database number")] = 0
    tls: Annotated[bool, Field(description="TLS to Redis")] = False
    ca: Annotated[FileName | None, Field(description="PEM file that verifies the server")] = None
    gateway_user: Annotated[str | None, Field(description="ACL user of the gateways")] = None
    gateway_password_file: Annotated[FileName | None, Field(description="file with its password")] = None
    sidecar_user: Annotated[str | None, Field(description="ACL user of the sidecars")] = None
    sidecar_password_file: Annotated[FileName | None, Field(description="file with its password")] = None
