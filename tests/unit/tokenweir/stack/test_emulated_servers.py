"""The emulated servers that `up` starts."""

from __future__ import annotations

from pathlib import Path

from tokenweir.stack import emulated_servers
from tokenweir.stack.settings import read


def test_an_emulated_server_is_what_its_backend_says(tmp_path: Path) -> None:
    path = tmp_path / "tokenweir.yaml"
    path.write_text(
        "backends:\n"
        "  - {id: a, url: 'http://127.0.0.1:9', gpu: H100, models: [m], emulated: true}\n"
        "  - {id: b, url: 'http://127.0.0.1:10', gpu: T4, models: [m], precision: int4, kv_capacity: 6000,"
        " emulated: true}\n"
    )
    first, second = (" ".join(part.argv) for part in emulated_servers.parts(read(path)))
    assert "--gpu H100" in first
    assert "--capacity" not in first
    assert "--gpu T4" in second
    assert "--precision int4 --capacity 6000" in second
