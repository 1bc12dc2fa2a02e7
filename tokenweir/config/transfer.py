"""How the cache of a session that moves is moved with it: `sessions.transfer`, and a backend's `transfer`."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from tokenweir.config.file_name import FileName
from tokenweir.config.quantities import TIME, ByteSize, Duration, InMs
from tokenweir.config.section import Section
from tokenweir.contract.enums import TransferAdapter
from tokenweir.contract.values import TransferMs


def _service(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
        raise ValueError("a URL like http://10.0.0.5:9000 is wanted")
    if parts.username or parts.password:
        raise ValueError("no user or password belongs in the URL")
    return value.rstrip("/")


ServiceUrl = Annotated[str, AfterValidator(_service)]


class TransferConfig(Section):
    """Moving the cache of a session that moves (docs/sessions.md). The gateway decides whether it pays."""

    adapter: Annotated[
        TransferAdapter,
        Field(
            description="none: the prompt is computed anew; lmcache: LMCache's controller moves it; vllm: "
            "the old engine hands it on by `kv_transfer_params`; agent: the engines' agents send it"
        ),
    ] = TransferAdapter.NONE
    controller: Annotated[
        ServiceUrl | None, Field(description="of `lmcache`: where LMCache's controller answers")
    ] = None
    location: Annotated[
        str, Field(min_length=1, max_length=64, description="of `lmcache`: where in an instance caches go")
    ] = "LocalCPUBackend"
    token_file: Annotated[FileName | None, Field(description="of `agent`: file with the agents' token")] = (
        None
    )
    bandwidth: Annotated[
        ByteSize,
        Field(
            le=2**40, description="bytes a second that a transfer is expected to reach, until some were seen"
        ),
    ] = 1024**3
    latency: Annotated[
        Duration, Field(le=600_000, description="that a transfer is expected to take, however small")
    ] = 20
    limit: Annotated[
        TransferMs,
        InMs,
        TIME,
        Field(description="longest wait for it; it is never longer than the prefill saved"),
    ] = 5000

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.adapter is TransferAdapter.LMCACHE and self.controller is None:
            raise ValueError("`adapter: lmcache` needs `controller`, the URL of LMCache's controller")
        if self.controller is not None and self.adapter is not TransferAdapter.LMCACHE:
            raise ValueError("`controller` is LMCache's: it goes with `adapter: lmcache`")
        if self.token_file is not None and self.adapter is not TransferAdapter.AGENT:
            raise ValueError("`token_file` is the agents': it goes with `adapter: agent`")
        return self


class BackendTransferConfig(Section):
    """What a backend needs to take part in moving caches."""

    instance: Annotated[
        str | None, Field(min_length=1, max_length=256, description="its `lmcache_instance_id`")
    ] = None
    kv_agent: Annotated[ServiceUrl | None, Field(description="where its agent answers")] = None
    kv_bytes: Annotated[
        int | None,
        Field(
            gt=0, le=10**9, description="KV bytes of a token; null: by the table of model facts, in 16 bits"
        ),
    ] = None

    def takes_part(self, adapter: TransferAdapter) -> bool:
        """Whether it has what an adapter needs of it."""
        return (adapter is not TransferAdapter.LMCACHE or self.instance is not None) and (
            adapter is not TransferAdapter.AGENT or self.kv_agent is not None
        )


NEEDED = {
    TransferAdapter.LMCACHE: "`transfer: {instance: <its lmcache_instance_id>}`",
    TransferAdapter.AGENT: "`transfer: {kv_agent: http://10.0.0.11:9410}`",
}
"""Adapter -> what it needs of a backend's configuration."""
