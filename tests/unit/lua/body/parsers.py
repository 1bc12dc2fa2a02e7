"""Bodies read as the gateway reads them, for the tests of `core/body`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokenweir.luavm import new_runtime


class RefusedError(Exception):
    """A body that was refused: code, message, parameter."""

    def __init__(self, code: bytes, message: bytes, param: bytes | None) -> None:
        super().__init__(code.decode(), message.decode(), param.decode() if param else None)


class Parser:
    """`request.parse` into one reused table."""

    def __init__(self) -> None:
        runtime = new_runtime()
        module = runtime.eval(b'require("tokenweir.core.body.request")')
        self.request = module[0] if isinstance(module, tuple) else module
        digests = runtime.eval(b'require("tokenweir.core.body.prompt_digest")')
        self.digests = digests[0] if isinstance(digests, tuple) else digests
        self.out = runtime.table()

    def parse(self, kind: str, body: bytes | dict[str, Any], **writer: Any) -> Any:
        if isinstance(body, dict):
            body = json.dumps(body, **writer).encode("utf-8", "surrogatepass")
        ok, *refusal = self.request.parse(kind.encode(), body, self.out)
        if not ok:
            raise RefusedError(*refusal)
        return self.out

    def places(self, name: str) -> list[tuple[int, int]]:
        out = self.out
        here = [k for k in range(1, int(out.members) + 1) if out.names[k] == name.encode()]
        return [(int(out.firsts[k]) + 1, int(out.lasts[k])) for k in here]

    def span(self, name: str) -> tuple[int, int] | None:
        return self.request.span(self.out, name.encode())

    def digest(self, *seed: int) -> bytes:
        return self.digests.digest(self.out, *seed)

    def opening(self) -> bytes | None:
        return self.digests.opening_digest(self.out)

    def text(self, name: str, *limit: int) -> bytes | None:
        return self.request.text(self.out, name.encode(), *limit)


def refusal(parser: Parser, kind: str, body: bytes | dict[str, Any]) -> tuple[str, str, str | None]:
    with pytest.raises(RefusedError) as refused:
        parser.parse(kind, body)
    return refused.value.args


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}
