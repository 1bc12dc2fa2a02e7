"""Tokens of the emulated model."""

from hypothesis import given
from hypothesis import strategies as st

from emulator import tokens


def test_four_bytes_are_a_token() -> None:
    assert [tokens.count(text) for text in ("", "a", "abcd", "abcde", "ééé")] == [0, 1, 1, 2, 2]


@given(st.integers(0, 2**64 - 1), st.integers(1, 3000))
def test_output_has_the_ordered_number_of_tokens_and_no_character_that_json_escapes(key: int, n: int) -> None:
    text = tokens.output(key, n)
    assert len(text) == 4 * n
    assert tokens.count(text) == n
    assert text.replace(" ", "").isalpha()


def test_output_may_be_longer_than_the_store_of_text() -> None:
    assert len(tokens.output(2**16 - 1, 200_000)) == 800_000


@given(st.text(max_size=400), st.text(max_size=100))
def test_a_longer_text_begins_with_the_hashes_of_the_shorter(text: str, more: str) -> None:
    short, long = tokens.block_hashes(text, 16), tokens.block_hashes(text + more, 16)
    assert long[: len(short)] == short


def test_a_hash_stands_for_everything_before_it_too() -> None:
    first = tokens.block_hashes("a" * 64 + "b" * 64, 16)
    second = tokens.block_hashes("c" * 64 + "b" * 64, 16)
    assert first[1] != second[1]


def test_only_full_blocks_have_a_hash() -> None:
    assert len(tokens.block_hashes("a" * 127, 16)) == 1
    assert len(tokens.block_hashes("a" * 128, 16)) == 2
