"""`lua/tokenweir/core/answer/engine_error.lua`."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (b'{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB"}}', b"out_of_memory"),
        (b"torch.OutOfMemoryError: HIP out of memory", b"out_of_memory"),
        (b"CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", b"out_of_memory"),
        (b'data: {"error":{"message":"KV memory is full: every request was aborted"}}', b"kv_full"),
        (b'{"error":{"code":500,"message":"Context size has been exceeded."}}', b"kv_full"),
        (b'{"error":{"message":"the model is overloaded"}}', None),
        (b"", None),
    ],
)
def test_what_an_error_says_of_memory(lua: Any, text: bytes, means: bytes | None) -> None:
    module = lua.eval(b'require "tokenweir.core.answer.engine_error"')
    module = module[0] if isinstance(module, tuple) else module
    assert module.memory(text) == means


def test_a_long_answer_is_not_searched_to_its_end(lua: Any) -> None:
    module = lua.eval(b'require "tokenweir.core.answer.engine_error"')
    module = module[0] if isinstance(module, tuple) else module
    assert module.memory(b"x" * 5000 + b"out of memory") is None
