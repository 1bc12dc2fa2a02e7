"""Errors in OpenAI's shape."""

from __future__ import annotations

import json

from aiohttp import web


class ApiError(Exception):
    """An error that the client gets: status, message, and OpenAI's `type`, `param`, `code`."""

    def __init__(
        self, status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.kind = kind or ("server_error" if status >= 500 else "invalid_request_error")

    def body(self) -> bytes:
        """The JSON document."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()

    def response(self, headers: dict[str, str] | None = None) -> web.Response:
        """The whole answer."""
        return web.Response(
            status=self.status, body=self.body(), content_type="application/json", headers=headers
        )


def invalid(message: str, param: str, code: str = "invalid_value") -> ApiError:
    """A 400 that names the parameter."""
    return ApiError(400, message, param=param, code=code)
