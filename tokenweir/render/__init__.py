"""The gateway's files from `tokenweir.yaml`: nginx.conf, gateway.json, CA bundle."""

from tokenweir.render.files import write
from tokenweir.render.nginx import RenderError, render
from tokenweir.render.paths import Paths

__all__ = ["Paths", "RenderError", "render", "write"]
