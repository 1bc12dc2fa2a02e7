"""`model/small/head.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.small.encoder import SIZE, Array
from model.small.head import MOST_CORRECTION, Head


def encodings(count: int, seed: int = 1) -> Array:
    found = np.random.default_rng(seed).normal(size=(count, SIZE)).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def test_the_bundled_head_corrects_a_little() -> None:
    head = Head.bundled()
    corrections = [head.correction(each) for each in encodings(100)]
    assert np.std(corrections) > 0.001
    assert max(map(abs, corrections)) < MOST_CORRECTION


def test_it_learns_what_encodings_tell() -> None:
    head, kinds = Head.bundled(), encodings(8, seed=3)
    lengths = np.linspace(-0.6, 0.6, len(kinds))
    rng = np.random.default_rng(2)
    for _ in range(1500):
        kind = int(rng.integers(len(kinds)))
        head.learn(kinds[kind], lengths[kind] + rng.normal(0, 0.3))
    said = [head.correction(kind) for kind in kinds]
    assert np.abs(np.array(said) - lengths).mean() < 0.15


def test_an_absurd_residual_counts_for_little() -> None:
    head, text = Head.bundled(), encodings(1)[0]
    for _ in range(200):
        head.learn(text, 1e9)
    assert head.correction(text) <= MOST_CORRECTION
    assert np.isfinite(head.spread).all()


def test_texts_that_are_all_alike_do_not_blow_it_up() -> None:
    head, text = Head.bundled(), encodings(1)[0]
    for _ in range(20_000):
        head.learn(text, 0.2)
    assert head.correction(text) == pytest.approx(0.2, abs=0.01)
    assert np.abs(head.spread).max() < 1000


def test_what_was_learned_is_there_after_a_start(tmp_path: Path) -> None:
    head, texts = Head.bundled(), encodings(50)
    for text in texts:
        head.learn(text, 0.5)
    head.save(tmp_path / "head.npz")
    again = Head.load(tmp_path / "head.npz")
    assert again.learned == 50
    assert again.correction(texts[0]) == pytest.approx(head.correction(texts[0]), abs=1e-6)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense", None])
def test_a_damaged_file_gives_the_bundled_head(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "head.npz"
    if content is not None:
        path.write_bytes(content)
    assert Head.load(path).learned == 0
