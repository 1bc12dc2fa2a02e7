"""All parts of the stack for one configuration, in their start order."""

from __future__ import annotations

from tokenweir.stack import emulated_servers, gateway_server, log_keeper, redis_server, sidecar_server
from tokenweir.stack.part import Part
from tokenweir.stack.settings import Settings


def parts(settings: Settings) -> list[Part]:
    """What `up` runs. Writes the files that the parts read at their start."""
    found = [log_keeper.part(settings)]
    if settings.own_redis:
        found.append(redis_server.part(settings))
    found += emulated_servers.parts(settings)
    found.append(sidecar_server.part(settings))
    found.append(gateway_server.part(settings))
    return found
