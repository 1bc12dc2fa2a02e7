"""What a sidecar is called among the others."""

from __future__ import annotations

import os
import re
import secrets
import socket


def sidecar_id() -> str:
    """A name for this process: no other has it, not even the next one of this host."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.") or "sidecar"
    return f"{host[:40]}-{os.getpid()}-{secrets.token_hex(2)}"
