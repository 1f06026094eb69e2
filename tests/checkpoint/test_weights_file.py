"""Single files of weights beside their configuration: any name, any wrapping, the names of Hugging Face, Meta or torchtune."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch_writing import META, TORCHTUNE, State, assert_same_tensors, hf_state, params, renamed

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExitCode, Problem
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.recipe.sources import source_stamp

Build = Callable[..., Path]


def only(path: Path) -> Problem:
    (problem,) = header_problems(path)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


def beside(source: Path, target: Path, value: Any, name: str = "model.pth", *, legacy: bool = False) -> Path:
    """`value` saved beside the configuration of `source`."""
    target.mkdir(exist_ok=True)
    shutil.copy(source / "config.json", target)
    path = target / name
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(value, path)
    else:
        torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return path


DIALECTS: dict[str, Callable[[Path], State]] = {
    "Hugging Face": hf_state,
    "Meta": lambda folder: renamed(folder, META),
    "torchtune": lambda folder: renamed(folder, TORCHTUNE),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["model.pth", "checkpoint.pt", "weights.safetensors"])
def test_every_dialect_in_every_file(random_llama: Build, tmp_path: Path, dialect: str, name: str) -> None:
    source = random_llama(tie_word_embeddings=dialect == "torchtune")
    path = beside(source, tmp_path / "m", DIALECTS[dialect](source), name)
    for place in (path, path.parent):
        checkpoint = open_checkpoint(place)
        assert_same_tensors(checkpoint, source)
        assert checkpoint.path == place
        assert checkpoint.format == ("safetensors" if name.endswith("safetensors") else "pytorch")
        assert checkpoint.unused == ()
        assert len(checkpoint.remarks) == (dialect == "Meta"), "whose order of rows a config.json does not tell"


def test_a_legacy_file_is_read_and_its_size_told(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    path = beside(source, tmp_path / "m", renamed(source, TORCHTUNE), legacy=True)
    checkpoint = open_checkpoint(path)
    assert_same_tensors(checkpoint, source)
    (remark,) = checkpoint.remarks
    assert "before PyTorch 1.6" in remark
    assert f"{path.stat().st_size / 1e6:.1f} MB" in remark


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_torchtune_leaves_the_rows_of_qwen_as_hugging_face_has_them(
    random_model: Build, tmp_path: Path, family: str
) -> None:
    source = random_model(family)
    names = {"q_norm.weight": "q_norm.scale", "k_norm.weight": "k_norm.scale"} | TORCHTUNE
    path = beside(source, tmp_path / "m", renamed(source, names, interleaved=False))
    assert_same_tensors(open_checkpoint(path), source)


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module.", "model.", "module.model."],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_in_wrappers(random_llama: Build, tmp_path: Path, dialect: str, prefix: str) -> None:
    source = random_llama()
    state = {prefix + name: tensor for name, tensor in DIALECTS[dialect](source).items()}
    assert_same_tensors(open_checkpoint(beside(source, tmp_path / "m", state)), source)


def test_layers_that_were_compiled_one_by_one(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    state = {name.replace(".0.", ".0._orig_mod."): tensor for name, tensor in hf_state(source).items()}
    assert_same_tensors(open_checkpoint(beside(source, tmp_path / "m", state)), source)


@pytest.mark.parametrize("wrap", ["model", "state_dict", "model_state_dict", "outer"])
def test_dicts_in_dicts(random_llama: Build, tmp_path: Path, wrap: str) -> None:
    source = random_llama()
    state = renamed(source, TORCHTUNE)
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(4)}}, "param_groups": [{"lr": 1e-3}]}
    value = {
        "epoch": 3,
        wrap: {"inner": state} if wrap == "outer" else state,
        "optimizer": optimizer,
        "step": torch.tensor(7),
    }
    checkpoint = open_checkpoint(beside(source, tmp_path / "m", value))
    assert_same_tensors(checkpoint, source)
    assert checkpoint.remarks == (f"of model.pth, {wrap} is read; left aside: epoch, optimizer, step",)


def test_two_networks_in_one_file(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    problem = only(beside(source, tmp_path / "m", {"model": hf_state(source), "ema": hf_state(source)}))
    assert problem.code == "checkpoint.state_dict"
    assert "model, ema" in problem.message


def test_two_networks_under_names_of_two_programs(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    problem = only(beside(source, tmp_path / "m", hf_state(source) | renamed(source, META)))
    assert problem.code == "checkpoint.ambiguous"
    assert "Hugging Face's names and under Meta's" in problem.message


def test_a_tensor_that_stands_twice_is_not_missing_as_well(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    state = hf_state(source)
    problem = only(beside(source, tmp_path / "m", state | {"_orig_mod.model.norm.weight": torch.zeros(64)}))
    assert problem.code == "checkpoint.shard_mismatch"
    assert "one state dict" in str(problem.hint)


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ({"epoch": 3}, "checkpoint.state_dict", "no state dict, but epoch"),
        ([1, 2], "checkpoint.state_dict", "list"),
        ({"conv1.weight": torch.zeros(3)}, "checkpoint.dialect", "of no known style (conv1.weight)"),
        ({"transformer.h.0.attn.c_attn.weight": torch.zeros(3)}, "checkpoint.dialect", "GPT-2"),
        ({"state_dict": {"net.0.weight": torch.zeros(3)}}, "checkpoint.dialect", "of no known style (net.0.weight)"),
        ({"x": torch._neg_view(torch.ones(3))}, "checkpoint.pickle", "no weight is (neg)"),
        ({"layers.0.attention.wqkv.weight": torch.zeros(3)}, "checkpoint.dialect", "gpt-fast"),
        ({"layers.0.attn.q_proj.lora_a.weight": torch.zeros(3)}, "checkpoint.dialect", "LoRA"),
    ],
    ids=str,
)
def test_files_of_something_else(random_llama: Build, tmp_path: Path, value: Any, code: str, words: str) -> None:
    problem = only(beside(random_llama(), tmp_path / "m", value))
    assert problem.code == code
    assert words in problem.message


def test_problems_speak_the_names_of_the_file(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    state = renamed(source, TORCHTUNE)
    del state["norm.scale"], state["layers.1.sa_norm.scale"]
    state["layers.0.attn.k_proj.weight"] = torch.zeros(8, 64)
    state["layers.0.attn.q_proj.bias"] = torch.zeros(64)
    state["layers.0.attn.rotor.weight"] = torch.zeros(64)
    messages = " / ".join(problem.message for problem in header_problems(beside(source, tmp_path / "m", state)))
    assert "norm.scale is missing" in messages
    assert "layers.1.sa_norm.scale is missing" in messages
    assert "layers.0.attn.k_proj.weight is [8, 64]" in messages
    assert "the configured network has no place for 2 tensors" in messages
    assert "model." not in messages


def test_without_a_configuration(random_llama: Build, tmp_path: Path) -> None:
    path = beside(random_llama(), tmp_path / "m", hf_state(random_llama()))
    (path.parent / "config.json").unlink()
    assert only(path).code == "checkpoint.missing"
    assert "neither config.json nor params.json" in only(path).message


def test_params_json_will_do(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    path = beside(source, tmp_path / "m", renamed(source, TORCHTUNE))
    (path.parent / "config.json").unlink()
    (path.parent / "params.json").write_text(json.dumps(params(source)))
    checkpoint = open_checkpoint(path)
    assert_same_tensors(checkpoint, source)
    assert any("how long a context" in remark for remark in checkpoint.remarks)


@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "pytorch_model-00002-of-00002.bin", "consolidated.00.pth"]
)
def test_one_part_of_several_points_to_the_folder(random_llama: Build, tmp_path: Path, name: str) -> None:
    source = random_llama()
    path = beside(source, tmp_path / "m", renamed(source, META), name)
    if name.startswith("consolidated"):
        shutil.copy(path, path.with_name("consolidated.01.pth"))
    problem = only(path)
    assert problem.code == "checkpoint.shard"
    assert str(path.parent) in str(problem.hint)


def test_other_files_of_a_training_are_no_weights(random_llama: Build, tmp_path: Path) -> None:
    source = random_llama()
    path = beside(source, tmp_path / "m", hf_state(source), "final.pt")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.save({}, path.with_name(name))
    assert_same_tensors(open_checkpoint(path.parent), source)
    shutil.copy(path, path.with_name("first.pt"))
    problem = only(path.parent)
    assert problem.code == "checkpoint.ambiguous"
    assert "final.pt, first.pt" in problem.message


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_hostile_file_runs_nothing(random_llama: Build, tmp_path: Path, legacy: bool) -> None:
    source = random_llama()
    state = hf_state(source) | {"x": Hostile(tmp_path / "ran")}
    problem = only(beside(source, tmp_path / "m", state, legacy=legacy))
    assert problem.code == "checkpoint.unsafe_pickle"
    assert "system" in problem.message
    assert not (tmp_path / "ran").exists()


def test_hashes_tell_row_orders_apart(random_llama: Build, tmp_path: Path) -> None:
    """Equal bytes that are read in another order are another tensor."""
    source = random_llama()
    meta = renamed(source, META)
    same_bytes = {known: meta[own] for known, own in zip(hf_state(source), meta, strict=True)}
    first = open_checkpoint(beside(source, tmp_path / "a", meta))
    second = open_checkpoint(beside(source, tmp_path / "b", same_bytes))
    query, value = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight")
    assert not torch.equal(first.read(query), second.read(query))
    assert first.sha256(query) != second.sha256(query)
    assert torch.equal(first.read(value), second.read(value))
    assert first.sha256(value) == second.sha256(value)


def test_the_configuration_beside_a_file_counts_as_its_source(random_llama: Build, tmp_path: Path) -> None:
    """An export of a single file is outdated once its configuration was touched."""
    source = random_llama()
    path = beside(source, tmp_path / "m", hf_state(source))
    recipe = Recipe.model_validate({"name": "tiny", "model": {"source": str(path)}})
    loaded = LoadedRecipe(recipe=recipe, path=tmp_path / "etcli.yaml", base=tmp_path, document={})
    before = source_stamp(loaded, path)
    assert set(before) == {"model.pth", "config.json"}
    (path.parent / "config.json").write_text("{ }")
    assert source_stamp(loaded, path) != before
