"""Where the configuration that holds departs from `tokenweir.yaml`, in words."""

from __future__ import annotations

from sidecar.store import Store


def departures(store: Store) -> list[str]:
    """What the admin API has changed and what still differs: `policy round_robin, not predictive`,
    `a100-b drained`, `t4 removed`. Empty where the file alone says what holds."""
    base, held = store.base, store.config()
    told = []
    if (base.policy, base.serve_by) != (held.policy, held.serve_by):
        told.append(f"policy {held.policy}, not {base.policy}")
    written = {backend.id: backend for backend in base.backends}
    known = {backend.id: backend for backend in held.backends}
    for name in sorted(written.keys() | known.keys()):
        if name not in known:
            told.append(f"{name} removed")
        elif name not in written:
            told.append(f"{name} added")
        elif written[name] != known[name]:
            told.append(f"{name} changed")
    return told + [f"{name} drained" for name in sorted(store.draining() & known.keys())]
