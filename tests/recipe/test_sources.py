"""The stamp of a model's files: it changes with any of them, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcli.recipe.fingerprint import export_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.recipe.sources import adapter_path, source_stamp


def loaded(base: Path, **model: str) -> LoadedRecipe:
    recipe = Recipe.model_validate({"name": "a", "model": {"source": "m", **model}})
    return LoadedRecipe(recipe=recipe, path=base / "recipe.yaml", base=base, document={})


def test_an_adapter_counts(tmp_path: Path) -> None:
    (tmp_path / "lora").mkdir()
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    weights = tmp_path / "lora" / "adapter_model.safetensors"
    weights.write_bytes(b"one")
    plain, adapted = loaded(tmp_path), loaded(tmp_path, adapter="lora")
    assert adapter_path(plain) is None
    assert adapter_path(adapted) == tmp_path / "lora"
    without, before = source_stamp(plain, tmp_path / "m"), source_stamp(adapted, tmp_path / "m")
    assert set(before) - set(without) == {"adapter/adapter_model.safetensors"}
    weights.write_bytes(b"other")
    assert source_stamp(adapted, tmp_path / "m") != before
    assert source_stamp(plain, tmp_path / "m") == without
    assert export_fingerprint(plain.recipe) != export_fingerprint(adapted.recipe)


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    before = source_stamp(loaded(tmp_path), parts[0])
    assert set(before) == {part.name for part in parts}
    parts[2].write_bytes(b"GGUF2")
    assert source_stamp(loaded(tmp_path), parts[0]) != before


@pytest.mark.parametrize("name", ["m.gguf", "m-00004-of-00003.gguf", "m-1-of-3.gguf"])
def test_other_files_stand_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    assert set(source_stamp(loaded(tmp_path), tmp_path / name)) == {name}
