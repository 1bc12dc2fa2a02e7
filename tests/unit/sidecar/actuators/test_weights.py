"""Which files are a model's weights."""

from __future__ import annotations

import json

import pytest

from sidecar.actuators.weights import WeightsError, shards


def touch(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def names(path):
    return [file.name for file in shards(path)]


def test_safetensors_win_over_the_same_weights_in_other_formats(tmp_path):
    touch(tmp_path, "pytorch_model.bin", "model-2.safetensors", "model-1.safetensors")
    assert names(tmp_path) == ["model-1.safetensors", "model-2.safetensors"]


def test_a_folder_of_gguf(tmp_path):
    touch(tmp_path, "model-q8.gguf", "README.md")
    assert names(tmp_path) == ["model-q8.gguf"]


def test_an_index_says_which_files_count(tmp_path):
    touch(tmp_path, "model-1.safetensors", "model-2.safetensors", "consolidated.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert names(tmp_path) == ["model-1.safetensors", "model-2.safetensors"]


def test_a_file_of_the_index_that_is_missing_is_named(tmp_path):
    touch(tmp_path, "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"model-2\.safetensors of the index is missing"):
        shards(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_named(tmp_path, text):
    touch(tmp_path, "model-1.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(WeightsError, match="not an index"):
        shards(tmp_path)


def test_one_part_of_several_stands_for_all(tmp_path):
    touch(tmp_path, *(f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)), "other.gguf")
    assert names(tmp_path / "m-00001-of-00003.gguf") == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(WeightsError, match=r"m-00002-of-00003\.gguf is missing"):
        shards(tmp_path / "m-00001-of-00003.gguf")


def test_one_file_is_one_file(tmp_path):
    touch(tmp_path, "a.gguf", "b.gguf")
    assert names(tmp_path / "b.gguf") == ["b.gguf"]


def test_a_hub_cache_is_read_at_the_revision_that_main_is(tmp_path):
    touch(tmp_path / "snapshots" / "old", "model.safetensors")
    touch(tmp_path / "snapshots" / "new", "model.safetensors")
    touch(tmp_path / "refs")
    (tmp_path / "refs" / "main").write_text("old\n")
    assert shards(tmp_path) == [tmp_path / "snapshots" / "old" / "model.safetensors"]


def test_what_is_there_is_said_where_there_are_no_weights(tmp_path):
    touch(tmp_path, "README.md", "config.json")
    with pytest.raises(WeightsError, match=r"there is README\.md, config\.json"):
        shards(tmp_path)
    with pytest.raises(WeightsError, match="no such file or folder"):
        shards(tmp_path / "gone")
