"""`lua/tokenweir/core/json/walk.lua` and `json_quote.lua`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

MEMBERS = b"""
local bytes = require "tokenweir.core.bytes"
local json = require "tokenweir.core.json.walk"
local nodes = require "tokenweir.core.json.node"
local root = nodes.new { children = nodes.members {}, other = nodes.NOTHING }
local on = {}
function on.member(state, _, _, name, first) state[#state + 1] = { name, first } end
function on.ended(state, _, last) state[#state][3] = last end
return function(s, most)
  local state = {}
  local last, what, at = json.walk(bytes.of(s), 0, #s, root, on, state, true, most or 1e6)
  return last, what, at, state
end
"""


GUARDED = b"""
local ffi = require "ffi"
local json = require "tokenweir.core.json.walk"
ffi.cdef [[
void *test_mmap(void *at, size_t n, int protection, int flags, int fd, long offset) __asm__("mmap");
int test_mprotect(void *at, size_t n, int protection) __asm__("mprotect");
]]
local PAGE = 65536
local at = ffi.C.test_mmap(nil, 3 * PAGE, 3, 0x22, -1, 0)
local middle = ffi.cast("uint8_t *", at) + PAGE
assert(ffi.C.test_mprotect(middle - PAGE, PAGE, 0) == 0 and ffi.C.test_mprotect(middle + PAGE, PAGE, 0) == 0)
return function(s)
  -- Flush against the guard behind, with its NUL; then against the guard before.
  local p = middle + PAGE - 1 - #s
  ffi.copy(p, s)
  json.skip(p, 0, #s)
  ffi.copy(middle, s)
  json.skip(middle, 0, #s)
end
"""


class Scanner:
    """The walk over top-level members, called from Python."""

    def __init__(self) -> None:
        runtime = new_runtime()
        self._walk = runtime.execute(MEMBERS)
        self._guarded = runtime.execute(GUARDED)

    def members(self, text: bytes) -> list[tuple[bytes, bytes]]:
        """Names and value texts, in order; `ValueError` with the offset when the text is refused."""
        last, what, at, state = self._walk(text)
        if last is None:
            raise ValueError(what.decode(), int(at))
        if last != len(text):
            raise ValueError("trailing data", int(last))
        return [(m[1], text[int(m[2]) : int(m[3])]) for m in state.values()]

    def stops(self, text: bytes, most: int) -> int | None:
        """The offset where it gives up because there are more values than that; None where it does not."""
        last, what, at, _ = self._walk(text, most)
        assert last is not None or what == b"too many values"
        return None if last is not None else int(at)

    def scan_between_guards(self, text: bytes) -> None:
        """Scans it where any read outside of it and its NUL kills the process."""
        self._guarded(text)

    def accepts(self, text: bytes) -> bool:
        try:
            self.members(text)
        except ValueError:
            return False
        return True


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner()


def refuse_constant(name: str) -> Any:
    raise ValueError(name)


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def python_reads(text: bytes) -> bool:
    """Whether Python takes it, without its extensions (NaN and Infinity)."""
    try:
        json.loads(text.decode("utf-8", "surrogatepass"), parse_constant=refuse_constant, strict=False)
    except ValueError:
        return False
    return True


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=25,
)
documents = st.dictionaries(st.text(max_size=8), values, max_size=8)
writers = st.sampled_from(
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"ensure_ascii": False},
        {"indent": "\t", "separators": (" ,", " : ")},
    ]
)


@settings(max_examples=120, deadline=None)
@given(document=documents, writer=writers)
def test_it_finds_the_members_that_python_finds(
    scanner: Scanner, document: dict[str, Any], writer: dict[str, Any]
) -> None:
    text = json.dumps(document, **writer).encode("utf-8", "surrogatepass")
    found = {
        name.decode("utf-8", "surrogatepass"): json.loads(value.decode("utf-8", "surrogatepass"))
        for name, value in scanner.members(text)
    }
    assert found == document


@settings(max_examples=120, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(["a", "b", "model"]), values), max_size=6))
def test_of_duplicate_members_all_are_found_in_order(scanner: Scanner, pairs: list[tuple[str, Any]]) -> None:
    text = ("{" + ",".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs) + "}").encode()
    found = [(name.decode(), json.loads(value)) for name, value in scanner.members(text)]
    assert found == pairs
    assert dict(found) == json.loads(text)


@settings(max_examples=150, deadline=None)
@given(document=documents, writer=writers, data=st.data())
def test_it_refuses_what_python_refuses_after_random_damage(
    scanner: Scanner, document: dict[str, Any], writer: dict[str, Any], data: st.DataObject
) -> None:
    text = bytearray(json.dumps(document, **writer).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1)) if text else 0
        match data.draw(st.sampled_from(["cut", "drop", "put"])):
            case "cut":
                del text[at:]
            case "drop":
                del text[at : at + 1]
            case _:
                text[at:at] = data.draw(
                    st.sampled_from([b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b" ", b"e", b"."])
                )
    broken = bytes(text)
    if python_reads(broken):
        assert not broken.lstrip().startswith(b"{") or scanner.accepts(broken)
    elif b"\\" not in broken and is_utf8(broken):
        # The inside of strings nobody asked for is not judged, so a broken escape or character may pass.
        assert not scanner.accepts(broken)


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=200))
def test_no_bytes_make_it_read_out_of_bounds_or_throw(scanner: Scanner, text: bytes) -> None:
    for document in (
        text,
        b'{"a":' + text,
        b'{"a":"' + text,
        b'{"a":"' + b'\\"' * 20 + text,
        b"[1,2," + text,
    ):
        scanner.accepts(document)
        scanner.scan_between_guards(document)


def test_no_cut_of_a_document_makes_it_read_out_of_bounds(scanner: Scanner) -> None:
    document = {"a": [1, -2.5e10, True, False, None, 'x"' * 40, {'b\\"': "é\n"}], "c": {}, "d": []}
    text = json.dumps(document).encode()
    for end in range(len(text) + 1):
        scanner.scan_between_guards(text[:end])


@pytest.mark.parametrize(
    ("text", "what", "at"),
    [
        (b"{", "expected a member name in double quotes", 1),
        (b'{"a"', "expected ':'", 4),
        (b'{"a" 1}', "expected ':'", 5),
        (b'{"a":', "expected a value", 5),
        (b'{"a":}', "expected a value", 5),
        (b'{"a":1', "expected ',' or '}'", 6),
        (b'{"a":1 "b":2}', "expected ',' or '}'", 7),
        (b'{"a":1,}', "expected a member name in double quotes", 7),
        (b'{"a":[1,]}', "expected a value", 8),
        (b'{"a":[1 2]}', "expected ',' or ']'", 8),
        (b'{"a":[1}', "expected ',' or ']'", 7),
        (b'{"a":"x', "unterminated string that begins", 5),
        (b'{"a":"x\\"}', "unterminated string that begins", 5),
        (b'{"a":"x\x00y"}', "NUL byte in a string", 7),
        (b'{"a\x00":1}', "NUL byte in a string", 3),
        (b'{"a":\x001}', "expected a value", 5),
        (b"{'a':1}", "expected a member name in double quotes", 1),
        (b'{"a":01}', "expected ',' or '}'", 6),
        (b'{"a":-}', "expected a digit", 6),
        (b'{"a":1.}', "expected a digit", 7),
        (b'{"a":1e+}', "expected a digit", 8),
        (b'{"a":.5}', "expected a value", 5),
        (b'{"a":+5}', "expected a value", 5),
        (b'{"a":NaN}', "expected a value", 5),
        (b'{"a":Infinity}', "expected a value", 5),
        (b'{"a":-Infinity}', "expected a digit", 6),
        (b'{"a":tru}', "expected a value", 5),
        (b'{"a":truex}', "expected ',' or '}'", 9),
        (b'{"a":1}/**/', "trailing data", 7),
        (b'{"a":1}{"a":2}', "trailing data", 7),
        (b'{"a":1}\x00', "trailing data", 7),
        (b'{"\\x":1}', "invalid escape", 2),
        (b'{"\\ud8":1}', "invalid \\u escape", 2),
    ],
)
def test_a_refusal_says_what_was_expected_and_at_which_offset(
    scanner: Scanner, text: bytes, what: str, at: int
) -> None:
    with pytest.raises(ValueError) as refused:
        scanner.members(text)
    assert refused.value.args == (what, at)


def test_a_name_written_with_escapes_is_the_same_name(scanner: Scanner) -> None:
    assert scanner.members(rb'{"mod\u0065l":1,"\u006d\u006f\u0064el":2}') == [
        (b"model", b"1"),
        (b"model", b"2"),
    ]


def test_nesting_is_followed_to_its_limit_and_refused_beyond(
    scanner: Scanner, require: Callable[[str], Any]
) -> None:
    limit = int(require("tokenweir.core.json.walk").MAX_DEPTH)
    deep = b"[" * (limit - 1) + b"]" * (limit - 1)
    assert scanner.members(b'{"a":' + deep + b"}") == [(b"a", deep)]
    too_deep = b"[" * limit + b"]" * limit
    with pytest.raises(ValueError, match="nested deeper than 256 levels"):
        scanner.members(b'{"a":' + too_deep + b"}")
    assert not scanner.accepts(b'{"a":' + b"[" * 1_000_000)


@pytest.mark.parametrize(
    ("text", "values", "last"),
    [(b"[1,2,3,4]", 4, 6), (b'{"a":[],"b":[1,{"c":1,"d":2}]}', 7, 21), (b"[[[]],[]]", 4, 5)],
)
def test_more_values_than_are_wanted_end_the_walk(
    scanner: Scanner, text: bytes, values: int, last: int
) -> None:
    """Counted are commas and containers."""
    assert scanner.stops(text, values) is None
    assert scanner.stops(text, values - 1) == last


def test_strings_of_any_size_and_any_number_of_escaped_quotes_end_where_they_end(scanner: Scanner) -> None:
    for size in (0, 1, 7, 8, 9, 31, 32, 33, 1000, 100_000):
        for piece in ("x", '"', "\\", '\\"', 'key="v"; ', '"' * 9 + "y" * 70):
            content = (piece * size)[: max(size, 0)]
            text = json.dumps({"a": content, "b": "end"}).encode()
            assert [json.loads(value) for _, value in scanner.members(text)] == [content, "end"]


@settings(max_examples=120, deadline=None)
@given(content=st.text(alphabet='"\\ax]', max_size=100), repeat=st.integers(1, 40))
def test_dense_quotes_and_backslashes_are_told_apart(scanner: Scanner, content: str, repeat: int) -> None:
    content = '"' * 9 + content * repeat
    text = json.dumps({"a": content, "b": 1}).encode()
    assert [json.loads(value) for _, value in scanner.members(text)] == [content, 1]


@settings(max_examples=120, deadline=None)
@given(raw=st.binary(max_size=300).map(lambda b: b.replace(b"\x00", b"\x01")), padding=st.integers(0, 9))
def test_the_search_by_words_agrees_with_a_search_by_bytes(
    scanner: Scanner, raw: bytes, padding: int
) -> None:
    text = b'{"a":"' + b'\\"' * 12 + b"]" * padding + raw + b'\\"' * 30 + b'","b":2}'
    end = 6
    while text[end] != ord('"'):
        end += 2 if text[end] == ord("\\") else 1
    tail = text[end + 1 :]
    if tail.startswith(b","):
        first = scanner.members(text) if scanner.accepts(text) else []
        if first:
            assert first[0][1] == text[5 : end + 1]
    assert scanner.accepts(text) == (tail.startswith(b",") and scanner.accepts(b'{"a":""' + tail))
