"""`lua/tokenweir/core/json/long.lua`: the same as decoding the whole, in turns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.scale.fleet import backends, snapshot
from tests.unit.lua.fleets import to_lua


class Decoder:
    """Decodes with Python's JSON, and counts what it was asked for."""

    def __init__(self, lua: Any) -> None:
        self.lua = lua
        self.long_json = lua.eval(b'require("tokenweir.core.json.long")')
        if isinstance(self.long_json, tuple):
            self.long_json = self.long_json[0]
        self.pieces: list[int] = []
        self.pauses = 0

    def decode(self, text: bytes) -> Any:
        self.pieces.append(len(text))
        try:
            return to_lua(self.lua, json.loads(text))
        except ValueError:
            return None

    def pause(self) -> None:
        self.pauses += 1

    def __call__(self, text: str) -> Any:
        return self.long_json.decode(text.encode(), self.decode, self.pause)


@pytest.fixture
def decoder(lua: Any) -> Decoder:
    return Decoder(lua)


def test_a_long_snapshot_is_decoded_in_pieces_and_whole(decoder: Decoder) -> None:
    text = snapshot(backends(230, seed=1), 7).dump()
    document = decoder(text)
    assert document[b"sequence"] == 7
    listed = [document[b"backends"][k][b"id"] for k in range(1, len(document[b"backends"]) + 1)]
    assert listed == [f"engine-{k:04d}".encode() for k in range(230)]
    assert decoder.pauses == 9
    assert max(decoder.pieces) < len(text) / 8


def test_what_parts_backends_means_nothing_inside_a_string(decoder: Decoder) -> None:
    made = backends(150, seed=1)
    made[70] = made[70].model_copy(update={"reasons": ['},{"id":"x"', '"backends":[{']})
    document = decoder(snapshot(made, 1).dump())
    assert len(document[b"backends"]) == 150
    assert document[b"backends"][71][b"reasons"][1] == b'},{"id":"x"'


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('{"id"', '{ "id"'),
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
        lambda text: json.dumps({**json.loads(text), "later": [1]}, separators=(",", ":")),
    ],
)
def test_a_text_that_is_made_otherwise_is_decoded_all_the_same(decoder: Decoder, change: Any) -> None:
    document = decoder(change(snapshot(backends(150, seed=1), 9).dump()))
    assert document[b"sequence"] == 9
    assert len(document[b"backends"]) == 150


def test_damage_in_any_piece_is_told(decoder: Decoder) -> None:
    text = snapshot(backends(150, seed=1), 1).dump()
    assert decoder(text.replace('"id":"engine-0120"', '"id":"engine-0120')) is None
    assert decoder(text[:-1]) is None


def test_a_short_text_is_decoded_at_once(decoder: Decoder) -> None:
    decoder(snapshot(backends(3, seed=1), 1).dump())
    assert len(decoder.pieces) == 1
