"""Which nginx this machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

FOLDERS = "/usr/sbin:/usr/local/openresty/nginx/sbin"


def find_nginx() -> str | None:
    """The path of Debian's nginx or OpenResty's, None where neither is installed."""
    path = f"{os.environ.get('PATH', '')}:{FOLDERS}"
    return shutil.which("nginx", path=path) or shutil.which("openresty", path=path)


def version_in(text: str) -> tuple[int, int, int] | None:
    """The version that `nginx -v` tells: of nginx, also where OpenResty adds a number of its own."""
    found = re.search(r"(?:nginx|openresty)/(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def nginx_version() -> tuple[int, int, int] | None:
    """The version of this machine's nginx, None where it cannot be told."""
    binary = find_nginx()
    if binary is None:
        return None
    try:
        told = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(told.stderr + told.stdout)
