"""A container with another command: Docker cannot change the command of one that is there, so another is made
like it and takes its name."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

from sidecar.actuators.actuator import ActuationError
from sidecar.actuators.docker_client import ERRORS

NEXT: Final = "-tokenweir-next"
PREVIOUS: Final = "-tokenweir-previous"


def recreate(client: docker.DockerClient, old: dict[str, Any], command: list[str], grace: int) -> str:
    """Put a container like `old` (an inspection) with another command in its place, and start it. Where that
    fails the old one comes back as it was. Raises ActuationError, or what the client raises."""
    api = client.api
    name = old["Name"].lstrip("/")
    if old["HostConfig"].get("AutoRemove"):
        raise ActuationError(
            f"container {name} was started with --rm: it could not come back; start it without"
        )
    networks = _networks(old)
    first = next(iter(networks), None)
    body = _body(client, old, command)
    if first is not None:
        body["NetworkingConfig"] = {"EndpointsConfig": {first: networks[first]}}
    _remove(client, name + NEXT)
    new = api.create_container_from_config(body, name + NEXT)["Id"]  # type: ignore[no-untyped-call]
    was_running = bool(old["State"].get("Running"))
    moved = False
    try:
        for network, endpoint in networks.items():
            if network != first:
                api.connect_container_to_network(new, network, aliases=endpoint.get("Aliases"))
        if was_running:
            api.stop(old["Id"], timeout=grace)
        _remove(client, name + PREVIOUS)
        api.rename(old["Id"], name + PREVIOUS)
        moved = True
        api.rename(new, name)
        api.start(new)
    except ERRORS as error:
        back = _bring_back(client, old, name, moved, was_running)
        _remove(client, new)
        reason = error.explanation if isinstance(error, APIError) else str(error)
        raise ActuationError(
            f"container {name} with other arguments did not start: {reason}; {back}"
        ) from None
    _remove(client, old["Id"])
    return f"container {name} recreated with {' '.join(command)}"


def bring_back_cut_off(client: docker.DockerClient, name: str) -> bool:
    """Give a container its name back whose change was cut off when the old one had lost it already and the
    new one did not have it yet; returns whether there was one."""
    try:
        client.api.rename(name + PREVIOUS, name)
    except NotFound:
        return False
    _remove(client, name + NEXT)
    return True


def _body(client: docker.DockerClient, old: dict[str, Any], command: list[str]) -> dict[str, Any]:
    """What the engine is asked to create: the old configuration, the image that it ran, its volumes."""
    body = dict(old["Config"])
    body["Cmd"] = command
    if body.get("Hostname") == old["Id"][:12]:
        body.pop("Hostname")
    body.pop("MacAddress", None)
    image = old["Image"]
    with contextlib.suppress(*ERRORS):
        # The name, while it still means the image that ran.
        if client.images.get(body["Image"]).id == image:
            image = body["Image"]
    body["Image"] = image
    host = dict(old["HostConfig"])
    # A bind of one path alone is a volume without a name, as in `Mounts` below.
    binds = [bind for bind in host.get("Binds") or [] if ":" in bind]
    bound = {bind.split(":")[1] for bind in binds}
    bound |= {mount.get("Target") for mount in host.get("Mounts") or []}
    for mount in old.get("Mounts", []):
        # Volumes without a name of their own would be left behind, empty ones made in their place.
        if mount.get("Type") == "volume" and mount.get("Destination") not in bound:
            access = "" if mount.get("RW", True) else ":ro"
            binds.append(f"{mount['Name']}:{mount['Destination']}{access}")
    host["Binds"] = binds or None
    body["HostConfig"] = host
    return body


def _networks(old: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The networks with what was chosen of them; what the engine gave out is given out anew."""
    mode = old["HostConfig"].get("NetworkMode", "")
    if mode in {"host", "none"} or mode.startswith("container:"):
        return {}
    found: dict[str, dict[str, Any]] = {}
    for network, endpoint in (old["NetworkSettings"].get("Networks") or {}).items():
        aliases = [alias for alias in endpoint.get("Aliases") or [] if alias != old["Id"][:12]]
        found[network] = {
            "IPAMConfig": endpoint.get("IPAMConfig"),
            "Links": endpoint.get("Links"),
            "Aliases": aliases or None,
        }
    return found


def _bring_back(
    client: docker.DockerClient, old: dict[str, Any], name: str, moved: bool, was_running: bool
) -> str:
    try:
        if moved:
            with contextlib.suppress(*ERRORS):
                client.api.rename(name, name + NEXT)
            client.api.rename(old["Id"], name)
        if was_running:
            client.api.start(old["Id"])
    except ERRORS as error:
        return f"and the one before did not come back: {error}; it is container {old['Id'][:12]}"
    return "the one before runs again" if was_running else "the one before is as it was"


def _remove(client: docker.DockerClient, container: str) -> None:
    """Remove a container if it is there, without its volumes."""
    with contextlib.suppress(*ERRORS):
        client.api.remove_container(container, force=True)
