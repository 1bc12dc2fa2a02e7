"""A real nginx from a configuration text."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from bench.servers import cpu, ports
from bench.servers.process import Process, StartError

MODULES = (
    Path("/usr/lib/nginx/modules/ndk_http_module.so"),
    Path("/usr/lib/nginx/modules/ngx_http_lua_module.so"),
)


def binary() -> str:
    """Return the path of nginx, or say how to get it."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/openresty/nginx/sbin")
    if not found:
        raise StartError("nginx is not installed: apt-get install nginx libnginx-mod-http-lua")
    return found


def load_lua() -> str:
    """Return the `load_module` lines that the Lua module needs here (none where it is compiled in)."""
    return "".join(f"load_module {module};\n" for module in MODULES if module.exists())


def write(folder: Path, text: str) -> Path:
    """Make nginx's folder with the given configuration; return the path of its nginx.conf."""
    for part in ("logs", "temp"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    configuration = folder / "nginx.conf"
    configuration.write_text(text)
    return configuration


class Nginx(Process):
    """nginx in the foreground; ready when `port` accepts connections."""

    def __init__(self, name: str, configuration: Path, port: int) -> None:
        self.port = port
        self.configuration = configuration
        super().__init__(
            name,
            self.command("-g", "daemon off;"),
            configuration.with_name("nginx.out"),
            cwd=configuration.parent,
        )
        self.wait_until(lambda: ports.listening(port), f"listening on port {port}")

    def command(self, *extra: str) -> list[str]:
        """Return the command line of this nginx with further arguments."""
        prefix = self.configuration.parent
        return [binary(), "-p", str(prefix), "-c", str(self.configuration), "-e", "stderr", *extra]

    def workers(self) -> list[int]:
        """Return the process ids of the workers, old ones of a reload included."""
        return [stat.pid for stat in cpu.tree(self.pid)[1:]]

    def reload(self) -> None:
        """Load the configuration again; old workers finish what they have."""
        self.send(signal.SIGHUP)

    def check(self) -> None:
        """Run `nginx -t`; raise `StartError` with its words."""
        done = subprocess.run(self.command("-t"), capture_output=True, text=True, check=False)
        if done.returncode:
            raise StartError(f"{self.name}: {done.stderr}")
