"""How large the KV cache of a token is where caches are moved: whether a move pays depends on it."""

from __future__ import annotations

from tokenweir import facts
from tokenweir.config.backends import BackendConfig
from tokenweir.config.transfer import BackendTransferConfig, TransferConfig
from tokenweir.contract.records import TransferAdapter


def movable_kv_bytes(
    transfer: TransferConfig, config: BackendConfig, model: str
) -> tuple[int | None, str | None]:
    """KV bytes of a token, None where the backend takes no part in moves; and why it does not, None where
    that goes without saying. `model`: its name in the table of facts, empty where that is not known."""
    if transfer.adapter is TransferAdapter.NONE:
        return None, None
    own = config.transfer or BackendTransferConfig()
    if not own.takes_part(transfer.adapter):
        return None, None
    if own.kv_bytes is not None:
        return own.kv_bytes, None
    try:
        return facts.model(model).kv_bytes_per_token, None
    except facts.UnknownFactError:
        return None, "no cache is moved: KV bytes of a token not known, set `transfer: {kv_bytes: ...}`"
