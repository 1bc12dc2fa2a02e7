"""`lua/tokenweir/core/body/form.lua`."""

from __future__ import annotations

from typing import Any

import pytest

WHISPER = b'Content-Disposition: form-data; name="model"\r\n\r\nwhisper'
AUDIO = (
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    b'\x00\r\n\r\nname="model"\r\n\xff'
)


def form(*parts: bytes, boundary: bytes = b"x") -> bytes:
    """A body of these parts."""
    return (
        b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + b"--\r\n"
    )


class Form:
    """The module, on Python's bytes."""

    def __init__(self, lua: Any) -> None:
        self.boundary = lua.eval(b'require("tokenweir.core.body.form").boundary')
        self._model = lua.eval(
            b"""function(body, boundary)
              local p = require("tokenweir.core.bytes").of(body)
              local ok, model, first, last = require("tokenweir.core.body.form").model(p, #body, boundary)
              return ok, model, first, last, body  -- kept alive until here
            end"""
        )

    def model(self, body: bytes, boundary: bytes = b"x") -> tuple[Any, ...]:
        """(true, model, first, last) or (None, what is wrong)."""
        answer: tuple[Any, ...] = self._model(body, boundary)
        return answer[:4]


@pytest.fixture
def reader(lua: Any) -> Form:
    return Form(lua)


@pytest.mark.parametrize("parts", [(WHISPER, AUDIO), (AUDIO, WHISPER), (WHISPER,)])
def test_the_model_is_found_before_and_after_files(reader: Form, parts: tuple[bytes, ...]) -> None:
    body = form(*parts)
    ok, model, first, last = reader.model(body)
    assert (ok, model) == (True, b"whisper")
    assert body[first - 1 : last] == b"whisper"


def test_a_form_without_a_model_is_fine(reader: Form) -> None:
    assert reader.model(form(AUDIO))[:2] == (True, None)
    assert reader.model(b"--x--\r\n")[0] is True


@pytest.mark.parametrize(
    "head",
    [
        b"content-disposition:form-data;name=model",
        b'Content-Type: text/plain\r\nContent-Disposition: form-data;\r\n name="model"',
        b'Content-Disposition: form-data; NAME = "model"',
    ],
)
def test_the_name_is_read_however_it_is_written(reader: Form, head: bytes) -> None:
    assert reader.model(form(head + b"\r\n\r\nm"))[1] == b"m"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (form(WHISPER, WHISPER), b"twice"),
        (form(b"Content-Disposition: form-data; name*=utf-8''model\r\n\r\nm"), b"two ways"),
        (form(b'Content-Disposition: form-data; name="a"; name="model"\r\n\r\nm'), b"two ways"),
        (form(b'Content-Disposition: form-data; name="mod\\el"\r\n\r\nm'), b"two ways"),
        (form(b'Content-Disposition: form-data; name="model"\r\n\r\na\r\nb'), b"no model"),
        (form(b'Content-Disposition: form-data; name="model"\r\n\r\n' + b"m" * 2000), b"no model"),
        (form(WHISPER)[:-6], b"boundary"),
        (b"", b"boundary"),
        (b"{}", b"boundary"),
        (form(b"X: " + b"y" * 9000), b"too long"),
        (form(*[AUDIO] * 300), b"too many"),
    ],
)
def test_what_readers_may_differ_about_is_told(reader: Form, body: bytes, wrong: bytes) -> None:
    told = reader.model(body)
    assert told[0] is None
    assert wrong in told[1]


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'multipart/form-data; charset=utf-8; Boundary="a b"', b"a b"),
        (b"multipart/form-data;boundary=abc; x=y", b"abc"),
        (b"multipart/form-data", None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b'multipart/form-data; boundary="a', None),
        (b"multipart/form-data; boundary=" + b"a" * 71, None),
    ],
)
def test_exactly_one_boundary_is_taken(reader: Form, header: bytes, boundary: bytes | None) -> None:
    assert reader.boundary(header) == boundary
